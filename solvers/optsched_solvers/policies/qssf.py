"""Helios' quasi-shortest-service-first."""

import math
from dataclasses import dataclass
from heapq import heappop, heappush
from importlib.util import find_spec
from typing import Annotated

from optsched.driver.world import World
from optsched.estimates.history import gang
from optsched.estimates.learned import Learned
from optsched.estimates.unknown import FIRST_GUESS_S
from optsched.plugins.options import PluginOptions, Share

from .parts.demand_queue import Entry, arrival_key
from .parts.locality_gate import LocalityGate, Patience
from .parts.rolling_gpu_time import RollingGpuTime
from .sources import SOURCES

CONSOLIDATED = Patience(rack_s=math.inf, cluster_s=math.inf)


class Qssf:
    """The job with the least expected GPU time first, in one queue for each tenant; while the first
    of a queue does not fit, nobody behind it starts. Jobs are never preempted, and gangs never
    spread further than they must.

    The expected GPU time is alpha x the rolling estimate + (1 - alpha) x the model's predicted run
    time x GPUs, fixed when the job arrives. Both learn from jobs that complete in the simulation
    only: what they held their GPUs for. The model is that of the estimates `learned` (trained after
    500, 1,000, 2,000... completions); before that, and where scikit-learn is not installed, the
    rolling estimate counts alone. Until any job has completed, the smallest gang comes first.
    """

    name = "qssf"
    title = "least predicted GPU time first, from the user's history and a learned model, without preemption"  # noqa: E501
    source = SOURCES[name]

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        alpha: Annotated[Share, "Weight of the rolling estimate; 0.1 in the public code."] = 0.1

    def __init__(self, options: Options) -> None:
        self.alpha = options.alpha
        self.rolling = RollingGpuTime()
        self.model = Learned() if find_spec("sklearn") is not None else None
        self._gate = LocalityGate()
        self._queues: dict[str | None, list[Entry]] = {}
        self.expected_gpu_s: dict[str, float] = {}
        self._begun = False
        self._completed = 0
        self._error = 0.0

    def decide(self, world: World) -> None:
        """Learn, then start from the heads of all queues."""
        if not self._begun:
            self._begun = True
            for job_id in world.running:
                self._expect(world, job_id)
        for job_id in world.take_released():
            if job_id in self.expected_gpu_s and not world.is_active(job_id):
                self._learn(world, job_id)
        for job_id in world.take_arrived():
            key = arrival_key(world, job_id, self._expect(world, job_id))
            heappush(self._queues.setdefault(world.job(job_id).tenant, []), (key, job_id))
        heads = [(queue[0], i) for i, queue in enumerate(self._queues.values()) if queue]
        queues = list(self._queues.values())
        heads.sort()
        while heads:
            (_, job_id), i = heads.pop(0)
            found = self._gate.find(world, job_id, CONSOLIDATED, 0.0)
            if found is None:
                continue
            world.start(job_id, *found)
            heappop(queues[i])
            if queues[i]:
                heads.append((queues[i][0], i))
                heads.sort()

    def facts(self) -> dict[str, float]:
        """Return how good the predictions were: the mean absolute error of the logarithm of the GPU
        time."""
        return {
            "predicted_jobs": self._completed,
            "mean_absolute_log_error": self._error / self._completed if self._completed else 0.0,
            "model_trained": int(self.model is not None and self.model.trained),
        }

    def _expect(self, world: World, job_id: str) -> float:
        """GPU-seconds that a job is expected to take; the same as long as it is there."""
        if job_id not in self.expected_gpu_s:
            job = world.job(job_id)
            rolling_gpu_s = self.rolling.gpu_s(job)
            gpus = max(1, gang(job))
            learned_s = None if self.model is None else self.model.work_s(job, world.now_s)
            if rolling_gpu_s is None:
                expected = FIRST_GUESS_S * gpus
            elif learned_s is None or self.model is None or not self.model.trained:
                expected = rolling_gpu_s
            else:
                expected = self.alpha * rolling_gpu_s + (1 - self.alpha) * learned_s * gpus
            self.expected_gpu_s[job_id] = expected
        return self.expected_gpu_s[job_id]

    def _learn(self, world: World, job_id: str) -> None:
        """A job has completed."""
        job, held_gpu_s = world.job(job_id), world.attained_gpu_s(job_id)
        expected = self.expected_gpu_s.pop(job_id)
        if held_gpu_s <= 0:
            return
        self._completed += 1
        self._error += abs(math.log(expected / held_gpu_s)) if expected > 0 else 0.0
        run_s = held_gpu_s / max(1, gang(job))
        self.rolling.completed(job, run_s)
        if self.model is not None:
            self.model.completed(job, run_s, world.now_s)
