"""`optsched submit`: gives a job to the controller."""

import json
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .parts.arguments import (
    Choice,
    amounts,
    count_option,
    flag_option,
    many_option,
    option,
    path_option,
    time_option,
)
from .parts.controller import Client, asks_controller
from .parts.duration import cost, deadline
from .parts.out import Json, Out, answers


def _range(value: str, what: str, usual: str, fewest: int = 0) -> tuple[int, int | None]:
    """Return the numbers in `8`, or in `1-8`."""
    least, dash, most = value.partition("-")
    decimal = least.isdecimal() and (not dash or most.isdecimal()) and len(value) <= 20
    if not decimal or int(least) < fewest:
        raise click.BadParameter(
            f"{value!r} is not a count of {what}; write {usual} for a job that runs on fewer too"
        )
    return int(least), int(most) if dash else None


def gpu_count(value: str) -> int | dict[str, int]:
    """Read `--gpus`: a number, or two with a dash between."""
    least, most = _range(value, "GPUs", "8, or 1-8")
    return least if most is None else {"min": least, "max": most}


def node_count(value: str) -> tuple[int, int]:
    """Read `--nodes`: a number from 1 on, or two with a dash between."""
    least, most = _range(value, "nodes", "2, or 1-4", fewest=1)
    return least, least if most is None else most


@click.command("submit", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@option("--name NAME", "Name of the job; by default the command with a number.")
@option(
    "--array INDICES[%N]",
    "Submit one job for each index of 0-99, 1,3,7 or 0-99:5, at most N of them running at once; "
    "its index is in OPTSCHED_ARRAY_INDEX, and in COMMAND in place of {index}.",
)
@path_option(
    "--file FILE",
    "Submit the jobs of a file (- for stdin), all or none: on each line a JSON object with fields "
    "of a request, for which the options are defaults.",
)
@option(
    "--gpus N|MIN-MAX",
    "Number of GPUs, or a range if the job can run on any count in it; 0 for a CPU-only job.",
    type=gpu_count,
    default="1",
)
@option(
    "--nodes N|MIN-MAX",
    "Run the command once on each of N nodes, with equally many GPUs each (default: 1).",
    type=node_count,
)
@many_option("--gpu-type NAME", "Run only on GPUs of this type; repeatable.", "gpu_types")
@count_option("--cpus N", "Cores per GPU; for a CPU-only job, in total.")
@option(
    "--memory GIB",
    "Host memory per GPU; for a CPU-only job, in total.",
    "memory_gib",
    type=click.FloatRange(0),
)
@option("--gpu-memory GIB", "Memory used on each GPU.", "gpu_memory_gib", type=click.FloatRange(0))
@time_option("--time TIME", "Expected run time on what the job asks for.", "duration_s")
@time_option(
    "--time-limit TIME", "Ask it to save and stop it once it has run so long in all.", "limit_s"
)
@option(
    "--signal SIGNAL[@SECONDS]",
    "Send this signal so long before the time limit: USR1@60.",
    "warning",
)
@count_option("--steps N", "Number of steps of the whole job, if it reports steps.", "total_steps")
@option("--tenant NAME", "Tenant whose quota the job counts against.")
@option(
    "--weight X",
    "Cost of its waiting, relative to 1 for other jobs; cluster.toml limits how much you may "
    "ask for.",
    type=click.FloatRange(0),
)
@option(
    "--priority NAME|N",
    "Tier of the job, or its number: jobs of a higher one go first, and may preempt others; "
    "cluster.toml says who may use which.",
)
@option(
    "--deadline WHEN",
    "Deadline: 2h (from now), 18:00 or 2030-01-31T18:00.",
    "deadline_s",
    type=deadline,
)
@many_option(
    "--label LABEL",
    "A word by which --near and --apart of other jobs find it; repeatable.",
    "labels",
)
@many_option(
    "--near LABEL[@rack]",
    "Start it on nodes, or in racks, with a job that has LABEL; repeatable.",
    "affinity",
)
@many_option(
    "--apart LABEL[@rack]",
    "Never on a node, or in a rack, with jobs that have LABEL; repeatable.",
    "anti_affinity",
)
@many_option(
    "--node-label [!]LABEL",
    "Only on nodes that have LABEL, or with ! on those without it; repeatable.",
    "node_labels",
)
@many_option(
    "--after JOB",
    "Start after this job, or all tasks of this array, completed; repeatable, or separated by "
    "commas.",
)
@many_option("--after-any JOB", "Start after this job has ended in any way; alike.")
@many_option("--after-not-ok JOB", "Start after this job has failed or was cancelled; alike.")
@option(
    "--if-never cancel|hold",
    "What becomes of it where it can never start because of --after (default: cancel).",
    type=Choice(["cancel", "hold"]),
)
@option(
    "--begin WHEN", "Start no earlier: 18:00, +2h or 2030-01-31T18:00.", "begin_s", type=deadline
)
@many_option("--resource NAME=N", "Amount of a cluster resource; repeatable.", "resources")
@count_option("--retries N", "Restart the job up to N times if it fails.", least=0, most=1000)
@option("--grace TIME", "Time the job has to save when asked to stop.", "grace_s", type=cost)
@option(
    "--no-preempt",
    "Never preempt the job once it runs.",
    "preemptible",
    flag_value=False,
    type=bool,
    default=None,
)
@option(
    "--saves/--no-saves",
    "Say whether the job saves when asked to stop (see docs/jobs.md).",
    default=None,
)
@flag_option("--hold", "Hold the job until `optsched release`.")
@path_option("--profile FILE", "Profile of the job, as written by `optsched profile`.")
@many_option(
    "--env NAME[=VALUE]",
    "Environment variable for the job; without a value, that of this shell; repeatable.",
    "environment",
)
@option("--image IMAGE", "Container image to run the job in, on Kubernetes.")
@option(
    "--notify EVENTS",
    "Send a notice when the job starts, ends or fails: start, end, fail, or several with commas "
    "between, as cluster.toml says how.",
)
@option("--notify-to ADDRESS", "E-mail address for the notices, where cluster.toml allows it.")
@flag_option("--wait", "Show what the job prints until it ends, and exit with its status.")
@answers
@asks_controller
def command(
    client: Client, words: tuple[str, ...], wait: bool, file: Path | None, out: Out, **asked: Any
) -> int:
    """Submit COMMAND, to be run in this directory, and print the name of the job.

    \b
    optsched submit --gpus 2 --time 2h -- python train.py
    optsched submit --gpus 16 --nodes 2 -- torchrun ...
    optsched submit --gpus 1-8 --after prepare --wait -- ./train.sh
    optsched submit --array 0-99%10 --name sweep -- python train.py --seed {index}
    optsched submit --gpus 1 --file jobs.jsonl
    """
    if bool(words) == bool(file):
        raise InputError("give a command after --, or jobs by --file")
    if wait and (file or asked["array"]):
        raise InputError("--wait follows one job; leave it out")
    body = body_of(words, asked)
    if file is not None:
        names = _submitted(client, file, body)
        out.answer(lambda: names, lambda: names["jobs"])
        return 0
    job = client.post("/v1/jobs", body)
    if not wait:
        out.answer(lambda: job, lambda: [job["array"] or job["id"]])
        return 0
    from .output import ended, exit_status, follow

    name = str(job["id"])
    out.say(name, err=True)
    try:
        for text, is_error in follow(client, name):
            if out.talks:
                click.echo(text, nl=False, err=is_error, color=True)
    except KeyboardInterrupt:
        click.echo(f"optsched: {name} goes on; stop it by: optsched cancel {name}", err=True)
        raise
    answer = ended(client, name)
    if out.as_json:
        click.echo(json.dumps(answer))
    elif answer["status"] != "completed":
        click.echo(f"optsched: {name} {said(answer)}", err=True)
    return exit_status(answer)


def said(job: Json) -> str:
    """Return how a job ended, in words."""
    was = "was cancelled" if job["status"] == "cancelled" else str(job["status"])
    return f"{was}: {job['reason']}" if job["reason"] else was


def body_of(words: tuple[str, ...], asked: Json) -> Json:
    """Return the request that the options make. Raises InputError."""
    try:
        directory = os.getcwd()
    except OSError:
        raise InputError("this directory does not exist any more; go to another one") from None
    asked["min_nodes"], asked["max_nodes"] = asked.pop("nodes") or (None, None)
    if asked["gpus"] != 0:
        asked["cpus_per_gpu"] = asked.pop("cpus")
        asked["memory_gib_per_gpu"] = asked.pop("memory_gib")
    if asked["priority"] is not None:
        try:
            asked["priority"] = int(asked["priority"])
        except ValueError:
            asked["tier"] = asked.pop("priority")
    body = asked | {name: read(asked[name]) for name, read in READERS.items()}
    for text in (*words, directory, *body["environment"].values()):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{text!r} is no UTF-8 text; rename the file, or put the command into a script"
            ) from None
    body |= {"argv": words, "directory": directory, "hold": asked["hold"] or None}
    return {name: value for name, value in body.items() if value not in (None, (), {})}


def _submitted(client: Client, path: Path, defaults: Json) -> Json:
    """Submit the jobs of a file. Raises InputError that names lines of it."""
    jobs = jobs_of(path, defaults)
    lines = [*jobs]
    try:
        names: Json = client.post("/v1/batch", {"jobs": [*jobs.values()]})
    except InputError as error:
        says = re.sub(
            r"\bjobs\[(\d+)\](?:\.|: )", lambda m: f"{path}, line {lines[int(m[1])]}: ", str(error)
        )
        raise InputError(says) from None
    return names


def jobs_of(path: Path, defaults: Json) -> dict[int, Json]:
    """Return the requests of a file by line, with the options where one says nothing. Raises
    InputError."""
    from ..files import read_bytes

    data = sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)
    jobs = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            job = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: is no JSON: {error}") from None
        if not isinstance(job, dict):
            raise InputError(
                f'{path}, line {number}: is not a job; write {{"argv": ["python", "train.py"]}}'
            )
        jobs[number] = {**defaults, **job}
    if not jobs:
        raise InputError(f"{path}: holds no job; write one on each line")
    return jobs


def _environment(variables: tuple[str, ...]) -> dict[str, str]:
    environment: dict[str, str] = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals and name not in os.environ:
            raise InputError(f"--env {name}: this shell has no such variable; write {name}=VALUE")
        environment[name] = value if equals else os.environ[name]
    return environment


def _near(labels: tuple[str, ...]) -> dict[str, str]:
    """Return the level, a node or a rack, at which jobs with each label are to be near, or
    apart."""
    pairs = (label.partition("@") for label in labels)
    return {name: level if at else "node" for name, at, level in pairs}


def _node_labels(labels: tuple[str, ...]) -> dict[str, str]:
    """Return whether nodes must have each label, or must not."""
    return {
        label.removeprefix("!"): "forbidden" if label.startswith("!") else "required"
        for label in labels
    }


def _after(jobs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for names in jobs for name in names.split(",") if name)


def _notify(events: str | None) -> tuple[str, ...]:
    return () if events is None else tuple(dict.fromkeys(filter(None, events.split(","))))


def _profile(path: Path | None) -> Any:
    """Return the profile in a file: the object itself, or what `optsched profile` and the store of
    profiles write."""
    from ..files import read_bytes

    if path is None:
        return None
    try:
        profile = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no JSON: {error}") from None
    if isinstance(profile, dict) and "profile" in profile:
        profile = profile["profile"]
    if not isinstance(profile, dict):
        raise InputError(
            f"{path}: holds no profile; write {{...}} as in instance files, or use `optsched "
            "profile -o`"
        )
    return profile


READERS: dict[str, Callable[[Any], Any]] = {
    "after": _after,
    "after_any": _after,
    "after_not_ok": _after,
    "affinity": _near,
    "anti_affinity": _near,
    "node_labels": _node_labels,
    "resources": partial(amounts, "--resource"),
    "environment": _environment,
    "profile": _profile,
    "notify": _notify,
}
"""How options are read that the request has in another form."""
