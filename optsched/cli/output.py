"""`optsched output`: what a job prints."""

import json
import re
import sys
import time
from collections.abc import Iterator

import click

from .parts.arguments import count_option, flag_option
from .parts.controller import Client, asks_controller
from .parts.out import Json, Out, answers_aloud

FINISHED = ("completed", "failed", "timeout", "cancelled")
LONGEST_PAUSE_S = 2.0
CONTROL = re.compile(r"(\x1b\[[0-9;:]*m)|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Colours, as a group, and all that steers a terminal but tabs, ends of lines, and what progress
bars go back by: backspace and carriage return, which leave no line."""
RESET = "\x1b[m"


@click.command("output")
@click.argument("job")
@flag_option(
    "-f, --follow", "Follow until the job has ended, across all its attempts.", "following"
)
@count_option("--tail KIB", "Print only the last KIB kibibytes.", most=1024, default=64)
@count_option("--attempt N", "Print the output of this attempt (default: the last one).")
@flag_option("--stderr", "Print stderr instead of stdout.")
@answers_aloud
@asks_controller
def command(
    client: Client,
    job: str,
    following: bool,
    tail: int,
    attempt: int | None,
    stderr: bool,
    out: Out,
) -> int:
    """Print what JOB has printed; with -f, follow it.

    \b
    optsched output train-1
    optsched output train-1 -f
    """
    stream = "stderr" if stderr else "stdout"
    if following:
        for text, _ in follow(client, job, (stream,), attempt):
            _echo({"text": text}, out)
        return 0
    answer = client.get(client.job_path(job, "output"), stream=stream, attempt=attempt, tail=tail)
    _echo(answer, out)
    return 0


def _echo(answer: Json, out: Out) -> None:
    text = json.dumps(answer) if out.as_json else answer["text"]
    if sys.stdout.isatty():
        text = on_terminal(text)
    click.echo(text, nl=out.as_json, color=True)  # colours included, also into a pipe


def on_terminal(text: str) -> str:
    """Return what a job printed without what could steer the terminal of who reads it: root reads
    what others print. Its colours end with it, as one hides all that comes after."""
    shown = CONTROL.sub(lambda found: found[1] or "?", text)
    return f"{shown}{RESET}" if "\x1b" in shown else shown


def follow(
    client: Client,
    job: str,
    streams: tuple[str, ...] = ("stdout", "stderr"),
    attempt: int | None = None,
) -> Iterator[tuple[str, bool]]:
    """Yield what a job prints as it comes, and whether it is stderr, until it has ended; with
    `attempt`, until that has. A controller that is away is waited for. Raises ApiError where there
    is no such job."""
    number, pause_s = attempt or 1, 0.1
    at = dict.fromkeys(streams, 0)
    while True:
        detail = _once_there(client, job)
        attempts = detail["attempts"]
        came = False
        over = number <= len(attempts) and attempts[number - 1]["ended_s"] is not None
        if number <= len(attempts):
            for stream in streams:
                for text, after in _rest(client, job, stream, number, at[stream]):
                    came, at[stream] = True, after
                    yield text, stream == "stderr"
        finished = detail["job"]["status"] in FINISHED
        if over and attempt is None and number < len(attempts):
            number, at = number + 1, dict.fromkeys(streams, 0)
            continue
        if finished or (over and attempt is not None):
            return
        pause_s = 0.1 if came else min(LONGEST_PAUSE_S, pause_s * 1.5)
        time.sleep(pause_s)


def ended(client: Client, job: str) -> Json:
    """Return the job once it has ended."""
    while (answer := _once_there(client, job)["job"])["status"] not in FINISHED:
        time.sleep(0.5)
    return dict(answer)


def exit_status(job: Json) -> int:
    """Return what a shell would report of its command; 1 where that is not known, or it was
    cancelled."""
    status = job["exit_status"]
    if job["status"] == "completed":
        return 0
    if job["status"] == "cancelled" or not status:
        return 1
    return 128 - status if status < 0 else int(status)


def _once_there(client: Client, job: str) -> Json:
    from ..control.api.client import NoControllerError

    told = False
    while True:
        try:
            return dict(client.get(client.job_path(job)))
        except NoControllerError as error:
            if not told:
                click.echo(f"optsched: {error}; waiting for it", err=True)
            told = True
            time.sleep(LONGEST_PAUSE_S)


def _rest(
    client: Client, job: str, stream: str, number: int, start: int
) -> Iterator[tuple[str, int]]:
    from ..control.api.client import ApiError, NoControllerError

    while True:
        try:
            answer = client.get(
                client.job_path(job, "output"), stream=stream, attempt=number, start=start
            )
        except NoControllerError:
            return
        except ApiError as error:
            if error.status != 404:
                raise
            return  # nothing was printed, or it is not kept
        if not answer["text"]:
            return
        start = answer["next"]
        yield answer["text"], start
