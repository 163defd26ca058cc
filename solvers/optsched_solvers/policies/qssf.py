"""Helios' quasi-shortest-service-first."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

from optsched.driver import World
from optsched.estimates.history import by_completion
from optsched.estimates.learned import Learned
from optsched.estimates.unknown import FIRST_GUESS_S
from optsched.model import Completed, Job, gang
from optsched.plugins.options import PluginOptions, Share, declared_options

from .parts.demand_queue import DemandQueue, arrival_key
from .parts.locality_gate import LocalityGate, Patience
from .parts.starting import start_at

CONSOLIDATED = Patience(rack_s=math.inf, cluster_s=math.inf)


CUTOFF = 0.6
MATCHES = 2
"""Names closer than the cutoff count as like the new one, so many of them."""
NAMES = 1000
"""So many distinct names, the latest, are compared with a name that is new."""

Group = tuple[str, str | int | None, str | int | None, int | None]


@dataclass(slots=True)
class _Mean:
    count: int = 0
    total_s: float = 0.0


class RollingGpuTime:
    """Expected GPU time of a job: the mean run time of completed jobs of its user and name, times
    its GPUs.

    A name that has not been seen stands for the (up to two) closest ones. Of the user's jobs of
    these names those with as many GPUs are preferred. Without any, those of all users count;
    without a close name, all of the user; else all. Source: the public estimator of Helios (Hu et
    al., SC 2021), which takes plain means over its whole history.
    """

    def __init__(self) -> None:
        self._means: dict[Group, _Mean] = {}
        self._names: dict[str, None] = {}

    def completed(self, job: Job, run_s: float) -> None:
        """Learn from one more job, which ran for `run_s`."""
        groups: list[Group] = [("all", None, None, None), ("user", job.user, None, None)]
        if job.command is not None:
            self._names.pop(job.command, None)
            self._names[job.command] = None
            groups += [
                ("name", None, job.command, None),
                ("name", job.user, job.command, None),
                ("name", job.user, job.command, _gpus(job)),
            ]
        for group in dict.fromkeys(groups):
            mean = self._means.setdefault(group, _Mean())
            mean.count += 1
            mean.total_s += run_s

    def gpu_s(self, job: Job) -> float | None:
        """Return the GPU-seconds that a job is expected to take; None while nothing has
        completed."""
        run_s = self._run_s(job)
        return None if run_s is None else run_s * _gpus(job)

    def _run_s(self, job: Job) -> float | None:
        names = self._like(job.command)
        if names:
            for user, gpus in ((job.user, _gpus(job)), (job.user, None), (None, None)):
                mean_s = self._mean([("name", user, name, gpus) for name in names])
                if mean_s is not None:
                    return mean_s
        own_s = None if job.user is None else self._mean([("user", job.user, None, None)])
        return self._mean([("all", None, None, None)]) if own_s is None else own_s

    def _mean(self, groups: list[Group]) -> float | None:
        """Return the mean over the groups together, which have no job in common."""
        means = [mean for group in groups if (mean := self._means.get(group)) is not None]
        return (
            sum(mean.total_s for mean in means) / sum(mean.count for mean in means)
            if means
            else None
        )

    def _like(self, command: str | None) -> list[str]:
        if command is None:
            return []
        if command in self._names:
            return [command]
        return close_matches(command, list(self._names)[-NAMES:])


def close_matches(name: str, among: Sequence[str]) -> list[str]:
    """Return what `difflib.get_close_matches` does, without measuring names whose upper bound says
    that two others are closer."""
    matcher: difflib.SequenceMatcher[str] = difflib.SequenceMatcher()
    matcher.set_seq2(name)
    bounds: list[tuple[float, str]] = []
    for other in among:
        matcher.set_seq1(other)
        bounds.append((matcher.quick_ratio(), other))
    best: list[tuple[float, str]] = []
    for bound, other in sorted(bounds, reverse=True):
        if bound < (best[-1][0] if len(best) == MATCHES else CUTOFF):
            break
        matcher.set_seq1(other)
        if matcher.ratio() >= CUTOFF:
            best = sorted([*best, (matcher.ratio(), other)], reverse=True)[:MATCHES]
    return [other for _, other in best]


def _gpus(job: Job) -> int:
    return max(1, gang(job))


class Qssf:
    """The job with the least expected GPU time first, in one queue for each tenant; while the first
    of a queue does not fit, nobody behind it starts. Jobs are never preempted, and gangs never
    spread further than they must.

    The expected GPU time is alpha x the rolling estimate + (1 - alpha) x the model's predicted run
    time x GPUs, fixed when the job arrives. Both learn from the jobs of the instance's `past` and
    from those that complete in the simulation: what they held their GPUs for. The model is that of
    the estimates `learned` (trained on the past, and after 500, 1,000, 2,000... completions);
    before that, and where scikit-learn is not installed, the rolling estimate counts alone. Until
    any job has completed, the smallest gang comes first.
    """

    name = "qssf"
    title = "least predicted GPU time first, from the user's history and a learned model, without preemption"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        alpha: Annotated[Share, "Weight of the rolling estimate; 0.1 in the public code."] = 0.1
        past: Annotated[bool, "Learn from what completed before the simulation begins."] = True

    def __init__(self, options: Options) -> None:
        self.alpha = options.alpha
        self.past = options.past
        self.rolling = RollingGpuTime()
        self.model = Learned() if find_spec("sklearn") is not None else None
        self._gate = LocalityGate()
        self._queue = DemandQueue()
        self.expected_gpu_s: dict[str, float] = {}
        self._begun = False
        self._completed = 0
        self._error = 0.0

    def decide(self, world: World) -> None:
        """Learn, then start from the heads of all queues."""
        if not self._begun:
            self._begun = True
            if self.past:
                self._remember(world.instance.past)
            for job_id in world.running:
                self._expect(world, job_id)
        for job_id in world.take_released():
            if job_id in self.expected_gpu_s and not world.is_active(job_id):
                self._learn(world, job_id)
        for job_id in world.take_arrived():
            key = arrival_key(world, job_id, self._expect(world, job_id))
            self._queue.push(key, job_id, world.job(job_id).tenant)
        self._queue.unblock()
        self._queue.serve(lambda job_id: self._start(world, job_id))

    def _start(self, world: World, job_id: str) -> bool:
        return start_at(world, job_id, self._gate.find(world, job_id, CONSOLIDATED, 0.0))

    def facts(self) -> dict[str, float]:
        """Return how good the predictions were: the mean absolute error of the logarithm of the GPU
        time."""
        return {
            "predicted_jobs": self._completed,
            "mean_absolute_log_error": self._error / self._completed if self._completed else 0.0,
            "model_trained": int(self.model is not None and self.model.trained),
        }

    def _remember(self, past: Sequence[Completed]) -> None:
        """Learn from the jobs that completed before."""
        for done in sorted(past, key=by_completion):
            self.rolling.completed(done.job, done.work_s)
        if self.model is not None:
            self.model.remember(past)

    def _expect(self, world: World, job_id: str) -> float:
        """Return the GPU-seconds that a job is expected to take; the same as long as it is
        there."""
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
        """Learn from a job that has completed."""
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
