"""What the commands that ask a controller have in common."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import path_option

if TYPE_CHECKING:
    from ...control.api.client import Client as Client
else:  # it is imported when it is used
    Client = Any

NO_ANSWER = 1


def asks_controller(command: Callable[..., int]) -> Callable[..., int]:
    """Turn `--config` into the argument `client`; where no controller answers, one sentence and
    status 1."""

    @wraps(command)
    def asking(config: Path | None, **named: Any) -> int:
        from ...control.api.client import NoControllerError, find_client

        try:
            return command(client=find_client(config), **named)
        except NoControllerError as error:
            click.echo(f"optsched: {error}", err=True)
            return NO_ANSWER

    return path_option(
        "--config FILE",
        "The cluster.toml of the controller; by default $OPTSCHED_URL (with $OPTSCHED_TOKEN), "
        "$OPTSCHED_CONFIG or ./cluster.toml.",
    )(asking)


def all_jobs(
    client: Client, *, everybody: bool, finished: bool, most: int
) -> tuple[list[dict[str, Any]], int]:
    """Return jobs of a queue, page by page, `most` at the most, and how many there are."""
    jobs: list[dict[str, Any]] = []
    page: str | None = None
    while True:
        answer = client.get(
            "/v1/jobs",
            all=everybody,
            finished=finished,
            limit=max(1, min(1000, most - len(jobs))),
            page=page,
        )
        jobs += answer["jobs"]
        page = answer["next"]
        if page is None or len(jobs) >= most:
            return jobs, answer["total"]
