"""Poses a round within a budget: the whole of it, or with few waiting jobs and none preempted, or
only with what runs already."""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from heapq import nsmallest
from itertools import islice

from ..frozen import record
from ..model import Instance, Job
from .deadline import NEVER, Deadline, OutOfTimeError
from .model import RoundModel

POSED_BY, FEW_POSED_BY = 0.6, 0.7
"""The model must be ready when this share of the budget is over, and that of few jobs by when."""
FEW = 64
"""Waiting jobs of a round that cannot be posed in time. A round with so few jobs is posed whatever
time that takes: something must start."""


@record
class Posed:
    """A model, None where there was no time for any, and why it is not the whole one; then it is
    one of the jobs `few` alone, and all others stay as they are."""

    model: RoundModel | None
    shortfall: str | None = None
    few: frozenset[str] | None = None


def pose(
    instance: Instance,
    build_by: Callable[..., RoundModel],
    keep: Collection[str],
    started_s: float,
    budget_s: float,
) -> Posed:
    """Return the model of a round, made by `build_by`; where there is no time for that, of one in
    which all running jobs go on and of those that wait only the `FEW` of the most weight for their
    remaining work may start, each on GPUs of its own; where there is none for that either, no
    model."""
    short = f"{budget_s:g} s are too short for posing this round: running jobs go on, and"
    last = Deadline(started_s + FEW_POSED_BY * budget_s)
    if len(instance.jobs) > FEW and last.left_s() < 0:
        return Posed(None, f"{short} nothing starts")
    with suppress(OutOfTimeError):
        soon = len(instance.running) + len([*islice(_waiting(instance), FEW + 1)]) > FEW
        deadline = Deadline(started_s + POSED_BY * budget_s) if soon else NEVER
        return Posed(build_by(instance, keep=keep, deadline=deadline))
    waiting = [*_waiting(instance)]
    few = nsmallest(
        FEW,
        waiting,
        key=lambda job: (-job.weight / max(instance.remaining_s(job), 1e-9), job.submit_s, job.id),
    )
    names = frozenset(job.id for job in few)
    suspended = tuple(entry for entry in instance.suspended if entry.job in names)
    some = replace(instance, jobs=tuple(few), running=(), suspended=suspended)
    with suppress(OutOfTimeError):
        around = [(instance.job[entry.job], entry) for entry in instance.running]
        return Posed(
            build_by(some, around=around, deadline=last),
            f"{short} {FEW:,} of {len(waiting):,} waiting jobs were looked at",
            names,
        )
    return Posed(None, f"{short} nothing starts")


def _waiting(instance: Instance) -> Iterator[Job]:
    """Return the jobs that could start now."""
    running, now_s = instance.running_job, instance.now_s
    return (
        job
        for job in instance.jobs
        if job.id not in running and job.submit_s <= now_s and not job.after
    )
