"""`optsched run`: drive real nodes."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import quiet_option

if TYPE_CHECKING:
    from ..control.events import Event

CONFIG = "cluster.toml"


@click.command("run")
@click.option(
    "--config", type=click.Path(path_type=Path), default=CONFIG, show_default=True, envvar="OPTSCHED_CONFIG",
    metavar="FILE", help="The cluster and how to drive it.",
)
@quiet_option
def command(config: Path, quiet: bool) -> int:
    """Run jobs on real nodes: decide who runs where, start, preempt and resume, until interrupted.

    Jobs come from `optsched submit`. Everything is written to a journal before it is done: after a crash, or after
    Ctrl-C, the same command goes on where it was, and jobs that run go on running in between. Exit status 0 after
    SIGTERM or Ctrl-C, 1 where the journal cannot be written (nothing is started then), 2 for bad input.

    \b
    optsched run --config cluster.toml
    """
    import signal

    from ..control.journal import JournalFault
    from ..control.log import line
    from ..control.loop import Loop
    from ..control.opening import opened
    from ..control.settings import read_settings

    settings = read_settings(config)
    with opened(settings) as controller:
        def show(at_s: float, event: "Event") -> None:
            text = line(at_s, event)
            if text is not None:
                click.echo(text)

        if not quiet:
            controller.listeners.append(show)
            gpus = sum(node.gpus for node in controller.cluster.nodes)
            click.echo(
                f"{settings.name}: {len(controller.cluster.nodes)} nodes, {gpus} GPUs, "
                f"{len(controller.state.open)} jobs not finished; state in {settings.state}"
            )
        loop = Loop(controller)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: loop.stop())
        try:
            loop.run()
        except JournalFault as error:
            click.echo(f"Error: {error}; stopped, what runs goes on running", err=True)
            return 1
    return 0
