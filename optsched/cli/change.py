"""`optsched cancel`, `optsched hold`, `optsched release`, `optsched clear`: change jobs that were
submitted."""

import click

from .parts.controller import Client, asks_controller
from .parts.out import Out, answers

NOT_ALL = 1
DONE = {"cancel": "cancelled", "hold": "held", "release": "released", "clear": "cleared"}


def _command(change: str, help: str) -> click.Command:
    """Return the command that makes this change to each job."""

    @click.command(change, help=help)
    @click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
    @answers
    @asks_controller
    def command(client: Client, jobs: tuple[str, ...], out: Out) -> int:
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

    return command


cancel = _command("cancel", "Stop each JOB for good; a running job may save first.")
hold = _command(
    "hold", "Keep each JOB from running until it is released; a running job saves and stops."
)
release = _command("release", "Let each held JOB run again, from where it saved.")
clear = _command(
    "clear",
    "Confirm that nothing is left of each JOB's attempt, which is lost or cannot be ended."
    "\n\nLook on its nodes first: what it held is given to others, and the job runs again unless "
    "it was cancelled. Only administrators can do this while the attempt may still be running as "
    "far as the controller can know.",
)
