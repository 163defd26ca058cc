"""The command line, one file a command, each imported only when it is used."""

import contextlib
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

import click

from .. import __version__
from ..errors import OptschedError, perhaps
from ..native_output import fill_closed_streams, own_stdout

COMMANDS = {
    "demo": "Run jobs on an emulated cluster: the place to start.",
    "solve": "Plan an instance: a checked plan with a proven gap.",
    "round": "Decide who runs now: a checked round with a proven gap.",
    "explain": "Say why each job runs, waits, moves or was preempted.",
    "simulate": "Simulate a policy: its plan is checked and measured.",
    "run": "Run jobs on real nodes, and survive crashes.",
    "pack": "Pack jobs onto parts of GPUs until no more fit.",
    "study": "Run many methods over many instances; resumable.",
    "verify": "Check a plan independently of what made it.",
    "bound": "Compute lower bounds that no plan can beat.",
    "verify-bound": "Check the certificate of a bound by plain arithmetic.",
    "profile": "Run a command briefly and measure it: the profile of a job.",
    "profiles": "List stored profiles and their versions.",
    "learn": "Train a learning policy in the simulator.",
    "generate": "Make an instance with jobs like those of a published trace.",
    "import": "Turn a trace or benchmark file into an instance.",
    "setup": "Print what to add to a cluster manager.",
    "reload": "Have the controller read its cluster.toml again.",
    "submit": "Submit a job to the controller.",
    "queue": "List jobs that wait, run or have finished.",
    "cancel": "Stop jobs for good.",
    "hold": "Keep jobs from running until they are released.",
    "release": "Let held jobs run again.",
    "shell": "Start a shell beside a running job.",
    "change": "Change what a job asks for.",
    "requeue": "Run jobs again from their last checkpoint.",
    "signal": "Send a signal to a running job.",
    "release-all": "Hand all held jobs back to Slurm.",
    "clear": "Confirm that nothing is left of a lost attempt.",
    "output": "Print what a job has printed.",
    "what-if": "Predict when a job will start, and what a change would do.",
    "shares": "Show what tenants and users are entitled to, and have used.",
    "rounds": "List the rounds that a controller decided.",
    "replay": "Decide a past round again, offline.",
    "regret": "Measure how far a period was from a proven bound, and why.",
    "account": "Report GPU-hours by user, tenant, day or job, and their waste.",
    "kueue": "Tell Kueue in which order to admit Workloads.",
    "maintain": "Keep nodes free of jobs for a while: maintenance.",
    "reserve": "Keep nodes for the jobs of some users or tenants.",
    "drain": "Let nodes run empty until they are undrained.",
    "undrain": "Let drained nodes take jobs again.",
    "windows": "List maintenance, reservations and drains; take them back.",
    "top": "Watch the live cluster: nodes, jobs and the last round.",
    "list": "List solvers, policies, formats, objectives and executors.",
    "schema": "Print the JSON Schema of instance, plan, round and other files.",
}
"""Name of each command, and its line in `optsched --help`."""
MODULES = {
    "import": "import_",
    "cancel": "change:cancel",
    "hold": "change:hold",
    "release": "change:release",
    "requeue": "change:requeue",
    "signal": "change:signal",
    "change": "change:change",
    "clear": "change:clear",
    "maintain": "windows:maintain",
    "reserve": "windows:reserve",
    "drain": "windows:drain",
    "undrain": "windows:undrain",
}
"""Modules that are not called as their commands, with the name of a command there that is not
`command`."""

GOOD, NO_PLAN_OR_CHECK_FAILED, BAD_INPUT, BUG, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 130, 141
"""Exit statuses; the last two are what a shell reports of a program stopped by these signals."""


class PipeClosedError(Exception):
    """Whoever read our output has gone: `optsched list policies | head -1`."""


class LazyGroup(click.Group):
    """Imports a command's module only when it is used; turns every error into one message and a
    status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        place = MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(
            importlib.import_module(f".{module}", __name__), attribute or "command"
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; one that does not exist is told with the nearest that does."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(
                f"command {args[0]!r} is unknown{perhaps(args[0], COMMANDS)}; `optsched --help` "
                "names them all"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe gets its own exit status, which click would make 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise PipeClosedError from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and exit with a status: 0 good, 1 no plan or check failed, 2 bad input, 3 a bug in
        optsched."""
        status = BUG
        fill_closed_streams()
        if sys.stdout is sys.__stdout__:  # else somebody catches it
            own_stdout()
        try:
            returned = super().main(
                args, prog_name or "optsched", complete_var, standalone_mode=False, **extra
            )
            sys.stdout.flush()
            status = returned if isinstance(returned, int) else GOOD
        except click.ClickException as error:
            error.show()
            status = BAD_INPUT
        except OptschedError as error:
            from ..picture.text import printable_lines

            click.echo(f"optsched: {printable_lines(str(error))}", err=True)
            status = BAD_INPUT
        except (KeyboardInterrupt, click.Abort):
            click.echo("optsched: interrupted", err=True)
            status = INTERRUPTED
        except (PipeClosedError, BrokenPipeError):
            _abandon_stdout()
            status = PIPE_CLOSED
        except OSError as error:
            _abandon_stdout()
            click.echo(
                f"optsched: {error.filename or 'output'}: {error.strerror or error}", err=True
            )
            status = BAD_INPUT
        except Exception as error:
            click.echo(
                f"optsched: a bug in optsched, not in your input: {type(error).__name__}: {error}"
                f"\nThe traceback is in {_save_traceback()}; please report it.",
                err=True,
            )
        sys.exit(status)


def _abandon_stdout() -> None:
    """Let what is left of the output go nowhere, as the interpreter flushes it once more at
    exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _save_traceback() -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="optsched-", suffix=".traceback", delete=False
    ) as out:
        out.write(
            f"optsched {__version__}, Python "
            f"{sys.version}\n{' '.join(sys.argv)}\n\n{traceback.format_exc()}"
        )
    return out.name


@click.group(
    "optsched",
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Schedule the jobs of a GPU cluster: an instance goes in, a checked plan with a proven gap
    comes out.

    \b
    optsched demo                                      see it work
    optsched solve cluster.json -o plan.json --gantt plan.html
    optsched verify cluster.json plan.json
    optsched round cluster.json                        who runs now
    optsched explain cluster.json                      and why

    Every command explains itself: optsched solve --help. Exit status: 0 good, 1 no plan or check
    failed, 2 bad input, 3 a bug in optsched. Durations are written 90, 90s, 5m, 2h or 1h30m.
    """
