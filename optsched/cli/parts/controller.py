"""What the commands that ask a controller have in common."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import option, path_option

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


def chosen_jobs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn the options that say which jobs are meant into the argument `chosen`, fields of a
    request."""

    @wraps(command)
    def choosing(
        user: str | None,
        tenant: str | None,
        state: str | None,
        array: str | None,
        name: str | None,
        **named: Any,
    ) -> Any:
        chosen = {"user": user, "tenant": tenant, "state": state, "array": array, "name": name}
        return command(chosen=chosen, **named)

    for named in (
        option("--name GLOB", "Only jobs whose name matches, as 'sweep-*'."),
        option("--array NAME", "Only tasks of this job array."),
        option("--state STATUS", "Only jobs with this status; several with commas between."),
        option("--tenant NAME", "Only jobs of this tenant."),
        option("--user NAME", "Only jobs of this user (others: administrators only)."),
    ):
        choosing = named(choosing)
    return choosing


def all_jobs(client: Client, *, most: int, **query: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the jobs that a query asks for, page by page, `most` at the most, and how many there
    are."""
    jobs: list[dict[str, Any]] = []
    page: str | None = None
    while True:
        limit = max(1, min(1000, most - len(jobs)))
        answer = client.get("/v1/jobs", limit=limit, page=page, **query)
        jobs += answer["jobs"]
        page = answer["next"]
        if page is None or len(jobs) >= most:
            return jobs, answer["total"]
