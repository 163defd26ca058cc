"""`optsched round`: who runs until the next round, with a proven gap."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..model.instance import Instance
from ..model.plan import Decision
from .parts.arguments import (
    check_outputs,
    instance_argument,
    json_option,
    load,
    objective_option,
    quiet_option,
    solver_options,
)
from .parts.duration import duration, share

if TYPE_CHECKING:
    from rich.table import Table

    from ..round.plan import RoundSolution

CHANGES_FIRST: tuple[Decision, ...] = (
    "preempt",
    "migrate",
    "resize",
    "start",
    "resume",
    "continue",
    "wait",
)
MOST_PRICES = 20


@click.command("round")
@instance_argument
@click.option(
    "--length",
    "round_s",
    type=duration,
    default="300s",
    show_default=True,
    metavar="TIME",
    help="How long until jobs are looked at again.",
)
@click.option(
    "--budget",
    "budget_s",
    type=duration,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Wall clock for deciding.",
)
@click.option(
    "--solver",
    default="price",
    show_default=True,
    metavar="NAME",
    help="A name of `optsched list rounds`.",
)
@objective_option
@click.option(
    "--gap", type=share, metavar="G", help="Stop once this gap is proven, as 0.1% or 0.001."
)
@click.option(
    "--fixed",
    is_flag=True,
    help="Nothing starts between rounds: what comes free stays idle until the next.",
)
@click.option(
    "--last",
    type=click.Path(path_type=Path),
    metavar="ROUND",
    help="The round file before this one: its prices are a good start.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed.",
)
@click.option(
    "--option",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the solver's own; may be repeated.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="ROUND", help="Write the round file."
)
@json_option
@quiet_option
def command(
    instance: str,
    round_s: float,
    budget_s: float,
    solver: str,
    objective: str,
    gap: float | None,
    fixed: bool,
    last: Path | None,
    seed: int,
    pairs: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Decide which jobs of INSTANCE (a file, or - for stdin) run now, until jobs are looked at
    again.

    Who starts, continues, waits, is preempted or moved, what that is worth at least compared with
    the best there could be, and what each capacity costs. Every round is verified on real nodes
    before it is shown. Jobs that can never run are named and left out. Exit status 0 with a round,
    2 for bad input.

    \b
    optsched round cluster.json
    optsched round cluster.json --length 1m --budget 100ms -o round.json
    optsched round later.json --last round.json --json | jq .objective.gap
    optsched explain cluster.json round.json
    """
    from .. import files, objectives
    from ..round.decide import DEFAULT_GAP, decide
    from ..round.files import dump_round, read_round

    goal = objectives.parse(objective)
    options = solver_options(pairs)
    check_outputs({"-o": output}, instance)
    before = None if last is None else read_round(last)
    loaded = load(instance, accept_never=True)
    solution = decide(
        loaded,
        goal,
        round_s=round_s,
        refill=not fixed,
        solver=solver,
        budget_s=budget_s,
        gap=DEFAULT_GAP if gap is None else gap,
        seed=seed,
        last=before,
        options=options,
    )
    if output is not None or as_json:
        solution = replace(solution, instance_hash=files.instance_hash(loaded))
    if output is not None:
        files.write_text(output, dump_round(solution))
    if as_json:
        click.echo(dump_round(solution), nl=False)
    elif not quiet:
        print_round(loaded, solution)
        if output is not None:
            click.echo(f"round: {output}")
    return 0


def print_round(instance: Instance, solution: "RoundSolution") -> None:
    """The round as a person reads it."""
    from .parts.table import MOST_JOBS, show

    parts: list[str | Table] = [*_summary(instance, solution)]
    priced = [row for row in solution.prices if row.price > 0]
    if solution.prices:
        parts += ["", _prices(solution)]
        more = len(solution.prices) - min(MOST_PRICES, len(solution.prices))
        if more:
            parts.append(
                f"and {more:,} more, {len(priced):,} of all cost something; -o and --json show all"
            )
    if solution.jobs:
        parts += ["", _jobs(solution)]
        more = len(solution.jobs) - MOST_JOBS
        if more > 0:
            parts.append(f"and {more:,} more; -o and --json show all")
    show(*parts)


def _summary(instance: Instance, solution: "RoundSolution") -> list[str]:
    from ..duration import human
    from ..physics.catalogue import catalogue_of
    from ..physics.unschedulable import why_never
    from ..picture.facts import quantity
    from .parts.table import gap_text

    between = (
        "what comes free is given on at once"
        if solution.refill
        else "what comes free stays idle until then"
    )
    wall = "" if solution.wall_s is None else f", in {human(solution.wall_s)}"
    rows = [
        ("status", STATUS[solution.status]),
        ("value", f"{quantity(solution.value, '')} ({solution.objective}; more is better)"),
        ("bound", quantity(solution.bound, "")),
        ("gap", gap_text(solution.gap, solution.status)),
        ("proved by", solution.bound_source),
        ("solver", f"{solution.solver}, seed {solution.seed}{wall}"),
        ("round", f"{human(solution.round_s)}, {between}"),
    ]
    if solution.fallback:
        rows.append(("fallback", solution.fallback))
    rows.extend(("note", note) for note in solution.notes)
    counts = Counter(entry.decision for entry in solution.jobs)
    if counts:
        rows.append(
            ("now", ", ".join(f"{counts[name]:,} {name}" for name in CHANGES_FIRST if counts[name]))
        )
    later = len(instance.jobs) - len(solution.jobs) - len(solution.never)
    if later:
        rows.append(("later", f"{later:,} not released yet or waiting for others to complete"))
    for job in solution.never[:MOST_NEVER]:
        rows.append(("never", f"{job}: {why_never(catalogue_of(instance), instance.job[job])}"))
    if len(solution.never) > MOST_NEVER:
        rows.append(("never", f"and {len(solution.never) - MOST_NEVER:,} more"))
    wide = max(len(name) for name, _ in rows) + 2
    return [
        f"{instance.name}: {len(instance.jobs):,} jobs, {instance.cluster.total_gpus:,} GPUs on "
        f"{len(instance.cluster.nodes):,} nodes, {len(instance.running):,} running now",
        *(f"  {name:<{wide}}{text}" for name, text in rows),
    ]


STATUS = {
    "optimal": "optimal: no round of this instance is worth more",
    "feasible": "feasible: a checked round, not proven best",
}
MOST_NEVER = 5


def _prices(solution: "RoundSolution") -> "Table":
    """What each capacity costs, those that cost something first."""
    from ..picture.facts import quantity
    from .parts.table import table

    found = table(
        "capacity", "there is", "used", "price of one", numeric=("there is", "used", "price of one")
    )
    for row in sorted(solution.prices, key=lambda row: row.price <= 0)[:MOST_PRICES]:
        price = quantity(row.price, "") if row.price > 0 else "-"
        found.add_row(row.name, quantity(row.capacity, ""), quantity(row.used, ""), price)
    return found


def _jobs(solution: "RoundSolution") -> "Table":
    """The first jobs, those for which something changes before the others."""
    from .parts.table import MOST_JOBS, short, table

    found = table("job", "now", "GPUs", "nodes", folded=("job", "nodes"))
    for entry in sorted(solution.jobs, key=lambda entry: CHANGES_FIRST.index(entry.decision))[
        :MOST_JOBS
    ]:
        mode = entry.mode
        gpus = (
            f"{mode.gpus} {mode.gpu_type or ''}".strip() if mode is not None and mode.gpus else "-"
        )
        found.add_row(
            entry.id, entry.decision, gpus, short(tuple(slot.node for slot in entry.placement))
        )
    return found
