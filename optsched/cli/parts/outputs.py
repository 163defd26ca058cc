"""Files that a command writes beside what it prints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...errors import OptschedError


def print_json(answer: Any) -> None:
    """Print the answer for machines, on one line."""
    click.echo(json.dumps(answer))


class Outputs:
    """Write files before anything is shown, as whoever reads the table may close the pipe; what
    cannot be written is told at the end."""

    def __init__(self) -> None:
        self._written: list[str] = []
        self._trouble: list[str] = []

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

    def tell(self, *, quiet: bool) -> None:
        """Name what was written. Raise OptschedError for what could not be."""
        for line in self._written if not quiet else ():
            click.echo(line)
        if self._trouble:
            raise OptschedError("\noptsched: ".join(self._trouble))
