"""`optsched run`: drive real nodes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..noun import number_of
from .parts.arguments import flag_option, path_option
from .parts.out import Json, Out, answers

if TYPE_CHECKING:
    from ..control.journal.events import Event
    from ..control.settings import Settings

CONFIG = "cluster.toml"


@click.command("run")
@path_option(
    "--config FILE",
    "The cluster file: its nodes, and how to drive them.",
    default=CONFIG,
    envvar="OPTSCHED_CONFIG",
)
@flag_option(
    "--web", "Also serve the dashboard, on the port that [api] in FILE names, or on a free one."
)
@answers
def command(config: Path, web: bool, out: Out) -> int:
    """Run jobs on real nodes: decide who runs where, start, preempt and resume, until interrupted.

    Submit jobs with `optsched submit`; look at them with `optsched queue`, `explain`, `what-if` and
    `top`. Everything is written to a journal before it is done: after a crash or Ctrl-C, the same
    command continues where it was, and running jobs keep running in between. On SIGHUP it reads
    FILE again, as `optsched reload` has it do. Exit status: 0 after SIGTERM or Ctrl-C, 1 if the
    journal cannot be written (nothing is started then), 2 for bad input.

    \b
    optsched run --config cluster.toml
    optsched run --config cluster.toml --web
    optsched run --config cluster.toml --json | jq 'select(.event == "AttemptEnded")'
    """
    import signal
    import sys

    from ..control.api.place import TOKEN, VIEW_TOKEN
    from ..control.api.server import read_token, serve
    from ..control.forecasting import Forecaster
    from ..control.journal.journal import JournalError
    from ..control.journal.log import line
    from ..control.loop import Loop
    from ..control.opening import opened
    from ..control.settings import read_settings

    def read() -> "Settings":
        settings = read_settings(config)
        if not web or settings.api.port is not None:
            return settings
        api = settings.api.model_copy(update={"port": 0})
        return settings.model_copy(update={"api": api})

    settings = read()
    with opened(settings) as controller:

        def show(at_s: float, event: "Event") -> None:
            text = line(at_s, event)
            if out.as_json:
                named = {"at_s": at_s, "event": type(event).__name__}
                click.echo(json.dumps(named | _for_logs(event)))
            elif text is not None:
                out.say(text)

        if out.as_json or not out.quiet:
            controller.listeners.append(show)
        loop = Loop(controller)
        loop.read = read
        server = serve(loop, settings)
        if out.talks:
            controller.look()
            nodes = len(controller.statuses)
            gpus = sum(status.node.gpus for status in controller.statuses)
            click.echo(
                f"{settings.name}: {number_of(nodes, 'node')}, {number_of(gpus, 'GPU')}, "
                f"{number_of(len(controller.state.open), 'job')} not finished; "
                f"state in {settings.state}"
            )
        if web and not out.quiet:
            on_terminal = (sys.stderr if out.as_json else sys.stdout).isatty()
            for what, name in (("dashboard", TOKEN), ("to look only", VIEW_TOKEN)):
                path = settings.state / name
                # a log may be read by others
                token = (
                    read_token(path) if on_terminal else f"TOKEN, with the text of {path} as TOKEN"
                )
                click.echo(f"{what}: {server.url}/#{token}", err=out.as_json)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: loop.stop())
        terminal = sys.stdin.isatty()

        def hung_up(*_: object) -> None:
            """Read FILE again, or end with the terminal that was closed."""
            loop.stop() if terminal and not sys.stdin.isatty() else loop.reload_soon()

        signal.signal(signal.SIGHUP, hung_up)
        try:
            with Forecaster(loop, settings.state):
                loop.run()
        except JournalError as error:
            click.echo(f"Error: {error}; stopped, what runs goes on running", err=True)
            return 1
        finally:
            server.close()
    return 0


def _for_logs(event: "Event") -> Json:
    """Return the event as JSON, without the variables of a job: they hold passwords."""
    from ..control.journal.events import dump_event

    plain: Json = json.loads(dump_event(event))
    plain.get("submission", {}).pop("environment", None)
    return plain
