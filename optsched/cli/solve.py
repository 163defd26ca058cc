"""`optsched solve`: an instance in, a checked plan with a proven gap out."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from .parts.arguments import (
    check_outputs,
    count_option,
    flag_option,
    gantt_option,
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
from .parts.out import Out, answers, width


@click.command("solve")
@instance_argument
@option(
    "--solver NAME",
    "auto, or a name from `optsched list solvers` or `optsched list policies`.",
    default="auto",
)
@objective_option
@time_option(
    "--time-limit TIME",
    "Wall-clock limit, such as 90, 90s, 5m or 2h. The best plan found by then is the answer.",
    "time_limit_s",
    default="10s",
)
@seed_option(help="Random seed. With --workers 1, the same seed gives the same plan.")
@count_option("--workers N", "Number of parallel workers of the solver.")
@pairs_option("solver")
@path_option(
    "--start PLAN", "Start from this plan, even one made for other jobs: whatever fits is used."
)
@option("--gap G", "Stop once this gap is proven, such as 1%.", type=share, default="0")
@flag_option("--ignore-priorities", "Plan as if all jobs had one priority.")
@flag_option("--log", "Show the log of the search on stderr.")
@path_option("-o, --output PLAN", "Write the plan file.")
@path_option(
    "--certificate FILE",
    "Write what proves the bound, with objective wct, for `optsched verify-bound`.",
)
@gantt_option
@path_option(
    "--trace CSV",
    "Write how value and bound developed: one line per change, with the seconds since the start.",
)
@answers
def command(
    instance: str,
    objective: str,
    start: Path | None,
    log: bool,
    output: Path | None,
    certificate: Path | None,
    gantt: Path | None,
    trace: Path | None,
    out: Out,
    **search: Any,
) -> int:
    """Plan the jobs of INSTANCE (a file, or - for stdin) and report how far the plan can be from
    the best one.

    Every plan is checked independently before it is shown. Ctrl-C ends the search and keeps the
    best plan so far. Exit status: 0 with a plan, 1 without one, 2 for bad input.

    \b
    optsched solve cluster.json
    optsched solve cluster.json --objective deadline,wct --time-limit 1m -o plan.json
    optsched solve cluster.json --start plan.json --gap 1% --gantt plan.html
    optsched solve cluster.json --certificate bound.json
    optsched solve cluster.json --solver srtf              what the policy SRTF would do
    optsched solve cluster.json --json | jq .objective.gap
    optsched generate --jobs 50 --gpus 32 | optsched solve -
    """
    from .. import engine, files, objectives
    from ..engine.trace import Trace
    from ..picture import can_draw
    from ..picture.text_solution import solution_parts

    objectives.parse(objective)
    check_outputs(
        {"-o": output, "--certificate": certificate, "--gantt": gantt, "--trace": trace}, instance
    )
    draw = None if gantt is None else can_draw(gantt)
    loaded = load(instance)
    initial = None if start is None else files.read_plan(start)[1]
    from .parts.progress import live_progress

    with live_progress(objective, search["time_limit_s"], wanted=not (out.quiet or log)) as live:
        certificates: list[files.certificate.Certificate] = []
        seen = None if trace is None else Trace(live)
        solution = engine.solve(
            loaded,
            objective,
            checked=True,
            on_progress=seen or live,
            initial=initial,
            log=partial(click.echo, err=True) if log else False,
            on_certificate=None if certificate is None else certificates.append,
            **search,
        )
    out.write("plan", output, lambda path: files.write_text(path, files.dump_plan(solution)))
    for own in certificates:
        text = files.certificate.dump_certificate(own)
        out.write("certificate", certificate, partial(files.write_text, text=text))
    if seen is not None:
        out.write("trace", trace, lambda path: files.write_text(path, seen.as_csv()))
    if draw is not None and solution.plan is not None:
        out.write("picture", gantt, partial(draw, loaded, solution))
    out.answer(lambda: files.dump_plan(solution), lambda: solution_parts(loaded, solution, width()))
    out.finish()
    return 0 if solution.plan is not None else 1
