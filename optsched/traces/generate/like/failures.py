"""Which jobs fail, why and when: the causes of a model, matched to jobs long enough to fail so
late."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..families import CHECKPOINT_PERIOD_S
from .distribution import Floats
from .model import Cause, Failing
from .population import Ints

ATTEMPT_SPREAD = 0.05
"""By how much the attempts of one job differ in the level of their run time to failure."""


class Attempt(NamedTuple):
    """An attempt that fails: the job by its position, the work it does and keeps, and why."""

    job: int
    work_s: float
    kept_s: float
    kind: str


def failing_attempts(
    failing: Failing, gpus: Ints, run_s: Floats, rng: np.random.Generator
) -> list[Attempt]:
    """Return the failing attempts of a workload, by job, those of one job in order; jobs without
    GPUs have none.

    Within a bucket of gang sizes causes are drawn by the jobs that they hit, run times to failure
    from the cause. They are then given, the longest first, to jobs drawn from those that run at
    least so long; where none is left, to the longest, cut to its length.
    """
    attempts: list[Attempt] = []
    bucket = np.searchsorted(np.array(failing.edges), gpus)
    for b, chance in enumerate(failing.chance):
        (mine,) = np.nonzero((bucket == b) & (gpus > 0))
        hit = np.array([cause.trials[b] / cause.attempts for cause in failing.causes])
        if not len(mine) or not hit.any():
            continue
        count = int(rng.binomial(len(mine), chance))
        why = rng.choice(len(hit), size=count, p=hit / hit.sum())
        level = rng.random(count)
        after_s = np.empty(count)
        for i, cause in enumerate(failing.causes):
            after_s[why == i] = cause.after_s.at(level[why == i])
        order = np.argsort(-after_s, kind="stable").tolist()
        jobs = _long_enough(after_s[order].tolist(), mine, run_s, rng)
        for i, job in zip(order, jobs, strict=True):
            attempts.extend(
                _attempts(failing.causes[why[i]], job, float(run_s[job]), float(level[i]), rng)
            )
    return sorted(attempts, key=lambda attempt: attempt.job)


def _long_enough(
    after_s: list[float], jobs: Ints, run_s: Floats, rng: np.random.Generator
) -> Iterator[int]:
    """Yield for each run time to failure, longest first, a job that runs at least so long, each job
    once."""
    waiting = jobs[np.argsort(run_s[jobs], kind="stable")].tolist()  # the longest is last
    able: list[int] = []
    for after, draw in zip(after_s, rng.random(len(after_s)).tolist(), strict=True):
        while waiting and run_s[waiting[-1]] >= after:
            able.append(waiting.pop())
        if able:
            at = int(draw * len(able))
            able[at], able[-1] = able[-1], able[at]
            yield able.pop()
        else:
            yield waiting.pop()


def _attempts(
    cause: Cause, job: int, run_s: float, level: float, rng: np.random.Generator
) -> Iterator[Attempt]:
    """Yield the failing attempts of one job: all for one cause, after about the same time, as often
    as is drawn."""
    left_s = run_s
    for level_now in _levels(level, int(rng.geometric(1 / cause.attempts)), rng):
        after_s = float(cause.after_s.at(np.array([level_now]))[0])
        work_s = max(1.0, min(float(round(after_s)), left_s))
        kept_s = (
            float(math.floor((work_s - 1) / CHECKPOINT_PERIOD_S) * CHECKPOINT_PERIOD_S)
            if cause.resumes
            else 0.0
        )
        left_s -= kept_s
        yield Attempt(job, work_s, kept_s, cause.kind)


def _levels(level: float, count: int, rng: np.random.Generator) -> list[float]:
    """Return the level of the first attempt, and near it those of the others, reflected at 0 and
    1."""
    others = np.abs(level + ATTEMPT_SPREAD * rng.standard_normal(count - 1))
    return [level, *np.where(others > 1, 2 - others, others).tolist()]
