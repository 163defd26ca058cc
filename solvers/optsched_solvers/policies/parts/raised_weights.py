"""What jobs weigh in the rounds of `optsched` beyond what is said of them."""

import math
from collections import deque
from dataclasses import replace

from optsched.driver import World
from optsched.model import Instance, Job

GANG = 2.0
"""The weight of a gang is raised by this times its share of all GPUs of a type. Such a gang finds
the moment at which the smaller jobs that hold them are worth less only in a lull, and in a busy
cluster that does not come."""

LATE, LATE_UNSURE = 1.5, 3.0
"""The weight of a job that takes longer than most is raised by the square of how many times as
long, at most by this factor: the mean is least if who has the most left to do waits for a lull.
The second is for run times that are not known, where tails are longer."""
MOST = 0.9
"""Most: this share of jobs..."""
FEW, KEPT = 20, 1000
"""... of those that are here and of so many that have ended last; of few nothing is said."""


class RaisedWeights:
    """Instances in which large gangs weigh more, and jobs that take longer than most."""

    def __init__(self, gangs: float = GANG) -> None:
        self._share_weight = gangs
        self._gang_factors: dict[str, float] = {}
        self._known: dict[str, tuple[Job, float, Job]] = {}
        self._gpus: dict[str | None, int] = {}
        self._taken_s: deque[float] = deque(maxlen=KEPT)

    def note_ended(self, world: World) -> None:
        """Note how long those took that have ended since this was last called, and forget their
        factors."""
        for job_id in dict.fromkeys(world.take_released()):
            if world.knows(job_id) and not world.is_active(job_id):
                self._taken_s.append(world.now_s - world.job(job_id).submit_s)
                self._known.pop(job_id, None)
                self._gang_factors.pop(job_id, None)

    def raised(self, world: World, instance: Instance, *, late: bool = False) -> Instance:
        """Return the snapshot `instance` with raised weights of large gangs and, with `late`, of
        jobs that take longer than most. Jobs whose factors have not changed are the same objects
        as before."""
        late_factors = self._late_factors(world, instance) if late else {}
        jobs = []
        for job in instance.jobs:
            factor = self._gang_factor(world, job) * late_factors.get(job.id, 1.0)
            known = self._known.get(job.id)
            if known is None or known[0] is not job or known[1] != factor:
                heavier = job if factor == 1.0 else replace(job, weight=job.weight * factor)
                known = self._known[job.id] = job, factor, heavier
            jobs.append(known[2])
        return replace(instance, jobs=tuple(jobs))

    def _late_factors(self, world: World, instance: Instance) -> dict[str, float]:
        """Return the factors, in tenths, of jobs that will have taken longer than most when they
        end or, where run times are not known, have done so by now."""
        takes_s = {job.id: world.now_s - job.submit_s for job in instance.jobs}
        if world.knows_run_times:
            takes_s = {
                job_id: past_s + world.fastest_finish_s(job_id)
                for job_id, past_s in takes_s.items()
            }
        all_s = sorted((*self._taken_s, *takes_s.values()))
        if len(all_s) < FEW:
            return {}
        limit_s = all_s[int(MOST * len(all_s))]
        longest = math.sqrt(LATE if world.knows_run_times else LATE_UNSURE)
        return {
            job_id: round(min(longest, long_s / limit_s) ** 2, 1)
            for job_id, long_s in takes_s.items()
            if long_s > limit_s > 0
        }

    def _gang_factor(self, world: World, job: Job) -> float:
        """Return 1 + so many times the share of the GPUs of one type that the job takes, where that
        is least."""
        if not self._share_weight or (job.gpus in (0, 1) and not job.modes):
            return 1.0
        factor = self._gang_factors.get(job.id)
        if factor is None:
            factor = 1.0 + self._share_weight * self._share(world, job.id)
            self._gang_factors[job.id] = factor
        return factor

    def _share(self, world: World, job_id: str) -> float:
        if not self._gpus:
            for node in world.cluster.nodes:
                self._gpus[node.gpu_type] = self._gpus.get(node.gpu_type, 0) + node.gpus
        shares = (
            option.mode.gpus / self._gpus[option.mode.gpu_type]
            for option in world.options(job_id)
            if option.mode.gpus
        )
        return min(shares, default=0.0)
