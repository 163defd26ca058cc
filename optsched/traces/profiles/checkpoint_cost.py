"""One cost of preemption for all jobs, for workloads that ask what a checkpoint costs."""

from dataclasses import replace

from ...model.instance import Instance
from ...model.profile import Profile


def with_checkpoint_cost(instance: Instance, seconds: float) -> Instance:
    """Return the instance whose jobs take `seconds` to save and as long again to restore, whatever
    was measured of them; what starting them costs stays."""
    changed: dict[Profile, Profile] = {}
    jobs = []
    for job in instance.jobs:
        own = job.profile
        if own not in changed:
            changed[own] = replace(own, checkpoint_s=seconds, restore_s=seconds)
        jobs.append(replace(job, profile=changed[own]))
    return replace(instance, jobs=tuple(jobs))
