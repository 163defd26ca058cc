"""`optsched cancel`, `optsched hold`, `optsched release`, `optsched clear`: change jobs that were
submitted."""

import sys
from typing import Any

import click

from ..errors import InputError
from .parts.arguments import flag_option
from .parts.controller import Client, asks_controller, chosen_jobs
from .parts.out import Out, answers

NOT_ALL = 1
HANDFUL = 5
"""Of more jobs than these the user of a terminal is asked first."""
DONE = {"cancel": "cancelled", "hold": "held", "release": "released", "clear": "cleared"}


def _each(client: Client, change: str, jobs: tuple[str, ...], out: Out) -> int:
    """Make a change to each of the jobs that are named."""
    from ..control.api.client import ApiError

    changed = []
    for name in jobs:
        try:
            changed.append(client.post(client.job_path(name, change)))
            out.say(f"{name} is {DONE[change]}")
        except ApiError as error:
            click.echo(f"optsched: {error}", err=True)
    out.answer(lambda: changed, tuple)
    return 0 if len(changed) == len(jobs) else NOT_ALL


def _command(change: str, help: str) -> click.Command:
    """Return the command that makes this change to the jobs that are named, or chosen."""

    @click.command(change, help=help)
    @click.argument("jobs", nargs=-1, metavar="[JOB...]")
    @chosen_jobs
    @flag_option("--all", "Choose from jobs of all users (administrators only).", "everybody")
    @flag_option("--yes", f"Do not ask, however many jobs; else asked beyond {HANDFUL}.")
    @answers
    @asks_controller
    def command(
        client: Client,
        jobs: tuple[str, ...],
        chosen: dict[str, str | None],
        everybody: bool,
        yes: bool,
        out: Out,
    ) -> int:
        asked: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
        if bool(jobs) == bool(asked):
            raise InputError("name jobs, or choose them by --name, --state, --user or --tenant")
        if jobs:
            return _each(client, change, jobs, out)
        if not yes and sys.stdin.isatty():
            count = client.get("/v1/jobs", all=everybody, limit=1, **asked)["total"]
            if count > HANDFUL:
                click.confirm(f"{change} {count:,} jobs?", abort=True, err=True)
        body = asked | ({"all": True} if everybody else {})
        changed = client.post(f"/v1/{change}", body)["jobs"]
        out.answer(lambda: {"jobs": changed}, lambda: [_counted(changed, DONE[change])])
        return 0

    return command


def _counted(jobs: list[str], done: str) -> str:
    if len(jobs) == 1:
        return f"{jobs[0]} is {done}"
    shown = ", ".join(jobs[:HANDFUL]) + (", ..." if len(jobs) > HANDFUL else "")
    return f"{len(jobs):,} jobs are {done}" + (f": {shown}" if jobs else "")


cancel = _command(
    "cancel",
    "Stop jobs for good: each JOB, or all that are chosen; running jobs may save first."
    "\n\n\b\noptsched cancel train-7\noptsched cancel --name 'sweep-*' --state waiting",
)
hold = _command(
    "hold",
    "Keep jobs from running until they are released: each JOB, or all that are chosen; running "
    "jobs save and stop.",
)
release = _command(
    "release", "Let held jobs run again, from where they saved: each JOB, or all that are chosen."
)


@click.command("clear")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@answers
@asks_controller
def clear(client: Client, jobs: tuple[str, ...], out: Out) -> int:
    """Confirm that nothing is left of each JOB's attempt, which is lost or cannot be ended.

    Look on its nodes first: what it held is given to others, and the job runs again unless it was
    cancelled. Only administrators can do this while the attempt may still be running as far as the
    controller can know.
    """
    return _each(client, "clear", jobs, out)
