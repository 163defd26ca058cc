"""`optsched simulate`: what a policy would do, checked and measured."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from ..errors import InputError, OptschedError
from ..model.instance import Instance
from ..model.plan import Plan, Solution
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

if TYPE_CHECKING:
    from ..bounds import Bound
    from ..objectives import Objective
    from ..simulate.metrics import Metrics
    from ..simulate.record import Record

SETTINGS = ("round_s", "spacing_s", "charge_solver_time", "estimates", "options")
"""What of a simulation the summary repeats."""


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
    from .. import files, objectives
    from ..bounds import lower_bounds
    from ..driver.view import PolicyError
    from ..estimates.parse import parse as estimates_of
    from ..picture import can_draw
    from ..plugins import registry
    from ..simulate import output as directory
    from ..simulate.metrics import measure
    from ..simulate.run import Simulation, StalledError
    from ..simulate.saved import STATE, RunInterruptedError, run_saving, take_up

    if round_s and spacing_s:
        raise InputError(
            "--round and --spacing are two ways to say when to decide; give one of them"
        )
    if resume and output is None:
        raise InputError("--resume goes on with the simulation in a directory; name it with -o DIR")
    goal = objectives.parse(objective)
    options = solver_options(pairs)
    made = registry.policy(policy, goal, options)
    beliefs = estimates_of(estimates)
    if output is not None:
        directory.check_directory(output)
    check_outputs({"--gantt": gantt}, instance)
    draw = None if gantt is None else can_draw(gantt)
    loaded = load(instance)
    asked = {
        "instance": files.instance_hash(loaded),
        "policy": policy,
        "objective": goal.name,
        "options": options,
        "round_s": round_s,
        "spacing_s": spacing_s,
        "charge_solver_time": charge_solver_time,
        "estimates": estimates,
    }
    state = None if output is None else output / STATE
    if resume and state is not None:
        simulation = take_up(state, asked)
    else:
        simulation = Simulation(
            loaded,
            made,
            round_s=round_s,
            spacing_s=spacing_s or 0.0,
            charge_solver_time=charge_solver_time,
            estimates=beliefs,
        )
    try:
        with completed_jobs(len(loaded.jobs), wanted=not quiet) as on_progress:
            if state is None:
                simulation.run(on_progress)
            else:
                run_saving(simulation, state, asked, on_progress)
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
    record = simulation.record()
    bounds = {
        bound.level: bound for bound in lower_bounds(loaded, goal) if math.isfinite(bound.value)
    }
    how = [f"decided in rounds of {human(round_s)}"] if round_s else []
    how += [f"decisions at least {human(spacing_s)} apart"] if spacing_s else []
    how += ["the time that decisions take is charged"] if charge_solver_time else []
    how += [f"estimates {estimates}"] if estimates != "oracle" else []
    how += [f"option {key}={value}" for key, value in options.items()]
    solution = as_solution(loaded, goal, record.plan(), policy, bounds, tuple(how))
    if isinstance(solution, str):
        click.echo(
            f"optsched: the plan of {policy} does not pass the verifier: {solution}", err=True
        )
        return 1
    found = measure(record)
    rounds = list(getattr(simulation.policy, "rounds", ()))
    total = whole_summary(found, solution, bounds, {name: asked[name] for name in SETTINGS}, rounds)
    if timing:
        total["decision_wall_s"] = decision_times(record)
    if curves:
        from ..simulate.report.series import thinned

        total["curves"] = thinned(found)
    total["policy_facts"] = getattr(simulation.policy, "facts", dict)()
    trouble: list[OptschedError] = []
    written: list[str] = []
    # What was computed is saved before it is shown: whoever reads the table may close the pipe.
    if output is not None:
        try:
            written += directory.write(output, found, total, solution, rounds)
        except OptschedError as error:
            trouble.append(error)
    if draw is not None and gantt is not None:
        try:
            draw(loaded, solution, gantt)
            written.append(f"picture: {gantt}")
        except OptschedError as error:
            trouble.append(error)
    if as_json:
        click.echo(json.dumps(total, allow_nan=False))
    elif not quiet:
        from .parts.simulate_table import words
        from .parts.table import show

        show(*words(loaded, total, f"policy {policy}: {made.title}", how))
        for line in written:
            click.echo(line)
    if trouble:
        raise OptschedError("\noptsched: ".join(str(error) for error in trouble))
    return 0


@contextmanager
def completed_jobs(jobs: int, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """What to give `simulate` as `on_progress`: a bar on stderr; None where that is no terminal."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from .parts.progress import REDRAWN_PER_S

    done = 0

    def tell(completed: int) -> None:
        nonlocal done
        done = completed

    def line() -> Table:
        found = Table.grid(padding=(0, 1))
        found.add_row(
            ProgressBar(total=jobs, completed=done, width=40),
            f"{done:,} of {jobs:,} jobs completed",
        )
        return found

    with Live(
        console=Console(stderr=True),
        get_renderable=line,
        refresh_per_second=REDRAWN_PER_S,
        transient=True,
    ):
        yield tell


def _was_stopped(plan: Plan) -> bool:
    """Whether something that nobody planned ended a segment."""
    return any(segment.stopped_by is not None for entry in plan.jobs for segment in entry.segments)


def as_solution(
    instance: Instance,
    goal: "Objective",
    plan: Plan,
    policy: str,
    bounds: "dict[int, Bound]",
    how: tuple[str, ...],
) -> Solution | str:
    """The plan with its values and the bounds, or why the verifier rejects it."""
    from ..engine.incumbent import Incumbent
    from ..files import instance_hash

    incumbent = Incumbent(instance, goal, any_plan=True)
    reason = incumbent.offer(plan, policy, replay=True)
    if reason is not None:
        return reason
    for bound in bounds.values():
        incumbent.prove(bound.level, bound.value, bound.source)
    return Solution(
        instance_name=instance.name,
        instance_hash=instance_hash(instance),
        solver=policy,
        seed=0,
        objective=goal.name,
        status="optimal" if incumbent.is_optimal() else "feasible",
        levels=incumbent.levels(),
        plan=plan,
        bound_source=incumbent.bound_source(),
        notes=(*how, *incumbent.refuted_bounds),
        replay=bool(instance.failures or instance.outages) or _was_stopped(plan),
    )


def whole_summary(
    found: "Metrics",
    solution: Solution,
    bounds: "dict[int, Bound]",
    how: dict[str, Any],
    rounds: list[Any],
) -> dict[str, Any]:
    """What `summary.json` holds and `--json` prints: who simulated what, the distance from the
    bounds, the metrics."""
    from ..simulate.metrics import summary
    from ..simulate.output import SUMMARY_FORMAT, rounds_total

    return {
        "format": SUMMARY_FORMAT,
        "instance": {"name": solution.instance_name, "hash": solution.instance_hash},
        "policy": solution.solver,
        **how,
        "status": solution.status,
        "levels": [
            {
                "name": level.name,
                "value": level.value,
                "bound": level.bound,
                "gap": level.gap if level.gap is not None and math.isfinite(level.gap) else None,
                "bound_source": bounds[number].source if level.bound is not None else None,
            }
            for number, level in enumerate(solution.levels)
        ],
        **summary(found),
        "rounds": rounds_total(rounds),
    }


def decision_times(record: "Record") -> dict[str, Any]:
    """How long decisions took, in seconds of the machine's clock."""
    from ..simulate.metrics.summary import spread

    taken_s = record.decision_wall_s
    return {"count": len(taken_s), "total": float(taken_s.sum()), **spread(taken_s)}
