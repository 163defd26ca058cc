"""`optsched replay`: decide a past round again."""

import math
from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from .journal import clock_text, reads_journal
from .parts.arguments import json_option, time_option
from .parts.outputs import print_json

if TYPE_CHECKING:
    from rich.table import Table

    from ..control.journal.journal import Journal
    from ..control.regret.replay import Difference, Replay
    from ..model.instance import Placement
    from ..round.plan import RoundSolution

MOST_SHOWN = 30


@click.command("replay")
@click.argument("number", type=click.IntRange(min=1), metavar="ROUND")
@click.option(
    "--solver", metavar="NAME", help="Use another solver: a name from `optsched list rounds`."
)
@time_option("--budget", "budget_s", default="10s", help="Wall-clock limit for deciding.")
@click.option(
    "--objective",
    metavar="NAME",
    help="Use another objective, as named by `optsched list objectives`.",
)
@json_option
@reads_journal
def command(
    journal: "Journal",
    number: int,
    solver: str | None,
    budget_s: float,
    objective: str | None,
    as_json: bool,
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
    found = replay(past, solver=solver, budget_s=budget_s, objective=objective)
    if as_json:
        print_json(_plain(found))
    else:
        _show(found, len(past.instance.jobs))
    return 0


def _plain(found: "Replay") -> dict[str, Any]:
    from ..files import plain

    def numbers(one: "RoundSolution") -> dict[str, Any]:
        return {
            "objective": one.objective,
            "solver": one.solver,
            "value": one.value,
            "bound": one.bound,
            "gap": one.gap if math.isfinite(one.gap) else None,
            "wall_s": one.wall_s,
            "fallback": one.fallback,
        }

    return {
        "round": found.number,
        "sound": not found.faults,
        "faults": [str(fault) for fault in found.faults],
        "same": found.same,
        "different": [plain(difference) for difference in found.differences],
        "then": numbers(found.then),
        "now": numbers(found.now),
        "comparable": found.comparable,
        "then_gap": found.then_gap,
    }


def _show(found: "Replay", jobs: int) -> None:
    from ..picture.facts import percent, quantity
    from .parts.table import show, table

    then, now = found.then, found.now
    heads = table("", "then", "now", numeric=("then", "now"))
    for name, a, b in (
        ("objective", then.objective, now.objective),
        ("solver", then.solver, now.solver),
        ("value", quantity(then.value, ""), quantity(now.value, "")),
        ("bound", quantity(then.bound, ""), quantity(now.bound, "")),
        (
            "gap",
            percent(then.gap) if math.isfinite(then.gap) else "-",
            percent(now.gap) if math.isfinite(now.gap) else "-",
        ),
        ("took", human(then.wall_s or 0.0), human(now.wall_s or 0.0)),
        ("fallback", then.fallback or "-", now.fallback or "-"),
    ):
        heads.add_row(name, a, b)
    lines: list[str | Table] = [
        f"round {found.number} of {clock_text(then.now_s)}: {jobs:,} jobs, decided the same for "
        f"{found.same:,}, otherwise for {len(found.differences):,}",
        "",
        heads,
        "",
    ]
    if found.faults:
        lines.append(f"the stored round is not sound: {found.faults[0]}")
    if not found.comparable:
        lines.append("the objectives differ, so values do not compare")
    elif found.then_gap is not None:
        lines.append(
            f"with all that is proven now, the round was at most {percent(found.then_gap)} from "
            "the best"
        )
    show(*lines)
    if found.differences:
        rows = table("job", "then", "now", folded=("job", "then", "now"))
        for difference in found.differences[:MOST_SHOWN]:
            rows.add_row(difference.job, *_both(difference))
        show("", rows)
        if len(found.differences) > MOST_SHOWN:
            click.echo(f"and {len(found.differences) - MOST_SHOWN:,} more; --json shows all")


def _both(one: "Difference") -> tuple[str, str]:
    return _text(one.then, one.then_placement), _text(one.now, one.now_placement)


def _text(decision: str, placement: "Placement") -> str:
    where = ", ".join(
        f"{slot.node} x {slot.gpus}" if slot.gpus else slot.node for slot in placement
    )
    return f"{decision} on {where}" if where else decision
