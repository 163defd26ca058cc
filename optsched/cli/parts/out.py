"""What a command says: an answer for machines or for people, and the files beside it."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import OptschedError
from .arguments import Command, flag_option

if TYPE_CHECKING:
    from rich.table import Table

Parts = Iterable["str | Table"]
"""Lines and tables, from the top down."""
Json = dict[str, Any]
"""An object of JSON: an answer, or a part of one."""

json_option = flag_option("--json", "Print JSON for machines instead of a table.", "as_json")
"""`--json`: one JSON object or list on stdout and nothing else."""
quiet_option = flag_option("-q, --quiet", "Print nothing but errors.")
"""`--quiet`: the exit status and the written files say it all."""


def width() -> int:
    """Return how many columns there are."""
    from ...picture.text import WIDTH

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


def show(*parts: "str | Table", err: bool = False) -> None:
    """Print lines and tables; colours and the real width on a terminal only."""
    from ...picture.text import as_text

    # Rich exits by itself when a pipe is closed, so it does not get to write.
    click.echo(as_text(parts, width(), sys.stdout), err=err)


class Out:
    """Print the answer, as JSON or for people. Files are written before anything is shown, as
    whoever reads the table may close the pipe; what cannot be written is told at the end."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self.as_json, self.quiet = as_json, quiet
        self._written: list[str] = []
        self._trouble: list[str] = []

    @property
    def talks(self) -> bool:
        """Tell whether lines for people are wanted."""
        return not (self.as_json or self.quiet)

    def say(self, text: str, err: bool = False) -> None:
        """Print a line for people."""
        if self.talks:
            click.echo(text, err=err)

    def answer(
        self, plain: Callable[[], Any], parts: Callable[[], Parts], err: bool = False
    ) -> None:
        """Print what `plain` returns, as JSON on one line where it is no text yet, or the lines and
        tables of `parts`."""
        if self.as_json:
            data = plain()
            text = data.rstrip("\n") if isinstance(data, str) else json.dumps(data)
            click.echo(text, err=err)
        elif not self.quiet:
            said = [*parts()]
            if said:
                show(*said, err=err)

    def write(self, what: str, path: Path | None, write: Callable[[Path], object]) -> None:
        """Have `write` write a file, if it is wanted."""
        if path is not None:
            self.attempt(lambda: (write(path), [f"{what}: {path}"])[1])

    def attempt(self, write: Callable[[], list[str]]) -> None:
        """Have `write` write files and say so."""
        try:
            self._written += write()
        except OptschedError as error:
            self._trouble.append(str(error))

    def finish(self) -> None:
        """Name what was written. Raise OptschedError for what could not be."""
        for line in self._written:
            self.say(line)
        if self._trouble:
            raise OptschedError("\noptsched: ".join(self._trouble))


def _turned_into_out(
    *options: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Callable[[Command], Command]:
    def decorated(command: Command) -> Command:
        @wraps(command)
        def answering(as_json: bool, quiet: bool = False, **named: Any) -> Any:
            return command(out=Out(as_json, quiet), **named)

        for option in reversed(options):
            answering = option(answering)
        return answering  # type: ignore[return-value]

    return decorated


answers = _turned_into_out(json_option, quiet_option)
"""`--json` and `--quiet`, turned into the argument `out`."""
answers_aloud = _turned_into_out(json_option)
"""`--json`, turned into the argument `out`."""
