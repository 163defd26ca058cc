"""One cost of preemption for all jobs, for workloads that ask what a checkpoint costs."""

from dataclasses import replace
from functools import cache

from ...model import Instance, Profile
from . import with_profiles


def with_checkpoint_cost(instance: Instance, seconds: float) -> Instance:
    """Return the instance whose jobs take `seconds` to save and as long again to restore, whatever
    was measured of them; what starting them costs stays."""

    @cache
    def changed(own: Profile) -> Profile:
        return replace(own, checkpoint_s=seconds, restore_s=seconds)

    return with_profiles(instance, lambda job: changed(job.profile))
