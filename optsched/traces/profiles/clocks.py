"""GPU clocks below the default one, by a model, for workloads whose jobs have none measured."""

from dataclasses import replace
from functools import cache

from ...model import Clock, Instance, Profile
from . import with_profiles

DEFAULT_MHZ = 1530
"""The highest clock of a V100."""
CLOCKS_MHZ = (1380, 1230, 1080, 930)
IDLE_SHARE = 0.4
"""Share of the power that does not depend on the clock: the rest goes with its cube, so that a step
bound by the GPU takes 13 % less energy at the best clock, of the 9 to 23 % that Tang et al. (The
impact of GPU DVFS on the energy and performance of deep learning, 2019) measured."""


def with_clocks(instance: Instance) -> Instance:
    """Return the instance whose jobs on GPUs may also run at lower clocks. Only the share of a step
    for which the GPU computes (`duty`, all of it where that is not known) is longer then."""

    @cache
    def changed(own: Profile) -> Profile:
        duty = 1.0 if own.sharing is None or own.sharing.duty is None else own.sharing.duty
        return replace(own, clocks={mhz: _clock(mhz / DEFAULT_MHZ, duty) for mhz in CLOCKS_MHZ})

    return with_profiles(
        instance, lambda job: job.profile if job.gpus == 0 else changed(job.profile)
    )


def _clock(share: float, duty: float) -> Clock:
    """Return rate and power at a share of the default clock."""
    return Clock(
        rate=round(1.0 / (1.0 - duty + duty / share), 4),
        power=round(IDLE_SHARE + (1.0 - IDLE_SHARE) * share**3, 4),
    )
