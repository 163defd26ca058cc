"""`optsched demo`: from an instance to a checked plan and its picture in a few seconds."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import click

from ..duration import human
from ..errors import InputError, OptschedError
from ..instance import Instance
from ..plan import JobPlan, Solution
from .arguments import json_option, quiet_option

TIME_LIMIT_S, SECOND_LIMIT_S = 8.0, 4.0
"""For the plan, and for the one it is compared with."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """A job that is preempted now: which jobs get its GPUs, when it is back, and what the best plan would be
    worth had it to go on."""

    job: str
    nodes: tuple[str, ...]
    for_jobs: tuple[str, ...]
    back_s: float
    overhead_s: float
    value_without: float | None


@click.command("demo")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="demo-output",
    show_default=True,
    metavar="DIR",
    help="Directory for the instance, the plan and its picture; made if it is not there.",
)
@json_option
@quiet_option
def command(output: Path, as_json: bool, quiet: bool) -> int:
    """Solve a small example, check the plan, draw it, and say what was decided and why.

    Twelve GPUs of two types and eleven jobs at nine in the morning: some run, some wait, some arrive within
    the hour. Takes less than 20 s. Writes instance.json, plan.json and plan.html.
    """
    from .. import engine, files
    from .demo_instance import demo_instance
    from .progress import live_progress
    from .verify import check

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {output}: cannot be made: {error.strerror or error}") from None
    instance = demo_instance()
    files.write_text(output / "instance.json", files.dump_instance(instance))
    with live_progress("wct", TIME_LIMIT_S, wanted=not quiet) as on_progress:
        solution = engine.solve(instance, time_limit_s=TIME_LIMIT_S, on_progress=on_progress)
    files.write_text(output / "plan.json", files.dump_plan(solution))
    found = check(files.read_instance(output / "instance.json"), str(output / "plan.json"), None)
    if not found["ok"]:
        raise OptschedError(f"the plan did not pass the check: {found['violations'][0]['message']}")
    fifo = engine.solve(instance, solver="fifo", time_limit_s=SECOND_LIMIT_S)
    preemption = most_telling(instance, solution)
    picture, reason = _draw(instance, solution, output)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "value": solution.value,
                    "bound": solution.bound,
                    "gap": solution.gap,
                    "status": solution.status,
                    "solver": solution.solver,
                    "fifo": fifo.value,
                    "verified": found["ok"],
                    "preempted": preemption and preemption.job,
                    "value_without": preemption and preemption.value_without,
                    "instance": str(output / "instance.json"),
                    "plan": str(output / "plan.json"),
                    "picture": picture and str(picture),
                }
            )
        )
    elif not quiet:
        from .table import print_solution

        print_solution(instance, solution)
        click.echo("\n" + "\n".join(story(instance, solution, fifo, preemption)) + "\n")
        click.echo(f"checked: {output / 'plan.json'} obeys every rule of {output / 'instance.json'}")
        click.echo(
            f"picture: {picture.resolve()}  (open it in a browser)" if picture else f"no picture: {reason}"
        )
        click.echo(f"again:   optsched solve {output / 'instance.json'} --gantt plan.html")
    return 0


def _draw(instance: Instance, solution: Solution, output: Path) -> tuple[Path | None, str]:
    """The page, or without plotly the figure, or without either the reason."""
    from ..picture import can_draw

    reason = ""
    for name in ("plan.html", "plan.svg"):
        try:
            can_draw(output / name)(instance, solution, output / name)
        except OptschedError as error:
            reason = reason or str(error)
            continue
        return output / name, ""
    return None, reason


def most_telling(instance: Instance, solution: Solution) -> Preemption | None:
    """The job with most GPUs that is preempted now, and what the best plan would be worth without that."""
    from .. import engine

    assert solution.plan is not None
    held = {entry.job: sum(slot.gpus for slot in entry.placement) for entry in instance.running}
    preempted = [entry for entry in solution.plan.jobs if entry.decision == "preempt"]
    if not preempted:
        return None
    entry = max(preempted, key=lambda entry: held[entry.id])
    job = instance.job[entry.id]
    jobs = tuple(replace(one, preemptible=False) if one.id == job.id else one for one in instance.jobs)
    other = engine.solve(replace(instance, jobs=jobs), time_limit_s=SECOND_LIMIT_S)
    return Preemption(
        job=job.id,
        nodes=tuple(slot.node for slot in instance.running_job[job.id].placement),
        for_jobs=_successors(instance, solution, entry),
        back_s=_back_s(entry) - instance.now_s,
        overhead_s=job.profile.checkpoint_s + job.profile.restore_s + job.profile.startup_s,
        value_without=other.value,
    )


def _back_s(entry: JobPlan) -> float:
    return entry.segments[-1].start_s


def _successors(instance: Instance, solution: Solution, entry: JobPlan) -> tuple[str, ...]:
    """Jobs that start on the nodes a preempted job leaves, before it is back, in order of their start."""
    assert solution.plan is not None
    nodes = {slot.node for slot in instance.running_job[entry.id].placement}
    starts = [
        (segment.start_s, other.id)
        for other in solution.plan.jobs
        for segment in other.segments
        if other.id != entry.id
        and segment.mode.gpus
        and nodes & {slot.node for slot in segment.placement}
        and other.decision != "continue"
        and instance.now_s <= segment.start_s < _back_s(entry)
    ]
    return tuple(dict.fromkeys(name for _, name in sorted(starts)))


def story(instance: Instance, solution: Solution, fifo: Solution, preemption: Preemption | None) -> list[str]:
    """What was decided and what it is worth, in a few sentences."""
    assert solution.value is not None
    lines = []
    if fifo.value is not None:
        saved = fifo.value - solution.value
        lines.append(
            f"First in, first out would give {fifo.value:,.0f} s of weighted completion time; this plan "
            f"saves {saved:,.0f} s of them ({human(max(0.0, saved))}, {100 * saved / fifo.value:.0f} %)."
        )
    if preemption is None:
        lines.append(
            "No running job is preempted: what waits would gain less than saving and restoring costs."
        )
        return lines
    lines.append(
        f"{preemption.job} is preempted on {_and(preemption.nodes)} and is back in "
        f"{human(preemption.back_s)}: until then its GPUs serve {_and(preemption.for_jobs) or 'nobody'}."
    )
    if preemption.value_without is not None:
        worth = preemption.value_without - solution.value
        lines.append(
            f"Had {preemption.job} to go on, the best plan found would cost {worth:,.0f} s more "
            f"({human(abs(worth))}); stopping it costs {preemption.overhead_s:,.0f} s of checkpoint, "
            "start-up and restore, which the plan has paid."
        )
    return lines


def _and(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
