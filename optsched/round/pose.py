"""Poses a round within a budget: the whole of it, or with few waiting jobs and none preempted, or
only with what runs already."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest

from ..model.instance import Instance, Placement
from ..model.job import Job
from ..objectives import Objective
from .build import build
from .deadline import NEVER, Deadline, OutOfTimeError
from .model import RoundModel
from .plan import JobRound

POSED_BY, FEW_POSED_BY = 0.6, 0.8
"""The model must be ready when this share of the budget is over, and that of few jobs by when."""
FEW = 64
"""Waiting jobs of a round that cannot be posed in time. A round with so few jobs is posed whatever
time that takes: something must start."""


@dataclass(frozen=True, slots=True)
class Posed:
    """A model, None where there was no time for any; why it is not the whole one, and the waiting
    jobs that it leaves out."""

    model: RoundModel | None
    shortfall: str | None = None
    left_out: tuple[JobRound, ...] = ()


def pose(
    instance: Instance,
    objective: Objective,
    round_s: float,
    *,
    refill: bool,
    blocked: Sequence[Placement],
    reserved: Sequence[tuple[Placement, float]],
    keep: Collection[str],
    started_s: float,
    budget_s: float,
) -> Posed:
    """Return the model of a round; where there is no time for that, of one in which all running
    jobs are kept and of those that wait only the `FEW` of the most weight for their remaining work
    may start, each on GPUs of its own; where there is none for that either, no model."""
    short = f"{budget_s:g} s are too short for posing this round: running jobs go on, and"
    last = Deadline(started_s + FEW_POSED_BY * budget_s)
    if len(instance.jobs) > FEW and last.left_s() < 0:
        return Posed(None, f"{short} nothing starts")
    waiting = _waiting(instance)
    soon = len(waiting) + len(instance.running) > FEW
    pose_by = partial(
        build,
        objective=objective,
        round_s=round_s,
        refill=refill,
        blocked=blocked,
        reserved=reserved,
    )
    with suppress(OutOfTimeError):
        deadline = Deadline(started_s + POSED_BY * budget_s) if soon else NEVER
        return Posed(pose_by(instance, keep=keep, deadline=deadline))
    few = nsmallest(
        FEW,
        waiting,
        key=lambda job: (-job.weight / max(instance.remaining_s(job), 1e-9), job.submit_s, job.id),
    )
    names = {job.id for job in few}
    left_out = tuple(JobRound(id=job.id, decision="wait") for job in waiting if job.id not in names)
    names.update(instance.running_job)
    some = replace(
        instance,
        jobs=tuple(job for job in instance.jobs if job.id in names),
        suspended=tuple(entry for entry in instance.suspended if entry.job in names),
    )
    with suppress(OutOfTimeError):
        return Posed(
            pose_by(some, keep=instance.running_job, sharing=False, deadline=last),
            f"{short} {FEW:,} of {len(waiting):,} waiting jobs were looked at",
            left_out,
        )
    return Posed(None, f"{short} nothing starts")


def _waiting(instance: Instance) -> list[Job]:
    """Jobs that could start now."""
    running, now_s = instance.running_job, instance.now_s
    return [
        job
        for job in instance.jobs
        if job.id not in running and job.submit_s <= now_s and not job.after
    ]
