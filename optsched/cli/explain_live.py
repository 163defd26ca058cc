"""`optsched explain JOB`: the controller of a live cluster is asked."""

from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .explain import listed
from .parts.controller import NO_ANSWER
from .parts.out import Out


def explain_live(config: Path | None, jobs: tuple[str, ...], out: Out) -> int:
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
    answers: list[dict[str, Any]] = []
    try:
        for name in dict.fromkeys(jobs):
            answers.append(client.get(client.job_path(name, "explain")))
    except NoControllerError as error:
        click.echo(f"optsched: {error}", err=True)
        return NO_ANSWER
    said = ("\n".join(answer["sentences"]) for answer in answers)
    out.answer(lambda: listed(answers), lambda: ["\n\n".join(said)])
    return 0
