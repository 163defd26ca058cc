"""Amounts of memory from which jobs of measured families may choose, beside those that they ask
for."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from ...model import Instance, Profile
from . import with_profiles
from .measured import Family, family_of


def with_more_memory(instance: Instance) -> Instance:
    """Return the instance whose jobs may take the cores and the host memory beyond a proportional
    share that Synergy measured to be of use."""
    return _with_families(instance, _with_more_memory)


def with_micro_batches(instance: Instance) -> Instance:
    """Return the instance whose jobs may take less GPU memory, with a half and a quarter of the
    batch at a time, at the rates that Gavel measured of such batches."""
    return _with_families(instance, _with_micro_batches)


def _with_micro_batches(own: Profile, family: Family) -> Profile:
    if own.gpu_memory_gib != family.gpu_memory_gib:
        return own
    return replace(own, gpu_memory_rates=family.gpu_memory_rates)


def _with_more_memory(own: Profile, family: Family) -> Profile:
    if not (own.cpus_per_gpu and family.memory_rates):
        return own
    most_gib = max(family.memory_rates)
    return replace(
        own,
        cpus_per_gpu={**own.cpus_per_gpu, **family.more_cores},
        memory_gib_per_gpu=most_gib,
        memory_rates={gib: rate for gib, rate in family.memory_rates.items() if gib < most_gib},
    )


def _with_families(instance: Instance, change: Callable[[Profile, Family], Profile]) -> Instance:
    @cache
    def changed(own: Profile) -> Profile:
        family = family_of(own.name)
        return own if family is None else change(own, family)

    return with_profiles(
        instance, lambda job: job.profile if job.gpus == 0 else changed(job.profile)
    )
