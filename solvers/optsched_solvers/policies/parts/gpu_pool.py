"""GPUs to be given out by type, within the quotas of tenants: counts alone, before anybody looks
for places."""

from collections import Counter
from collections.abc import Sequence

from optsched.driver.world import World


class GpuPool:
    """The GPUs of the cluster by type, less those of lost nodes, that are not given out yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.gpus = Counter[str | None]()
        for node in world.cluster.nodes:
            if node.name not in world.lost:
                self.gpus[node.gpu_type] += node.gpus
        self._quotas = dict(world.instance.gpu_cap)

    def room(self, job_id: str, gpu_type: str | None) -> int:
        """Return the most GPUs of a type that the job could be given now."""
        quota = self._quotas.get(self._world.job(job_id).tenant or "")
        return max(0, self.gpus[gpu_type] if quota is None else min(quota, self.gpus[gpu_type]))

    def take(self, job_id: str, gpu_type: str | None, gpus: int) -> bool:
        """Give GPUs to a job, if there are as many."""
        if gpus > self.room(job_id, gpu_type):
            return False
        self._change(job_id, gpu_type, -gpus)
        return True

    def hold(self, job_id: str, gpu_type: str | None, gpus: int) -> None:
        """Count GPUs that a job holds in any case."""
        self._change(job_id, gpu_type, -gpus)

    def _change(self, job_id: str, gpu_type: str | None, gpus: int) -> None:
        self.gpus[gpu_type] += gpus
        tenant = self._world.job(job_id).tenant
        if tenant in self._quotas:
            self._quotas[tenant] += gpus


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


class Rows:
    """What limits the choice of GPUs for jobs: how many there are of each type, then what is left
    of each quota, as rows with `room`."""

    def __init__(self, world: World, jobs: Sequence[str], pool: GpuPool) -> None:
        limits = quotas(world, jobs)
        self.types = list(pool.gpus)
        self.room = [*(max(0, left) for left in pool.gpus.values()), *(most for _, most in limits)]
        self._quota = {
            i: len(self.types) + row for row, (members, _) in enumerate(limits) for i in members
        }

    def use(self, i: int, gpu_type: str | None, gpus: int) -> list[tuple[int, int]]:
        """Return what the job in position `i` takes of each row with so many GPUs of a type."""
        if not gpus:
            return []
        quota = [(self._quota[i], gpus)] if i in self._quota else []
        return [(self.types.index(gpu_type), gpus), *quota]
