"""`optsched reload`: have the controller read its cluster.toml again."""

import click

from ..picture.text import printable
from .parts.controller import Client, asks_controller
from .parts.out import Out, Parts, answers


@click.command("reload")
@answers
@asks_controller
def command(client: Client, out: Out) -> int:
    """Have the controller read its cluster.toml again; what runs goes on.

    Nodes, tenants, limits, retention, the policy and times change at once. A faulty file changes
    nothing, and neither does one that changes what only a restart can change: the folders, the
    executor and the port. Waiting jobs that cannot run any more are named. Administrators only.

    \b
    optsched reload --config cluster.toml
    """
    answer = client.post("/v1/reload")

    def parts() -> Parts:
        yield f"changed: {', '.join(answer['changed'])}" if answer["changed"] else "nothing changed"
        for name, why in answer["unfit"].items():
            yield f"{name} cannot run any more: {printable(why)}"

    out.answer(lambda: answer, parts)
    return 0
