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
from ..errors import OptschedError
from ..instance import Instance
from ..plan import CLOSED_GAP, Plan, Solution
from .arguments import (
    check_outputs,
    instance_argument,
    json_option,
    load,
    objective_option,
    quiet_option,
    solver_options,
)
from .duration import duration

if TYPE_CHECKING:
    from rich.table import Table

    from ..bounds import Bound
    from ..objectives import Objective

QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


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
    "--option",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the policy's own; may be repeated.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PLAN", help="Write the plan file.")
@click.option(
    "--gantt",
    type=click.Path(path_type=Path),
    metavar="PICTURE",
    help="Draw the plan: .html is an interactive page that needs no network, .svg, .png and .pdf a figure.",
)
@json_option
@quiet_option
def command(
    instance: str,
    policy: str,
    objective: str,
    round_s: float | None,
    pairs: tuple[str, ...],
    output: Path | None,
    gantt: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Simulate what a policy does with the jobs of INSTANCE (a file, or - for stdin) until all are done.

    The plan that comes out is checked independently before it is shown, beside bounds that hold for any
    schedule, however often jobs are preempted. JCT is the time from submission to completion; its q-quantile
    of n jobs is the ceil(q n)-th smallest. Exit status 0 with a plan, 1 without one, 2 for bad input.

    \b
    optsched simulate cluster.json --policy srtf
    optsched simulate cluster.json --policy las --round 5m -o plan.json --gantt plan.html
    optsched simulate cluster.json --policy fifo --json | jq .jct_s.p99
    """
    from .. import files, objectives, registry
    from ..bounds import lower_bounds
    from ..picture import can_draw
    from ..simulate.run import Stalled, simulate
    from ..simulate.view import PolicyFault

    goal = objectives.parse(objective)
    options = solver_options(pairs)
    made = registry.policy(policy, goal, options)
    check_outputs({"-o": output, "--gantt": gantt}, instance)
    draw = None if gantt is None else can_draw(gantt)
    loaded = load(instance)
    try:
        with completed_jobs(len(loaded.jobs), wanted=not quiet) as on_progress:
            plan = simulate(loaded, made, round_s=round_s, on_progress=on_progress)
    except (Stalled, PolicyFault) as error:
        click.echo(f"optsched: no plan: {error}", err=True)
        return 1
    bounds = {bound.level: bound for bound in lower_bounds(loaded, goal) if math.isfinite(bound.value)}
    how = [f"decided in rounds of {human(round_s)}"] if round_s else []
    how += [f"option {key}={value}" for key, value in options.items()]
    solution = as_solution(loaded, goal, plan, policy, bounds, tuple(how))
    if isinstance(solution, str):
        click.echo(f"optsched: the plan of {policy} does not pass the verifier: {solution}", err=True)
        return 1
    trouble: list[OptschedError] = []
    written: list[str] = []
    # What was computed is saved before it is shown: whoever reads the table may close the pipe.
    if output is not None:
        try:
            files.write_text(output, files.dump_plan(solution))
            written.append(f"plan: {output}")
        except OptschedError as error:
            trouble.append(error)
    if draw is not None and gantt is not None:
        try:
            draw(loaded, solution, gantt)
            written.append(f"picture: {gantt}")
        except OptschedError as error:
            trouble.append(error)
    if not quiet or as_json:
        found = summary(loaded, solution, plan, bounds)
        found |= {"round_s": round_s, "options": options}
        if as_json:
            click.echo(json.dumps(found))
        else:
            from .table import show

            show(*_words(loaded, found, f"policy {policy}: {made.title}", how))
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

    from .progress import REDRAWN_PER_S

    done = 0

    def tell(completed: int) -> None:
        nonlocal done
        done = completed

    def line() -> Table:
        found = Table.grid(padding=(0, 1))
        found.add_row(ProgressBar(total=jobs, completed=done, width=40), f"{done:,} of {jobs:,} jobs completed")
        return found

    with Live(
        console=Console(stderr=True), get_renderable=line, refresh_per_second=REDRAWN_PER_S, transient=True
    ):
        yield tell


def as_solution(
    instance: Instance, goal: "Objective", plan: Plan, policy: str, bounds: "dict[int, Bound]", how: tuple[str, ...]
) -> Solution | str:
    """The plan with its values and the bounds, or why the verifier rejects it."""
    from ..files import instance_hash
    from ..incumbent import Incumbent

    incumbent = Incumbent(instance, goal, any_plan=True)
    reason = incumbent.offer(plan, policy)
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
    )


def summary(
    instance: Instance, solution: Solution, plan: Plan, bounds: "dict[int, Bound]"
) -> dict[str, Any]:
    """What the plan of a policy is worth; keys as `--json` prints them. Times in seconds."""
    from ..picture.facts import job_facts

    facts = [job_facts(instance, entry) for entry in plan.jobs]
    jct_s = sorted(one.jct_s for one in facts)
    last_s = max((one.end_s for one in facts), default=0.0)
    capacity_gpu_s = instance.cluster.total_gpus * last_s
    held_gpu_s = math.fsum(
        (part.end_s - part.start_s) * part.mode.gpus / (1 if part.mode.share_with is None else 2)
        for entry in plan.jobs
        for part in entry.segments
    )
    return {
        "instance": instance.name,
        "policy": solution.solver,
        "jobs": len(facts),
        "status": solution.status,
        "levels": [
            {
                "name": level.name,
                "value": level.value,
                "bound": level.bound,
                "gap": level.gap,
                "bound_source": bounds[number].source if level.bound is not None else None,
            }
            for number, level in enumerate(solution.levels)
        ],
        "jct_s": {
            "mean": math.fsum(jct_s) / len(jct_s) if jct_s else None,
            **{name: jct_s[math.ceil(q * len(jct_s) - 1e-9) - 1] if jct_s else None for name, q in QUANTILES.items()},
        },
        "preemptions": sum(one.preempted for one in facts),
        "preempted_jobs": sum(one.preempted > 0 for one in facts),
        "deadlines_missed": sum(one.late_s > 0 for one in facts),
        "last_s": last_s,
        "gpu_use": held_gpu_s / capacity_gpu_s if capacity_gpu_s else None,
    }


def _words(instance: Instance, found: dict[str, Any], title: str, how: list[str]) -> "Iterator[str | Table]":
    from ..picture.facts import level_unit, percent
    from .table import table, with_length

    yield (
        f"{instance.name}: {found['jobs']:,} jobs, {instance.cluster.total_gpus:,} GPUs on "
        f"{len(instance.cluster.nodes):,} nodes, {len(instance.running):,} running now"
    )
    yield "; ".join([title, *how])
    yield ""
    levels = table("objective", "value", "bound (any schedule)", "gap", "proved by",
                   numeric=("value", "bound (any schedule)", "gap"))
    for level in found["levels"]:
        unit = level_unit(level["name"])
        gap = "0 %" if level["gap"] is not None and level["gap"] <= CLOSED_GAP else percent(level["gap"])
        levels.add_row(
            level["name"], with_length(level["value"], unit), with_length(level["bound"], unit), gap,
            level["bound_source"] or "",
        )
    yield levels
    yield ""
    if found["jobs"]:
        times = table("JCT", *found["jct_s"], numeric=tuple(found["jct_s"]))
        times.add_row("", *(human(value) for value in found["jct_s"].values()))
        yield times
        yield ""
    parts = [f"{found['preemptions']:,} preemptions of {found['preempted_jobs']:,} jobs"]
    deadlines = sum(job.deadline_s is not None for job in instance.jobs)
    if deadlines:
        parts.append(f"{found['deadlines_missed']:,} of {deadlines:,} deadlines missed")
    if found["gpu_use"] is not None:
        parts.append(f"GPUs held {percent(found['gpu_use'])} of the time")
    yield ", ".join([*parts, f"last done in {human(found['last_s'])}"])
