"""First steps that a policy tries before it takes one, and what is known of each."""

from optsched.driver.playout import Playouts
from optsched.driver.snapshot import Snapshot
from optsched.driver.trial import Trial
from optsched.frozen import record
from optsched.round.plan import RoundSolution


@record
class Step:
    """A first step that was tried, and the round that it came from with what was solved there.

    Played forward it costs less by the share `lead` than where all that runs goes on, and at most
    the share `plan_gap` of it more than any plan for the jobs that are here; None where that was
    not asked. Both are shares of what can still be decided.
    """

    trial: Trial
    decided: tuple[Snapshot, RoundSolution] | None
    lead: float | None = None
    plan_gap: float | None = None


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


def as_played(step: Step, playouts: Playouts) -> Step:
    """Return the step with what the list rule starts beside it at once when it is played; of these
    starts nothing is proved."""
    return Step(step.trial, None) if playouts.begin(step.trial) else step


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
