"""A past round solved again, and what would be decided otherwise."""

import math

from ...errors import InputError
from ...frozen import frozen
from ...model import Decision, Mode, Placement
from ...objectives import parse
from ...round.decide import decide
from ...round.plan import RoundSolution
from ...round.verify import verify_round
from ...verify.violation import Violation
from .past import PastRound


@frozen
class Difference:
    """A job about which the two decide otherwise."""

    job: str
    then: Decision
    then_mode: Mode | None
    then_placement: Placement
    now: Decision
    now_mode: Mode | None
    now_placement: Placement


@frozen
class Replay:
    """A round `then` and solved again `now`. `faults` are those of the stored round by the
    independent checker. Values compare only under the same objective (`comparable`); what is proven
    now is a bound for then as well: `then_gap` is the gap of the old value from the better of both
    bounds."""

    number: int
    then: RoundSolution
    now: RoundSolution
    faults: tuple[Violation, ...]
    same: int
    differences: tuple[Difference, ...]
    comparable: bool
    then_gap: float | None


def replay(
    past: PastRound,
    *,
    solver: str | None = None,
    budget_s: float = 10.0,
    objective: str | None = None,
) -> Replay:
    """Solve a past round again, from nothing, with the same or another solver, budget and
    objective.

    Raises InputError for an unknown solver or objective.
    """
    then = past.solution
    if not (math.isfinite(budget_s) and budget_s > 0):
        raise InputError(f"budget of {budget_s} s: it must be a positive number of seconds")
    goal = parse(objective or then.objective)
    now = decide(
        past.instance,
        goal,
        round_s=then.round_s,
        refill=then.refill,
        solver=solver or ("price" if then.by_policy else then.solver),
        budget_s=budget_s,
        seed=then.seed,
        blocked=past.blocked,
    )
    before = {entry.id: entry for entry in then.jobs}
    differences = []
    for entry in now.jobs:
        old = before.get(entry.id)
        if old is None or (
            old.decision == entry.decision
            and old.placement == entry.placement
            and (old.mode == entry.mode)
        ):
            continue
        differences.append(
            Difference(
                job=entry.id,
                then=old.decision,
                then_mode=old.mode,
                then_placement=old.placement,
                now=entry.decision,
                now_mode=entry.mode,
                now_placement=entry.placement,
            )
        )
    # What is proved of a tier holds given what the tiers above it hold, which may be otherwise now.
    comparable = goal.name == then.objective and not (then.by_policy or then.tiers)
    bound = min(then.bound, now.bound)
    return Replay(
        number=past.number,
        then=then,
        now=now,
        faults=verify_round(past.instance, then.jobs, past.blocked),
        same=len(now.jobs) - len(differences),
        differences=tuple(differences),
        comparable=comparable,
        then_gap=max(0.0, bound - then.value) / abs(then.value)
        if comparable and then.value
        else None,
    )
