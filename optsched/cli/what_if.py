"""`optsched what-if`: what would become of the present jobs of a live cluster."""

import re
from typing import Any

import click

from ..duration import parse_duration
from ..errors import InputError
from .parts.arguments import count_option, flag_option, option, time_option
from .parts.controller import Client, asks_controller
from .parts.out import Json, Out, Parts, answers_aloud

LONGEST_S = 30.0


@click.command("what-if")
@click.argument("words", nargs=-1, metavar="[[when] JOB]")
@count_option("--gpus +N", "Add N GPUs, on nodes like the largest ones.", most=1_000_000)
@option(
    "--type TYPE", "With --gpus: on nodes like the largest ones with this GPU type.", "gpu_type"
)
@flag_option("--no-preemption", "Suppose that no running job can be preempted.")
@option("--without JOB", "Suppose that this job does not exist.")
@option("--node NAME down", "Suppose that this node goes down now.", "nodes", nargs=2)
@option(
    "--submit GPUS:TIME[:TYPE]",
    "Suppose that one more job is submitted now, such as 4:2h or 4:2h:a100.",
)
@time_option("--time-limit TIME", "Wall-clock limit for the answer, at most 30s.", default="10s")
@answers_aloud
@asks_controller
def command(
    client: Client,
    words: tuple[str, ...],
    nodes: tuple[str, str] | None,
    submit: str | None,
    time_limit: float,
    out: Out,
    **asked: Any,
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
    asked |= {
        "job": _job(words),
        "down": None if not nodes else _down(*nodes),
        "submit": None if submit is None else _submit(submit),
    }
    body = {name: value for name, value in asked.items() if value not in (None, False)}
    if asked["gpu_type"] is not None and asked["gpus"] is None:
        raise InputError("--type goes with --gpus; write --gpus +8 --type a100")
    if not body:
        raise InputError(
            "what if what? Name a job (when JOB), or give --gpus, --no-preemption, --without, "
            "--node or --submit"
        )
    answer = client.post("/v1/what-if", {"time_limit_s": _limit(time_limit), **body})
    out.answer(lambda: answer, lambda: _parts(answer))
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


def _submit(text: str) -> Json:
    match = re.fullmatch(r"([0-9]{1,9}):([^:]*)(?::([^:]+))?", text)
    try:
        if match is None:
            raise ValueError
        duration_s = parse_duration(match[2])
    except ValueError:
        wrong = f"--submit {text!r}: write GPUS:TIME or GPUS:TIME:TYPE, as 4:2h or 4:2h:a100"
        raise InputError(wrong) from None
    job = {"gpus": int(match[1]), "duration_s": duration_s}
    return job if match[3] is None else {**job, "gpu_types": [match[3]]}


def _parts(answer: Json) -> Parts:
    from ..picture.text import printable, table

    yield from map(printable, answer["sentences"])
    if answer["after"] is not None:
        rows = ((row["what"], row["before"], row["after"]) for row in answer["rows"])
        numeric = ("as things are", "if so")
        yield from ("", table("", *numeric, rows=rows, numeric=numeric), "")
    yield from (f"note: {note}" for note in answer["notes"])
    yield f"This assumes that {answer['limits']}."
