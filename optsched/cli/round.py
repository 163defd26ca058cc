"""`optsched round`: who runs until the next round, with a proven gap."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .parts.arguments import (
    check_outputs,
    flag_option,
    instance_argument,
    load,
    objective_option,
    option,
    pairs_option,
    path_option,
    seed_option,
    time_option,
)
from .parts.duration import share
from .parts.out import Out, answers


@click.command("round")
@instance_argument
@time_option("--length TIME", "Time until the next round.", "round_s", default="300s")
@time_option("--budget TIME", "Wall-clock limit for deciding.", "budget_s", default="1s")
@option("--solver NAME", "A name from `optsched list rounds`.", default="price")
@objective_option
@option("--gap G", "Stop once this gap is proven, such as 0.1% or 0.001.", type=share)
@flag_option(
    "--fixed", "Start nothing between rounds: what becomes free stays idle until the next."
)
@path_option("--last ROUND", "The previous round file, whose prices are a good start.")
@seed_option()
@pairs_option("solver")
@path_option("-o, --output ROUND", "Write the round file.")
@answers
def command(
    instance: str,
    objective: str,
    gap: float | None,
    fixed: bool,
    last: Path | None,
    output: Path | None,
    out: Out,
    **search: Any,
) -> int:
    """Decide which jobs of INSTANCE (a file, or - for stdin) run until the next round.

    The answer says who starts, continues, waits, is preempted or moved, how much more any other
    round could be worth, and what each capacity costs. Every round is verified on real nodes before
    it is shown. Jobs that can never run are named and left out. Exit status: 0 with a round, 2 for
    bad input.

    \b
    optsched round cluster.json
    optsched round cluster.json --length 1m --budget 100ms -o round.json
    optsched round later.json --last round.json --json | jq .objective.gap
    optsched explain cluster.json round.json
    """
    from .. import files, objectives
    from ..picture.text_round import round_parts
    from ..round.decide import DEFAULT_GAP, decide
    from ..round.files import dump_round, read_round

    goal = objectives.parse(objective)
    check_outputs({"-o": output}, instance)
    before = None if last is None else read_round(last)
    loaded = load(instance, now_only=True)
    solution = decide(
        loaded,
        goal,
        refill=not fixed,
        gap=DEFAULT_GAP if gap is None else gap,
        last=before,
        **search,
    )
    if output is not None or out.as_json:
        solution = replace(solution, instance_hash=files.instance_hash(loaded))
    if output is not None:
        files.write_text(output, dump_round(solution))
    out.answer(lambda: dump_round(solution), lambda: round_parts(loaded, solution))
    if output is not None:
        out.say(f"round: {output}")
    return 0
