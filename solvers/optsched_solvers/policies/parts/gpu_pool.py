"""GPUs to be given out by type, within the quotas of tenants: counts alone, before anybody looks
for places."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from optsched.driver import World


class GpuPool:
    """The GPUs of the cluster by type, less those of lost nodes, that are not given out yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.gpus = Counter[str | None]()
        for node in world.cluster.nodes:
            if node.name not in world.lost:
                self.gpus[node.gpu_type] += node.gpus
        self._left, self._over = world.quota_limits(), world.instance.quotas.over

    def room(self, job_id: str, gpu_type: str | None) -> int:
        """Return the most GPUs of a type that the job could be given now."""
        over = self._over.get(self._world.job(job_id).tenant or "", ())
        return max(0, min([self.gpus[gpu_type], *(self._left[quota] for quota in over)]))

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
        for quota in self._over.get(self._world.job(job_id).tenant or "", ()):
            self._left[quota] += gpus


Quota = tuple[tuple[int, ...], int]
"""Positions of the jobs that one quota limits, and the GPUs that they may have together."""


def quotas(world: World, jobs: Sequence[str]) -> tuple[Quota, ...]:
    """Return the quotas that limit `jobs`, less what other running jobs hold."""
    left, over, moving = world.quota_limits(), world.instance.quotas.over, set(jobs)
    if not left:
        return ()
    for job_id, job in world.running.items():
        if job_id not in moving:
            for quota in over.get(job.tenant or "", ()):
                left[quota] -= world.hold(job_id).need.gpus
    members: dict[str | None, list[int]] = {}
    for i, job_id in enumerate(jobs):
        for quota in over.get(world.job(job_id).tenant or "", ()):
            members.setdefault(quota, []).append(i)
    return tuple((tuple(own), max(0, left[quota])) for quota, own in members.items())


class Rows:
    """What limits the choice of GPUs for jobs: how many there are of each type, then what is left
    of each quota, as rows with `room`."""

    def __init__(self, world: World, jobs: Sequence[str], pool: GpuPool) -> None:
        limits = quotas(world, jobs)
        self.types = list(pool.gpus)
        self.room = [*(max(0, left) for left in pool.gpus.values()), *(most for _, most in limits)]
        self._quotas: dict[int, list[int]] = defaultdict(list)
        for row, (members, _) in enumerate(limits, start=len(self.types)):
            for i in members:
                self._quotas[i].append(row)

    def use(self, i: int, gpu_type: str | None, gpus: int) -> list[tuple[int, int]]:
        """Return what the job in position `i` takes of each row with so many GPUs of a type."""
        rows = [self.types.index(gpu_type), *self._quotas[i]] if gpus else []
        return [(row, gpus) for row in rows]
