"""`optsched solve`: an instance in, a checked plan with a proven gap out."""

from functools import partial
from pathlib import Path

import click

from ..plugins.options import read_pairs
from .parts.arguments import (
    check_outputs,
    count_option,
    flag_option,
    gantt_option,
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
from .parts.outputs import Outputs


@click.command("solve")
@instance_argument
@click.option(
    "--solver",
    default="auto",
    metavar="NAME",
    help="auto, or a name from `optsched list solvers` or `optsched list policies`.",
)
@objective_option
@time_option(
    "--time-limit",
    "time_limit_s",
    default="10s",
    help="Wall-clock limit, such as 90, 90s, 5m or 2h. The best plan found by then is the answer.",
)
@seed_option(help="Random seed. With --workers 1, the same seed gives the same plan.")
@count_option("--workers", help="Number of parallel workers of the solver.")
@pairs_option("solver")
@path_option(
    "--start",
    metavar="PLAN",
    help="Start from this plan, even one made for other jobs: whatever fits is used.",
)
@click.option(
    "--gap", type=share, default="0", metavar="G", help="Stop once this gap is proven, such as 1%."
)
@flag_option("--log", help="Show the log of the search on stderr.")
@path_option("-o", "--output", metavar="PLAN", help="Write the plan file.")
@gantt_option
@path_option(
    "--trace",
    metavar="CSV",
    help="Write how value and bound developed: one line per change, with the seconds since the "
    "start.",
)
@json_option
@quiet_option
def command(
    instance: str,
    solver: str,
    objective: str,
    time_limit_s: float,
    seed: int,
    workers: int | None,
    pairs: tuple[str, ...],
    start: Path | None,
    gap: float,
    log: bool,
    output: Path | None,
    gantt: Path | None,
    trace: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Plan the jobs of INSTANCE (a file, or - for stdin) and report how far the plan can be from
    the best one.

    Every plan is checked independently before it is shown. Ctrl-C ends the search and keeps the
    best plan so far. Exit status: 0 with a plan, 1 without one, 2 for bad input.

    \b
    optsched solve cluster.json
    optsched solve cluster.json --objective deadline,wct --time-limit 1m -o plan.json
    optsched solve cluster.json --start plan.json --gap 1% --gantt plan.html
    optsched solve cluster.json --solver srtf              what the policy SRTF would do
    optsched solve cluster.json --json | jq .objective.gap
    optsched generate --jobs 50 --gpus 32 | optsched solve -
    """
    from .. import engine, files, objectives
    from ..engine.trace import Trace
    from ..picture import can_draw

    objectives.parse(objective)
    options = read_pairs(pairs)
    check_outputs({"-o": output, "--gantt": gantt, "--trace": trace}, instance)
    draw = None if gantt is None else can_draw(gantt)
    loaded = load(instance)
    initial = None if start is None else files.read_plan(start)[1]
    from .parts.progress import live_progress

    with live_progress(objective, time_limit_s, wanted=not quiet and not log) as live:
        seen = None if trace is None else Trace(live)
        solution = engine.solve(
            loaded,
            objective,
            solver=solver,
            time_limit_s=time_limit_s,
            seed=seed,
            workers=workers,
            options=options,
            checked=True,
            on_progress=seen or live,
            initial=initial,
            gap=gap,
            log=partial(click.echo, err=True) if log else False,
        )
    out = Outputs()
    out.write("plan", output, lambda path: files.write_text(path, files.dump_plan(solution)))
    if seen is not None:
        out.write("trace", trace, lambda path: files.write_text(path, seen.as_csv()))
    if draw is not None and solution.plan is not None:
        out.write("picture", gantt, partial(draw, loaded, solution))
    if as_json:
        click.echo(files.dump_plan(solution), nl=False)
    elif not quiet:
        from ..picture.text_solution import solution_parts
        from .parts.table import show, width

        show(*solution_parts(loaded, solution, width()))
    out.tell(quiet=quiet or as_json)
    return 0 if solution.plan is not None else 1
