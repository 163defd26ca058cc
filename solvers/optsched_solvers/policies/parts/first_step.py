"""First steps that a policy tries before it takes one, and what is known of each."""

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from optsched.driver import Fit, Reservations, Trial, World
from optsched.driver.playout import Playouts
from optsched.driver.snapshot import Snapshot
from optsched.errors import listed
from optsched.frozen import record
from optsched.noun import number_of
from optsched.plugins.policy import Policy
from optsched.round.plan import RoundSolution

from .claiming import beside_claims, claim_what_they_leave
from .preemptive import Preemptive

MOST_NAMED = 3
"""So many jobs for which GPUs are kept are named."""


@record
class Step:
    """A first step that was tried, and the round that it came from with what was solved there.

    Played forward it costs less by the share `lead` than where all that runs goes on, and at most
    the share `plan_gap` of it more than any plan for the jobs that are here; None where that was
    not asked. Both are shares of what can still be decided. Until the next decision places are
    kept for the jobs that are `awaited`.
    """

    trial: Trial
    decided: tuple[Snapshot, RoundSolution] | None
    lead: float | None = None
    plan_gap: float | None = None
    awaited: tuple[str, ...] = ()


@record
class RoundRecord:
    """One decision: when, of how many jobs, how good and how sure its starts are (None where they
    are those of a plan, not of a round), and what is known of the plan that it leads to (see
    `Step`)."""

    now_s: float
    jobs: int
    value: float | None
    bound: float | None
    gap: float | None
    wall_s: float | None
    lead: float | None
    plan_gap: float | None


class Planning(Policy, Protocol):
    """A policy that says after a decision where jobs start once others have left."""

    planned: dict[str, Fit]


def by_rule(
    world: World, pinned: Collection[str], reservations: Reservations, rule: Preemptive | Planning
) -> Step:
    """Return what a new rule would do now beside what is claimed (and, by a preemptive one,
    reserved), if `pinned` go on. Places that it plans are kept for their jobs; what the victims of
    a preemptive one leave the shortest jobs claim."""
    trial, planned = Trial(world, pinned), {}
    with beside_claims(trial):
        if isinstance(rule, Preemptive):
            rule.reservations, rule.reserves = reservations, False
            rule.decide(trial)
            if trial.victims:
                claim_what_they_leave(trial)
        else:
            rule.decide(trial)
            planned = rule.planned
    for job_id, fit in planned.items():
        trial.claim(job_id, *fit)
    return Step(trial, None, awaited=tuple(planned))


def as_played(step: Step, playouts: Playouts) -> Step:
    """Return the step with what the list rule starts beside it at once when it is played; of these
    starts nothing is proved."""
    return replace(step, decided=None) if playouts.begin(step.trial) else step


def notes_of(step: Step) -> list[str]:
    """Return what is to be said of the plan that a step leads to."""
    notes = []
    if step.lead is not None:
        preempting = len(step.trial.victims)
        notes.append(
            f"looked ahead: {preempting} jobs are preempted, all others that run go on; played "
            f"forward that costs {step.lead:.2%} less than preempting nobody"
            if preempting
            else "looked ahead: preempting nobody costs least"
        )
        if step.awaited:
            names = step.awaited[:MOST_NAMED]
            if more := len(step.awaited) - len(names):
                names = (*names, number_of(more, "other job"))
            notes.append(f"GPUs are kept for {listed(names)} until the next decision")
        notes.append(
            "value, bound and gap are those of the starts beside what goes on"
            if step.decided
            else "nothing is proved of the starts by themselves: they are those of the plan"
        )
    if step.plan_gap is not None:
        notes.append(
            f"of what the jobs that are here cost from now on in the plan that this leads to, "
            f"no plan can save more than {step.plan_gap:.1%}"
        )
    return notes
