"""`optsched simulate`: what a policy would do, checked and measured."""

import json
from functools import partial
from pathlib import Path

import click

from ..errors import InputError
from .parts.arguments import (
    check_outputs,
    instance_argument,
    json_option,
    load,
    objective_option,
    quiet_option,
    solver_options,
)
from .parts.duration import duration
from .parts.outputs import Outputs
from .parts.progress import completed_jobs


@click.command("simulate")
@instance_argument
@click.option("--policy", required=True, metavar="NAME", help="A name of `optsched list policies`.")
@objective_option
@click.option(
    "--round",
    "round_s",
    type=duration,
    metavar="TIME",
    help="Decide only every TIME, as 60, 60s or 5m; without it at every event.",
)
@click.option(
    "--spacing",
    "spacing_s",
    type=duration,
    metavar="TIME",
    help="Decide at events, but not sooner than TIME after the last decision.",
)
@click.option(
    "--charge-solver-time",
    is_flag=True,
    help="Let the cluster go on while the policy thinks: a decision comes as much later as the "
    "one before "
    "it took.",
)
@click.option(
    "--timing",
    is_flag=True,
    help="With --json or -o: also say how long decisions took on the machine's clock; the only "
    "figures that "
    "differ from run to run.",
)
@click.option(
    "--curves",
    is_flag=True,
    help="With --json or -o: also say how JCTs are distributed and how many GPUs were held over "
    "time, in at "
    "most 200 points each.",
)
@click.option(
    "--estimates",
    default="oracle",
    show_default=True,
    metavar="KIND",
    help="What the policy may know of how long jobs are: oracle, noisy:SIGMA, history, learned "
    "or none.",
)
@click.option(
    "--option",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the policy's own; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write summary.json, jobs.csv, plan.json, rounds.csv and report.html to this directory.",
)
@click.option(
    "--resume", is_flag=True, help="Take up the interrupted simulation in the directory of -o."
)
@click.option(
    "--gantt",
    type=click.Path(path_type=Path),
    metavar="PICTURE",
    help="Draw the plan: .html is an interactive page that needs no network, .svg, .png and .pdf "
    "a figure.",
)
@json_option
@quiet_option
def command(
    instance: str,
    policy: str,
    objective: str,
    round_s: float | None,
    spacing_s: float | None,
    charge_solver_time: bool,
    timing: bool,
    curves: bool,
    estimates: str,
    pairs: tuple[str, ...],
    output: Path | None,
    resume: bool,
    gantt: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Simulate what a policy does with the jobs of INSTANCE (a file, or - for stdin) until all are
    done.

    The plan that comes out is checked independently before it is shown, beside bounds that hold for
    any schedule, however often jobs are preempted. JCT is the time from submission to completion;
    its q-quantile of n jobs is the ceil(q n)-th smallest. docs/concepts.md defines the other
    numbers. Exit status 0 with a plan, 1 without one, 2 for bad input.

    With -o a long simulation saves its state once a minute and on Ctrl-C; --resume goes on from
    there.

    \b
    optsched simulate cluster.json --policy srtf
    optsched simulate cluster.json --policy las --round 5m -o las
    optsched simulate cluster.json --policy srtf --estimates history
    optsched simulate cluster.json --policy fifo --json | jq .jct_s.p99
    """
    from ..api.outcome import Outcome, Setting
    from ..driver.view import PolicyError
    from ..picture import can_draw
    from ..simulate import output as directory
    from ..simulate.run import StalledError
    from ..simulate.saved import STATE, RunInterruptedError, run_saving, take_up

    if round_s and spacing_s:
        raise InputError(
            "--round and --spacing are two ways to say when to decide; give one of them"
        )
    if resume and output is None:
        raise InputError("--resume goes on with the simulation in a directory; name it with -o DIR")
    setting = Setting.of(
        policy,
        objective,
        round_s=round_s,
        spacing_s=spacing_s or 0.0,
        charge_solver_time=charge_solver_time,
        estimates=estimates,
        options=solver_options(pairs),
    )
    if output is not None:
        directory.check_directory(output)
    check_outputs({"--gantt": gantt}, instance)
    draw = None if gantt is None else can_draw(gantt)
    loaded = load(instance)
    asked = setting.asked(loaded)
    state = None if output is None else output / STATE
    if resume and state is not None:
        simulation = take_up(state, asked)
    else:
        simulation = setting.simulation(loaded)
    try:
        with completed_jobs(len(loaded.jobs), wanted=not quiet) as on_progress:
            if state is None:
                simulation.run(on_progress)
            else:
                run_saving(simulation, state, asked, on_progress)
        outcome = Outcome(setting, simulation)
    except (StalledError, PolicyError) as error:
        click.echo(f"optsched: no plan: {error}", err=True)
        return 1
    except RunInterruptedError:
        done = f"{simulation.done:,} of {len(loaded.jobs):,} jobs completed"
        click.echo(
            f"optsched: interrupted, {done}; the same command with --resume goes on from there",
            err=True,
        )
        return 130
    total = outcome.summary(timing=timing, curves=curves)
    out = Outputs()
    if output is not None:
        files = (outcome.metrics, total, outcome.solution, outcome.rounds)
        out.attempt(partial(directory.write, output, *files))
    if draw is not None:
        out.write("picture", gantt, partial(draw, loaded, outcome.solution))
    if as_json:
        click.echo(json.dumps(total, allow_nan=False))
    elif not quiet:
        from ..picture.text_simulation import simulation_parts
        from .parts.table import show

        show(*simulation_parts(outcome, total))
    out.tell(quiet=quiet or as_json)
    return 0
