"""`optsched explain`: why each job runs, waits, moves or was preempted."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from .. import files
from ..errors import InputError
from ..model import Instance
from ..objectives import parse
from ..round.plan import RoundSolution
from .parts.arguments import instance_argument, load, objective_option, path_option, time_option
from .parts.controller import NO_ANSWER
from .parts.out import Out, answers


@click.command("explain")
@instance_argument
@click.argument("names", nargs=-1, metavar="[ROUND_OR_PLAN] [JOB]...")
@objective_option
@time_option(
    "--length TIME",
    "Time until the next round; a round file has its own.",
    "round_s",
    default="300s",
)
@time_option(
    "--budget TIME",
    "Wall-clock limit for deciding the round, or for computing prices when explaining a plan.",
    "budget_s",
    default="1s",
)
@path_option(
    "--config FILE",
    "For a live cluster: the cluster.toml of its controller, found as `optsched queue` does.",
)
@answers
def command(
    instance: str,
    names: tuple[str, ...],
    objective: str,
    round_s: float,
    budget_s: float,
    config: Path | None,
    out: Out,
) -> int:
    """Say in one sentence why each job of INSTANCE (or each JOB named) runs, waits, moves or was
    preempted.

    ROUND_OR_PLAN is a file written by `optsched round -o` or `optsched solve -o`; without one, a
    round is decided first. For a plan, the decisions at the present are explained with the prices
    of a round. docs/concepts.md, "The round", explains what a job is worth and what each capacity
    costs. --json has all numbers. Jobs that can never run are told apart from waiting ones before
    anything is solved. Exit status: 0, or 2 for bad input.

    Given the name of a job instead of a file, the controller of the live cluster is asked what the
    job does or waits for, what running it now would cost, who is ahead, and what would change that.

    \b
    optsched explain bert-17
    optsched explain cluster.json
    optsched explain cluster.json round.json bert-17
    optsched explain cluster.json plan.json --json
    """
    from ..explain.many import explain_all

    if config is not None or is_job(instance):
        return _explain_live(config, (instance, *names), out)
    source, wanted = _split(names)
    loaded = load(instance, now_only=True)
    asked = list(dict.fromkeys(wanted)) or [job.id for job in loaded.jobs]
    for name in asked:
        if name not in loaded.job:
            hint = "" if source is not None or name not in names[:1] else " nor a file"
            raise InputError(f"{name!r} is not a job of {loaded.name}{hint}")
    solution = None if source is None else _read(loaded, source, round_s, budget_s)

    def decided() -> RoundSolution:
        from ..round.decide import decide

        if solution is not None:
            return solution
        return decide(loaded, objective, round_s=round_s, budget_s=budget_s)

    explanations = explain_all(loaded, asked, decided)
    out.answer(
        lambda: listed(
            {
                field.name: files.plain(getattr(explanation, field.name))
                for field in fields(explanation)
            }
            for explanation in explanations
        ),
        lambda: (explanation.sentence for explanation in explanations),
    )
    return 0


def _explain_live(config: Path | None, jobs: tuple[str, ...], out: Out) -> int:
    """Print why each job is where it is. Raises InputError for a job that is not there, or where no
    controller is named."""
    from ..control.api.client import NoControllerError, find_client
    from ..picture.text import printable

    try:
        client = find_client(config)
    except InputError as error:
        if config is not None:
            raise
        raise InputError(
            f"{jobs[0]}: there is no such file; to ask a controller about a job of that name: "
            f"{error}"
        ) from None
    answers: list[dict[str, Any]] = []
    try:
        for name in dict.fromkeys(jobs):
            answers.append(client.get(client.job_path(name, "explain")))
    except NoControllerError as error:
        click.echo(f"optsched: {error}", err=True)
        return NO_ANSWER
    said = ("\n".join(map(printable, answer["sentences"])) for answer in answers)
    out.answer(lambda: listed(answers), lambda: ["\n\n".join(said)])
    return 0


def is_job(name: str) -> bool:
    """Return whether a first argument is meant as the job of a live cluster: it is not a file, nor
    does it end like one."""
    from ..executors.base import JOB_NAME

    return (
        JOB_NAME.fullmatch(name) is not None
        and not name.endswith((".json", ".gz"))
        and not os.path.exists(name)
    )


def _split(names: Sequence[str]) -> tuple[Path | None, Sequence[str]]:
    """Split off a first name that is a file, the round or plan; all others are jobs."""
    if names and os.path.isfile(names[0]):
        return Path(names[0]), names[1:]
    return None, names


def _read(instance: Instance, source: Path, round_s: float, budget_s: float) -> RoundSolution:
    """Return the round in a file, or the decisions of a plan in a file with the prices of a
    round."""
    from ..explain.many import round_of_plan
    from ..round.files import file_format, load_round
    from ..round.verify import verify_round
    from ..verify import verify

    data = files.read_bytes(source)
    if file_format(data) != files.PLAN_FORMAT:
        solution = load_round(data, str(source))
        _check(instance, source, "round", solution.instance_name, solution.instance_hash)
        _agree(source, objective=solution.objective, round_s=solution.round_s)
        faults = verify_round(instance, solution.jobs)
        if faults:
            raise InputError(f"{source}: is not a sound round of {instance.name}: {faults[0]}")
        return solution
    stated, plan = files.read_plan(source)
    _check(instance, source, "plan", stated.instance.name, stated.instance.hash)
    _agree(source, objective=stated.objective.name)
    if plan is None:
        raise InputError(f"{source}: holds no plan, only the status {stated.objective.status}")
    report = verify(instance, plan, parse(stated.objective.name), replay=stated.replay)
    if not report.ok:
        raise InputError(
            f"{source}: is not a sound plan of {instance.name}: {report.violations[0]}"
        )
    return round_of_plan(
        instance,
        plan,
        stated.objective.name,
        solver=stated.solver,
        round_s=round_s,
        budget_s=budget_s,
    )


def _check(instance: Instance, source: Path, what: str, name: str, content: str | None) -> None:
    if content is not None and content != (own := files.instance_hash(instance)):
        raise InputError(
            f"{source}: the {what} was made for instance {name} with content {content}, "
            f"this is {instance.name} with content {own}"
        )


def _agree(source: Path, **stated: Any) -> None:
    """Raise InputError for an option that is not that of the file."""
    from click.core import ParameterSource

    context = click.get_current_context()
    for name, value in stated.items():
        if context.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            continue
        given = context.params[name]
        if (parse(given).name if name == "objective" else given) != value:
            option = {"objective": "--objective", "round_s": "--length"}[name]
            raise InputError(
                f"{option} {given} is not that of {source}, which is {value}; leave the option out"
            )


def listed(answers: Iterable[Any]) -> str:
    """Return answers as a JSON list, one a line."""
    return "[" + ",\n ".join(map(json.dumps, answers)) + "]"
