"""`optsched round`: who runs until the next round, with a proven gap."""

from dataclasses import replace
from pathlib import Path

import click

from ..plugins.options import read_pairs
from .parts.arguments import (
    check_outputs,
    flag_option,
    instance_argument,
    json_option,
    load,
    objective_option,
    pairs_option,
    path_option,
    quiet_option,
    seed_option,
    time_option,
)
from .parts.duration import share


@click.command("round")
@instance_argument
@time_option("--length", "round_s", default="300s", help="Time until the next round.")
@time_option("--budget", "budget_s", default="1s", help="Wall-clock limit for deciding.")
@click.option(
    "--solver", default="price", metavar="NAME", help="A name from `optsched list rounds`."
)
@objective_option
@click.option(
    "--gap", type=share, metavar="G", help="Stop once this gap is proven, such as 0.1% or 0.001."
)
@flag_option(
    "--fixed", help="Start nothing between rounds: what becomes free stays idle until the next."
)
@path_option(
    "--last", metavar="ROUND", help="The previous round file, whose prices are a good start."
)
@seed_option()
@pairs_option("solver")
@path_option("-o", "--output", metavar="ROUND", help="Write the round file.")
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
    from ..round.decide import DEFAULT_GAP, decide
    from ..round.files import dump_round, read_round

    goal = objectives.parse(objective)
    options = read_pairs(pairs)
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
        from ..picture.text_round import round_parts
        from .parts.table import show

        show(*round_parts(loaded, solution))
        if output is not None:
            click.echo(f"round: {output}")
    return 0
