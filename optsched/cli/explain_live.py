"""`optsched explain JOB`: the controller of a live cluster is asked."""

import json
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .parts.controller import NO_ANSWER


def explain_live(config: Path | None, jobs: tuple[str, ...], *, as_json: bool, quiet: bool) -> int:
    """Print why each job is where it is. Raises InputError for a job that is not there, or where no
    controller is named."""
    from ..control.api.client import NoControllerError, find_client

    try:
        client = find_client(config)
    except InputError as error:
        if config is not None:
            raise
        raise InputError(
            f"{jobs[0]}: there is no such file; to ask a controller about a job of that name: "
            f"{error}"
        ) from None
    found: list[dict[str, Any]] = []
    try:
        for name in dict.fromkeys(jobs):
            found.append(client.get(client.job_path(name, "explain")))
    except NoControllerError as error:
        click.echo(f"optsched: {error}", err=True)
        return NO_ANSWER
    if as_json:
        click.echo("[" + ",\n ".join(json.dumps(one) for one in found) + "]")
    elif not quiet:
        for number, one in enumerate(found):
            if number:
                click.echo()
            for sentence in one["sentences"]:
                click.echo(sentence)
    return 0
