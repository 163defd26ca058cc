"""Poses a round within a budget: the whole of it, else with fewer waiting jobs, else not at all."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..instance import Instance, Placement
from ..job import Job
from ..objectives import Objective
from .build import build
from .deadline import Deadline, OutOfTimeError
from .model import RoundModel
from .plan import UNPROVED, JobRound, RoundSolution

POSED_BY = ((1, 0.6), (16, 0.8))
"""With one in so many of the waiting jobs the model must be ready when this share of the budget is over."""
GIVEN_UP = 0.7
"""Nor is any part posed when so much of the budget is over."""
LEAST_S = 0.06
"""Time for the first of these however short the budget: a round of a few jobs is always posed."""


@dataclass(frozen=True, slots=True)
class Posed:
    """A model, why it is not the whole one, and the ids of the waiting jobs that it leaves out."""

    model: RoundModel
    shortfall: str | None
    left_out: tuple[str, ...]

    def waiting(self) -> tuple[JobRound, ...]:
        """The decisions of those left out."""
        return tuple(JobRound(id=job_id, decision="wait") for job_id in self.left_out)


def pose(
    instance: Instance, objective: Objective, round_s: float, *, refill: bool, blocked: Sequence[Placement],
    reserved: Sequence[tuple[Placement, float]], keep: Collection[str], budget_s: float,
) -> Posed | None:
    """The model of a round, or None where there is no time for any. A part of the waiting jobs are those of the most
    weight for their remaining work."""
    started_s = time.monotonic()
    waiting, taken = [], []  # type: list[Job], list[Job]
    for part, share in POSED_BY:
        some = instance
        if part > 1:
            waiting = _by_density(instance)
            taken = waiting[: len(waiting) // part]
            names = {job.id for job in taken} | instance.running_job.keys()
            some = replace(
                instance, jobs=tuple(job for job in instance.jobs if job.id in names),
                suspended=tuple(entry for entry in instance.suspended if entry.job in names),
            )
        deadline = Deadline(started_s + share * max(budget_s, LEAST_S / POSED_BY[0][1]))
        try:
            model = build(
                some, objective, round_s, refill=refill, blocked=blocked, reserved=reserved, keep=keep,
                deadline=deadline,
            )
        except OutOfTimeError:
            if time.monotonic() - started_s > GIVEN_UP * max(budget_s, LEAST_S):
                return None
            continue
        if some is instance:
            return Posed(model, None, ())
        return Posed(
            model, f"{_too_short(budget_s)}: only {len(taken):,} of {len(waiting):,} waiting jobs were looked at",
            tuple(job.id for job in waiting[len(taken):]),
        )
    return None


def nothing_new(
    instance: Instance, objective: Objective, round_s: float, *, refill: bool, solver: str, seed: int, budget_s: float
) -> RoundSolution:
    """The round in which every running job goes on and none starts, of which nothing is proved."""
    going_on = tuple(
        JobRound(id=entry.job, decision="continue", mode=entry.mode, placement=entry.placement)
        for entry in instance.running
    )
    return RoundSolution(
        instance_name=instance.name, instance_hash=None, now_s=instance.now_s, round_s=round_s, refill=refill,
        objective=objective.name, solver=solver, seed=seed,
        jobs=(*going_on, *(JobRound(id=job.id, decision="wait") for job in _waiting(instance))),
        value=0.0, bound=UNPROVED, bound_source="nothing", prices=(),
        fallback=f"{_too_short(budget_s)}: running jobs go on and none starts",
    )


def _too_short(budget_s: float) -> str:
    return f"{budget_s:g} s are too short for posing this round"


def _waiting(instance: Instance) -> list[Job]:
    """Jobs that could start now."""
    running, now_s = instance.running_job, instance.now_s
    return [job for job in instance.jobs if job.id not in running and job.submit_s <= now_s and not job.after]


def _by_density(instance: Instance) -> list[Job]:
    """Those of the most weight for their remaining work first."""
    return sorted(
        _waiting(instance),
        key=lambda job: (-job.weight / max(instance.remaining_s(job), 1e-9), job.submit_s, job.id),
    )
