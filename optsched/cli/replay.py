"""`optsched replay`: decide a past round again."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..duration import human
from .journal import Journal, clock_text, reads_journal
from .parts.arguments import option, time_option
from .parts.out import Json, Out, Parts, answers_aloud

if TYPE_CHECKING:
    from ..control.regret.replay import Replay
    from ..model import Placement
    from ..round.plan import RoundSolution

MOST_SHOWN = 30


@click.command("replay")
@click.argument("number", type=click.IntRange(min=1), metavar="ROUND")
@option("--solver NAME", "Use another solver: a name from `optsched list rounds`.")
@time_option("--budget TIME", "Wall-clock limit for deciding.", "budget_s", default="10s")
@option("--objective NAME", "Use another objective, as named by `optsched list objectives`.")
@answers_aloud
@reads_journal
def command(
    journal: Journal,
    number: int,
    solver: str | None,
    budget_s: float,
    objective: str | None,
    out: Out,
) -> int:
    """Decide a past ROUND of a controller again, offline, on the same instance and with the same
    blocked places.

    The output says which decisions are the same, which differ, and how values and proven gaps
    compare. The controller is not affected. Exit status: 0, even if decisions differ, 2 for bad
    input.

    \b
    optsched replay 17
    optsched replay 17 --solver exact --budget 1m
    """
    from ..control.regret.past import past_rounds
    from ..control.regret.replay import replay

    [past] = past_rounds(journal, number)
    replayed = replay(past, solver=solver, budget_s=budget_s, objective=objective)
    out.answer(lambda: _plain(replayed), lambda: _parts(replayed, len(past.instance.jobs)))
    return 0


def _plain(replayed: "Replay") -> Json:
    from ..files import plain

    def numbers(solution: "RoundSolution") -> Json:
        names = ("objective", "solver", "value", "bound", "wall_s", "fallback")
        gap = solution.gap if math.isfinite(solution.gap) else None
        return {"gap": gap, **{name: getattr(solution, name) for name in names}}

    return {
        "round": replayed.number,
        "sound": not replayed.faults,
        "faults": [str(fault) for fault in replayed.faults],
        "same": replayed.same,
        "different": [plain(difference) for difference in replayed.differences],
        "then": numbers(replayed.then),
        "now": numbers(replayed.now),
        "comparable": replayed.comparable,
        "then_gap": replayed.then_gap,
    }


def _parts(replayed: "Replay", jobs: int) -> Parts:
    from ..picture.facts import percent, quantity
    from ..picture.text import table

    figures: dict[str, Callable[[RoundSolution], str]] = {
        "objective": lambda solution: solution.objective,
        "solver": lambda solution: solution.solver,
        "value": lambda solution: quantity(solution.value, ""),
        "bound": lambda solution: quantity(solution.bound, ""),
        "gap": lambda solution: percent(solution.gap) if math.isfinite(solution.gap) else "-",
        "took": lambda solution: human(solution.wall_s or 0.0),
        "fallback": lambda solution: solution.fallback or "-",
    }
    rows = ((name, text(replayed.then), text(replayed.now)) for name, text in figures.items())
    differences = replayed.differences
    at = clock_text(replayed.then.now_s)
    yield (
        f"round {replayed.number} of {at}: {jobs:,} job{'s' * (jobs != 1)}, decided the same for "
        f"{replayed.same:,}, otherwise for {len(differences):,}"
    )
    yield from ("", table("", "then", "now", rows=rows, numeric=("then", "now")), "")
    if replayed.faults:
        yield f"the stored round is not sound: {replayed.faults[0]}"
    if not replayed.comparable:
        yield "the objectives differ, so values do not compare"
    elif replayed.then_gap is not None:
        gap = percent(replayed.then_gap)
        yield f"with all that is proven now, the round was at most {gap} from the best"
    if differences:
        differing = (
            (
                difference.job,
                _text(difference.then, difference.then_placement),
                _text(difference.now, difference.now_placement),
            )
            for difference in differences[:MOST_SHOWN]
        )
        heads = ("job", "then", "now")
        yield from ("", table(*heads, rows=differing, folded=heads))
        if len(differences) > MOST_SHOWN:
            yield f"and {len(differences) - MOST_SHOWN:,} more; --json shows all"


def _text(decision: str, placement: "Placement") -> str:
    nodes = (f"{slot.node} x {slot.gpus}" if slot.gpus else slot.node for slot in placement)
    return f"{decision} on {', '.join(nodes)}" if placement else decision
