"""GPUs that jobs of one tenant may be given together."""

from collections.abc import Sequence

from optsched.driver.world import World

from .gpu_pool import GpuPool

Quota = tuple[tuple[int, ...], int]
"""Positions of the jobs of one tenant, and the GPUs that they may have together."""


def quotas(world: World, jobs: Sequence[str]) -> tuple[Quota, ...]:
    """Return the quotas that limit `jobs`, less what other running jobs hold."""
    left: dict[str | None, int] = dict(world.instance.gpu_cap.items())
    moving = set(jobs) if left else ()
    for job_id, job in world.running.items() if left else ():
        if job.tenant in left and job_id not in moving:
            left[job.tenant] -= world.hold(job_id).need.gpus
    members: dict[str | None, list[int]] = {}
    for i, job_id in enumerate(jobs):
        tenant = world.job(job_id).tenant
        if tenant in left:
            members.setdefault(tenant, []).append(i)
    return tuple((tuple(own), max(0, left[tenant])) for tenant, own in members.items())


def rows(world: World, jobs: Sequence[str], pool: GpuPool) -> tuple[list[int], dict[int, int]]:
    """Return what is left in each row, GPU types before quotas, and the row of the quota of each
    job that has one, by its position."""
    limits = quotas(world, jobs)
    room = [*(max(0, left) for left in pool.gpus.values()), *(most for _, most in limits)]
    first = len(pool.gpus)
    return room, {i: first + row for row, (members, _) in enumerate(limits) for i in members}
