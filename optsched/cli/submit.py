"""`optsched submit`: gives a job to the controller."""

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..duration import parse_duration
from ..errors import InputError
from .parts.arguments import (
    count_option,
    flag_option,
    json_option,
    path_option,
    quiet_option,
    time_option,
)
from .parts.controller import asks_controller
from .parts.duration import cost
from .parts.outputs import print_json

if TYPE_CHECKING:
    from ..control.api.client import Client


def _range(value: str, what: str, usual: str, fewest: int = 0) -> tuple[int, int | None]:
    """Return the numbers in `8`, or in `1-8`."""
    least, dash, most = value.partition("-")
    decimal = least.isdecimal() and (not dash or most.isdecimal()) and len(value) <= 20
    if not decimal or int(least) < fewest:
        raise click.BadParameter(
            f"{value!r} is no count of {what}; write {usual} for a job that runs on fewer too"
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


def deadline(value: str) -> float:
    """Read `--deadline`, a time from now on or a date, as Unix time."""
    try:
        return time.time() + parse_duration(value)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{value!r} is neither a time from now (2h) nor a date (2030-01-31T18:00)"
        ) from None


@click.command("submit", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--name", metavar="NAME", help="Name of the job; by default the command with a number."
)
@click.option(
    "--gpus",
    type=gpu_count,
    default="1",
    metavar="N|MIN-MAX",
    help="Number of GPUs, or a range if the job can run on any count in it; 0 for a CPU-only job.",
)
@click.option(
    "--nodes",
    type=node_count,
    metavar="N|MIN-MAX",
    help="Run the command once on each of N nodes, with equally many GPUs each (default: 1).",
)
@click.option(
    "--gpu-type",
    "gpu_types",
    multiple=True,
    metavar="NAME",
    help="Run only on GPUs of this type; repeatable.",
)
@count_option("--cpus", help="Cores per GPU; for a CPU-only job, in total.")
@click.option(
    "--memory",
    "memory_gib",
    type=click.FloatRange(0),
    metavar="GIB",
    help="Host memory per GPU; for a CPU-only job, in total.",
)
@click.option(
    "--gpu-memory",
    "gpu_memory_gib",
    type=click.FloatRange(0),
    metavar="GIB",
    help="Memory used on each GPU.",
)
@time_option("--time", "duration_s", help="Expected run time on what the job asks for.")
@count_option(
    "--steps", "total_steps", help="Number of steps of the whole job, if it reports steps."
)
@click.option("--tenant", metavar="NAME", help="Tenant whose quota the job counts against.")
@click.option(
    "--weight",
    type=click.FloatRange(0),
    metavar="X",
    help="Cost of its waiting, relative to 1 for other jobs; cluster.toml limits how much you may "
    "ask for.",
)
@click.option(
    "--priority",
    type=int,
    metavar="N",
    help="Stored with the job. Rounds ignore it; only simulated policies use it.",
)
@click.option(
    "--deadline",
    "deadline_s",
    type=deadline,
    metavar="WHEN",
    help="Deadline: 2h (from now) or 2030-01-31T18:00.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="LABEL",
    help="A word by which --near and --apart of other jobs find it; repeatable.",
)
@click.option(
    "--near",
    "affinity",
    multiple=True,
    metavar="LABEL[@rack]",
    help="Start it on nodes, or in racks, with a job that has LABEL; repeatable.",
)
@click.option(
    "--apart",
    "anti_affinity",
    multiple=True,
    metavar="LABEL[@rack]",
    help="Never on a node, or in a rack, with jobs that have LABEL; repeatable.",
)
@click.option(
    "--node-label",
    "node_labels",
    multiple=True,
    metavar="[!]LABEL",
    help="Only on nodes that have LABEL, with ! on those that have not; repeatable.",
)
@click.option(
    "--after",
    multiple=True,
    metavar="JOB",
    help="Start after this job has completed; repeatable, or separated by commas.",
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME=N",
    help="Amount of a cluster resource; repeatable.",
)
@count_option("--retries", least=0, most=1000, help="Restart the job up to N times if it fails.")
@click.option(
    "--grace",
    "grace_s",
    type=cost,
    metavar="TIME",
    help="Time the job has to save when asked to stop.",
)
@click.option(
    "--no-preempt",
    "preemptible",
    flag_value=False,
    type=bool,
    default=None,
    help="Never preempt the job once it runs.",
)
@click.option(
    "--saves/--no-saves",
    default=None,
    help="Say whether the job saves when asked to stop (see docs/jobs.md).",
)
@flag_option("--hold", help="Hold the job until `optsched release`.")
@path_option(
    "--profile", metavar="FILE", help="Profile of the job, as written by `optsched profile`."
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Environment variable for the job; without a value, that of this shell; repeatable.",
)
@click.option("--image", metavar="IMAGE", help="Container image to run the job in, on Kubernetes.")
@flag_option("--wait", help="Show what the job prints until it ends, and exit with its status.")
@json_option
@quiet_option
@asks_controller
def command(
    client: "Client", words: tuple[str, ...], wait: bool, as_json: bool, quiet: bool, **asked: Any
) -> int:
    """Submit COMMAND, to be run in this directory, and print the name of the job.

    \b
    optsched submit --gpus 2 --time 2h -- python train.py
    optsched submit --gpus 16 --nodes 2 -- torchrun ...
    optsched submit --gpus 1-8 --after prepare --wait -- ./train.sh
    """
    body = body_of(words, asked)
    job = client.post("/v1/jobs", body)
    if body.get("priority") and not quiet:
        click.echo("optsched: no round looks at --priority; what counts is --weight", err=True)
    if not wait:
        if as_json:
            print_json(job)
        elif not quiet:
            click.echo(job["id"])
        return 0
    from .output import ended, exit_status, follow

    name = str(job["id"])
    if not as_json and not quiet:
        click.echo(name, err=True)
    try:
        for text, is_error in follow(client, name):
            if not as_json and not quiet:
                click.echo(text, nl=False, err=is_error)
    except KeyboardInterrupt:
        click.echo(f"optsched: {name} goes on; stop it by: optsched cancel {name}", err=True)
        raise
    found = ended(client, name)
    if as_json:
        print_json(found)
    elif found["status"] != "completed":
        click.echo(f"optsched: {name} {said(found)}", err=True)
    return exit_status(found)


def said(job: dict[str, Any]) -> str:
    """Return how a job ended, in words."""
    was = "was cancelled" if job["status"] == "cancelled" else str(job["status"])
    return f"{was}: {job['reason']}" if job["reason"] else was


def body_of(words: tuple[str, ...], asked: dict[str, Any]) -> dict[str, Any]:
    """Return the request that the options make. Raises InputError."""
    try:
        directory = os.getcwd()
    except OSError:
        raise InputError("this directory does not exist any more; go to another one") from None
    nodes, variables = asked.pop("nodes"), asked.pop("variables")
    if asked["gpus"] != 0:
        asked["cpus_per_gpu"] = asked.pop("cpus")
        asked["memory_gib_per_gpu"] = asked.pop("memory_gib")
    body: dict[str, Any] = {
        **asked,
        "argv": list(words),
        "directory": directory,
        "min_nodes": None if nodes is None else nodes[0],
        "max_nodes": None if nodes is None else nodes[1],
        "gpu_types": list(asked["gpu_types"]) or None,
        "after": [name for names in asked["after"] for name in names.split(",") if name] or None,
        "labels": list(asked["labels"]) or None,
        "affinity": _near(asked["affinity"]) or None,
        "anti_affinity": _near(asked["anti_affinity"]) or None,
        "node_labels": {
            label.removeprefix("!"): "forbidden" if label.startswith("!") else "required"
            for label in asked["node_labels"]
        }
        or None,
        "resources": _resources(asked["resources"]) or None,
        "hold": asked["hold"] or None,
        "environment": _environment(variables) or None,
        "profile": None if asked["profile"] is None else _profile(asked["profile"]),
    }
    texts = [*words, directory, *(body["environment"] or {}).values()]
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{text!r} is no UTF-8 text; rename the file, or put the command into a script"
            ) from None
    return {name: value for name, value in body.items() if value is not None}


def _environment(variables: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals and name not in os.environ:
            raise InputError(f"--env {name}: this shell has no such variable; write {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


def _near(labels: tuple[str, ...]) -> dict[str, str]:
    """Return the level, a node or a rack, at which jobs with each label are to be near, or
    apart."""
    pairs = (label.partition("@") for label in labels)
    return {name: level if at else "node" for name, at, level in pairs}


def _resources(pairs: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair in pairs:
        name, _, amount = pair.partition("=")
        try:
            found[name] = float(amount)
        except ValueError:
            raise InputError(
                f"--resource {pair!r} has no amount; write {name or 'NAME'}=1"
            ) from None
    return found


def _profile(path: Path) -> Any:
    """Return the profile in a file: the object itself, or what `optsched profile` and the store of
    profiles write."""
    from ..files import read_bytes

    try:
        found = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no JSON: {error}") from None
    if isinstance(found, dict) and "profile" in found:
        found = found["profile"]
    if not isinstance(found, dict):
        raise InputError(
            f"{path}: holds no profile; write {{...}} as in instance files, or use `optsched "
            "profile -o`"
        )
    return found
