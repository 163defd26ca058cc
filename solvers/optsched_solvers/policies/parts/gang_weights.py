"""What raises the weight of gangs that need a large part of the cluster."""

from dataclasses import replace

from optsched.driver import World
from optsched.model import Instance, Job

GANG = 2.0
"""The weight of a gang is raised by this times its share of all GPUs of a type. Such a gang finds
the moment at which the smaller jobs that hold them are worth less only in a lull, and in a busy
cluster that does not come."""


class GangWeights:
    """Instances in which large gangs weigh more. A job's factor is the same in all of them."""

    def __init__(self, share_weight: float = GANG) -> None:
        self._share_weight = share_weight
        self._known: dict[str, tuple[Job, Job]] = {}
        self._gpus: dict[str | None, int] = {}

    def raised(self, world: World, instance: Instance) -> Instance:
        """Return the snapshot `instance` with raised weights."""
        if not self._share_weight:
            return instance
        jobs = []
        for job in instance.jobs:
            known = self._known.get(job.id)
            if known is None or known[0] is not job:
                gang = job.gpus not in (0, 1) or bool(job.modes)
                factor = self._factor(world, job.id) if gang else 1.0
                known = self._known[job.id] = (
                    job,
                    replace(job, weight=job.weight * factor) if gang else job,
                )
            jobs.append(known[1])
        return replace(instance, jobs=tuple(jobs))

    def _factor(self, world: World, job_id: str) -> float:
        """Return 1 + so many times the share of the GPUs of one type that the job takes, where that
        is least."""
        if not self._gpus:
            for node in world.cluster.nodes:
                self._gpus[node.gpu_type] = self._gpus.get(node.gpu_type, 0) + node.gpus
        shares = (
            option.mode.gpus / self._gpus[option.mode.gpu_type]
            for option in world.options(job_id)
            if option.mode.gpus
        )
        return 1.0 + self._share_weight * min(shares, default=0.0)
