"""`optsched what-if`: what would become of the present jobs of a live cluster."""

from typing import TYPE_CHECKING, Any

import click

from ..duration import parse_duration
from ..errors import InputError
from .parts.arguments import count_option, flag_option, json_option, time_option
from .parts.controller import asks_controller
from .parts.outputs import print_json

if TYPE_CHECKING:
    from ..control.api.client import Client

LONGEST_S = 30.0


@click.command("what-if")
@click.argument("words", nargs=-1, metavar="[[when] JOB]")
@count_option(
    "--gpus", most=1_000_000, metavar="+N", help="Add N GPUs, on nodes like the largest ones."
)
@click.option(
    "--type",
    "gpu_type",
    metavar="TYPE",
    help="With --gpus: on nodes like the largest ones with this GPU type.",
)
@flag_option("--no-preemption", help="Suppose that no running job can be preempted.")
@click.option("--without", metavar="JOB", help="Suppose that this job does not exist.")
@click.option(
    "--node", "nodes", nargs=2, metavar="NAME down", help="Suppose that this node goes down now."
)
@click.option(
    "--submit",
    metavar="GPUS:TIME[:TYPE]",
    help="Suppose that one more job is submitted now, such as 4:2h or 4:2h:a100.",
)
@time_option("--time-limit", default="10s", help="Wall-clock limit for the answer, at most 30s.")
@json_option
@asks_controller
def command(
    client: "Client",
    words: tuple[str, ...],
    gpus: int | None,
    gpu_type: str | None,
    no_preemption: bool,
    without: str | None,
    nodes: tuple[str, str] | None,
    submit: str | None,
    time_limit: float,
    as_json: bool,
) -> int:
    """Predict when JOB will start, and what would change with more GPUs, without preemption, or
    with a node down.

    The present state of the cluster is copied and simulated to the end, once as it is and once with
    all given changes; the cluster itself is not touched. The prediction assumes that no more jobs
    arrive, that every job runs as long as estimated, and that nothing fails.

    \b
    optsched what-if when bert-17
    optsched what-if --gpus +8 --type a100
    optsched what-if bert-17 --no-preemption
    optsched what-if --node gpu-3 down
    optsched what-if --submit 4:2h
    """
    body: dict[str, Any] = {"time_limit_s": _limit(time_limit)}
    job = _job(words)
    given = {
        "job": job,
        "gpus": gpus,
        "gpu_type": gpu_type,
        "no_preemption": no_preemption or None,
        "without": without,
        "down": None if not nodes else _down(*nodes),
        "submit": None if submit is None else _submit(submit),
    }
    body |= {name: value for name, value in given.items() if value is not None}
    if gpu_type is not None and gpus is None:
        raise InputError("--type goes with --gpus; write --gpus +8 --type a100")
    if len(body) == 1:
        raise InputError(
            "what if what? Name a job (when JOB), or give --gpus, --no-preemption, --without, "
            "--node or --submit"
        )
    found = client.post("/v1/what-if", body)
    if as_json:
        print_json(found)
    else:
        _show(found)
    return 0


def _limit(seconds: float) -> float:
    if not 0.1 <= seconds <= LONGEST_S:
        raise InputError("--time-limit: give between 100ms and 30s")
    return seconds


def _job(words: tuple[str, ...]) -> str | None:
    if len(words) > 1 and words[0] == "when":
        words = words[1:]
    if len(words) > 1:
        raise InputError(
            f"{' '.join(words)!r}: ask about one job, as in: optsched what-if when {words[0]}"
        )
    return words[0] if words else None


def _down(name: str, state: str) -> str:
    if state != "down":
        raise InputError(f"--node {name} {state!r}: it can only go down; write --node {name} down")
    return name


def _submit(text: str) -> dict[str, Any]:
    parts = text.split(":")
    wrong = InputError(
        f"--submit {text!r}: write GPUS:TIME or GPUS:TIME:TYPE, as 4:2h or 4:2h:a100"
    )
    if (
        not 2 <= len(parts) <= 3
        or not parts[0].isascii()
        or not parts[0].isdecimal()
        or len(parts[0]) > 9
    ):
        raise wrong
    try:
        found: dict[str, Any] = {"gpus": int(parts[0]), "duration_s": parse_duration(parts[1])}
    except ValueError:
        raise wrong from None
    if len(parts) == 3:
        if not parts[2]:
            raise wrong
        found["gpu_types"] = [parts[2]]
    return found


def _show(found: dict[str, Any]) -> None:
    from .parts.table import show, table

    lines: list[Any] = [*found["sentences"]]
    if found["after"] is not None:
        rows = table("", "as things are", "if so", numeric=("as things are", "if so"))
        for row in found["rows"]:
            rows.add_row(row["what"], row["before"], row["after"])
        lines += ["", rows, ""]
    lines += [f"note: {note}" for note in found["notes"]]
    lines.append(f"This assumes that {found['limits']}.")
    show(*lines)
