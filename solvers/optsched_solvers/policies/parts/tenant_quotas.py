"""GPUs that jobs of one tenant may be given together."""

from collections.abc import Sequence

from optsched.driver.world import World

Quota = tuple[tuple[int, ...], int]
"""Positions of the jobs of one tenant, and the GPUs that they may have together."""


def quotas(world: World, jobs: Sequence[str]) -> tuple[Quota, ...]:
    """The quotas that limit `jobs`, less what other running jobs hold."""
    caps = dict(world.instance.gpu_cap)
    if not caps:
        return ()
    listed = set(jobs)
    for job_id, job in world.running.items():
        if job.tenant in caps and job_id not in listed:
            caps[job.tenant] -= sum(slot.gpus for slot in world.hold(job_id).placement)
    members: dict[str, list[int]] = {}
    for i, job_id in enumerate(jobs):
        tenant = world.job(job_id).tenant
        if tenant is not None and tenant in caps:
            members.setdefault(tenant, []).append(i)
    return tuple((tuple(own), max(0, caps[tenant])) for tenant, own in members.items())
