"""Lines and tables on standard output."""

import shutil
import sys
from typing import TYPE_CHECKING

import click

from ...picture.text import WIDE, WIDTH, as_text, short, table, with_length

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["WIDE", "short", "show", "table", "width", "with_length"]


def width() -> int:
    """Return how many columns there are."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


def show(*parts: "str | Table") -> None:
    """Print lines and tables; colours and the real width on a terminal only."""
    # Rich exits by itself when a pipe is closed, so it does not get to write.
    click.echo(as_text(parts, width(), sys.stdout))
