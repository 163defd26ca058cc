"""`optsched cancel`, `optsched hold`, `optsched release`, `optsched clear`: change jobs that were
submitted."""

import json
from typing import TYPE_CHECKING

import click

from .parts.arguments import json_option, quiet_option
from .parts.controller import asks_controller

if TYPE_CHECKING:
    from ..control.api.client import Client

NOT_ALL = 1
DONE = {
    "cancel": "is cancelled",
    "hold": "is held",
    "release": "is released",
    "clear": "is cleared",
}


def _change(
    client: "Client", jobs: tuple[str, ...], change: str, as_json: bool, quiet: bool
) -> int:
    """Change each job; those that cannot be are told on stderr, and make the status 1."""
    from ..control.api.client import ApiError

    changed = []
    for name in jobs:
        try:
            changed.append(client.post(client.job_path(name, change)))
        except ApiError as error:
            click.echo(f"optsched: {error}", err=True)
            continue
        if not as_json and not quiet:
            click.echo(f"{name} {DONE[change]}")
    if as_json:
        click.echo(json.dumps(changed))
    return 0 if len(changed) == len(jobs) else NOT_ALL


@click.command("cancel")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@json_option
@quiet_option
@asks_controller
def cancel(client: "Client", jobs: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Stop each JOB for good; a running job may save first."""
    return _change(client, jobs, "cancel", as_json, quiet)


@click.command("hold")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@json_option
@quiet_option
@asks_controller
def hold(client: "Client", jobs: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Keep each JOB from running until it is released; a running job saves and stops."""
    return _change(client, jobs, "hold", as_json, quiet)


@click.command("release")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@json_option
@quiet_option
@asks_controller
def release(client: "Client", jobs: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Let each held JOB run again, from where it saved."""
    return _change(client, jobs, "release", as_json, quiet)


@click.command("clear")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@json_option
@quiet_option
@asks_controller
def clear(client: "Client", jobs: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Vouch that nothing is left of each JOB's attempt, which is lost or cannot be ended.

    Look on its nodes first: what it held is given to others, and the job runs again unless it was
    cancelled. Only administrators can, where the attempt may still run as far as the controller can
    know.
    """
    return _change(client, jobs, "clear", as_json, quiet)
