"""Poses a round within a budget: the whole of it, or with few waiting jobs and none preempted."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..model.instance import Instance, Placement
from ..model.job import Job
from ..objectives import Objective
from .build import build
from .deadline import NEVER, Deadline, OutOfTimeError
from .model import RoundModel
from .plan import JobRound

POSED_BY = 0.6
"""The model must be ready when this share of the budget is over."""
FEW = 64
"""Waiting jobs of a round that cannot be posed in time. With so many it is posed whatever time that
takes: something must start."""


@dataclass(frozen=True, slots=True)
class Posed:
    """A model, why it is not the whole one, and the waiting jobs that it leaves out."""

    model: RoundModel
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
    budget_s: float,
) -> Posed:
    """The model of a round; where there is no time for that, of one in which all running jobs are
    kept and of those that wait only the `FEW` of the most weight for their remaining work may
    start."""
    waiting = _waiting(instance)
    deadline = Deadline(time.monotonic() + POSED_BY * budget_s) if len(waiting) > FEW else NEVER
    try:
        return Posed(
            build(
                instance,
                objective,
                round_s,
                refill=refill,
                blocked=blocked,
                reserved=reserved,
                keep=keep,
                deadline=deadline,
            )
        )
    except OutOfTimeError:
        pass
    waiting.sort(
        key=lambda job: (-job.weight / max(instance.remaining_s(job), 1e-9), job.submit_s, job.id)
    )
    names = {job.id for job in waiting[:FEW]} | instance.running_job.keys()
    some = replace(
        instance,
        jobs=tuple(job for job in instance.jobs if job.id in names),
        suspended=tuple(entry for entry in instance.suspended if entry.job in names),
    )
    return Posed(
        build(
            some,
            objective,
            round_s,
            refill=refill,
            blocked=blocked,
            reserved=reserved,
            keep=instance.running_job,
        ),
        f"{budget_s:g} s are too short for posing this round: running jobs go on, and {FEW:,} of "
        f"{len(waiting):,} "
        "waiting jobs were looked at",
        tuple(JobRound(id=job.id, decision="wait") for job in waiting[FEW:]),
    )


def _waiting(instance: Instance) -> list[Job]:
    """Jobs that could start now."""
    running, now_s = instance.running_job, instance.now_s
    return [
        job
        for job in instance.jobs
        if job.id not in running and job.submit_s <= now_s and not job.after
    ]
