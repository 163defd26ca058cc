"""Arguments that several commands take, and the checks on them."""

import math
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from ...errors import InputError, perhaps
from ...model import Instance
from ...plugins.options import read_pairs
from .duration import duration

Command = TypeVar("Command", bound=Callable[..., Any])


def option(
    usage: str, help: str, name: str | None = None, **settings: Any
) -> Callable[[Command], Command]:
    """Return an option, written as its help shows it: `-o, --output DIR`. The command gets it as
    `name`, by default that of its flag."""
    flags, _, metavar = re.sub(", -", ",-", usage).partition(" ")
    names = (*flags.split(","), *([name] if name else []))
    return click.option(*names, help=help, metavar=metavar or None, **settings)


class Choice(click.Choice[str]):
    """One of several words; a misspelt one is answered with the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        return message.removesuffix(".") + perhaps(str(value), self.choices) + "."


path_option = partial(option, type=click.Path(path_type=Path))
"""An option that is the name of a file or folder."""
time_option = partial(option, type=duration)
"""An option that is a length of time; the command gets seconds."""
flag_option = partial(option, is_flag=True)
"""An option that is there or not."""
many_option = partial(option, multiple=True)
"""An option that may be given several times; the command gets a tuple."""


def count_option(
    usage: str,
    help: str,
    name: str | None = None,
    least: int = 1,
    most: int | None = None,
    **settings: Any,
) -> Callable[[Command], Command]:
    """Return an option that is a whole number in a range."""
    return option(usage, help, name, type=click.IntRange(least, most), **settings)


def amount_option(
    usage: str, help: str, most: float | None = None, **settings: Any
) -> Callable[[Command], Command]:
    """Return an option that is a number above 0, at most so much."""
    return option(usage, help, type=click.FloatRange(0, most, min_open=True), **settings)


def seed_option(help: str = "Random seed.", metavar: str = "N") -> Callable[[Command], Command]:
    """Return `--seed`."""
    return count_option(f"--seed {metavar}", help, least=0, default=0)


def pairs_option(what: str) -> Callable[[Command], Command]:
    """Return `--option KEY=VALUE` of a solver or policy; the command gets `options`, a table."""
    return many_option(
        "--option KEY=VALUE",
        f"An option of the {what}; repeatable.",
        "options",
        callback=lambda context, parameter, pairs: read_pairs(pairs),
    )


gantt_option = path_option(
    "--gantt PICTURE",
    "Draw the plan: .html is an interactive page that works offline; .svg, .png and .pdf are "
    "figures.",
)
instance_argument = click.argument("instance", metavar="INSTANCE")


objective_option = option(
    "--objective NAME",
    "What to minimise: a name from `optsched list objectives`, a weighted sum "
    "(0.7*makespan+0.3*wct), or several in order of importance (deadline,wct); wct@2 counts jobs "
    "of priority 2 or higher.",
    default="wct",
)


def load(source: str, *, now_only: bool = False) -> Instance:
    """Return the instance in a file, or on stdin for `-`. Raises InputError naming every fault;
    with `now_only` it is none that no whole plan exists."""
    from ... import files

    if source != "-":
        return files.read_instance(source, now_only=now_only)
    return files.load_instance(sys.stdin.buffer.read(), "stdin", now_only=now_only)


def check_outputs(outputs: dict[str, Path | None], source: str) -> None:
    """Make sure before any work that each output (by option name) can be written and overwrites no
    input.

    Raises InputError saying which cannot, and what would be right.
    """
    taken: dict[str, str] = {} if source == "-" else {os.path.realpath(source): "the instance"}
    for option, path in outputs.items():
        if path is None:
            continue
        real = os.path.realpath(path)
        if real in taken:
            raise InputError(f"{option} {path} would overwrite {taken[real]}; give another name")
        if path.is_dir():
            raise InputError(
                f"{option} {path} is a directory; name a file in it, as in {path / 'plan.json'}"
            )
        folder = Path(real).parent
        if not folder.is_dir():
            raise InputError(
                f"{option} {path}: the directory {folder} does not exist; make it first"
            )
        if not os.access(path if path.exists() and not path.is_file() else folder, os.W_OK):
            raise InputError(f"{option} {path}: no permission to write there")
        if path.is_file() or not path.exists():  # a device such as /dev/null may be named twice
            taken[real] = f"the file of {option}"


def make_folder(folder: Path) -> None:
    """Make the folder that -o names, with its parents. Raises InputError where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {folder}: cannot be made: {error.strerror or error}") from None


def amounts(named: str, pairs: tuple[str, ...], *, whole: bool = False) -> dict[str, float]:
    """Return the amounts of an option that is written NAME=AMOUNT. Raises InputError for one that
    is not."""
    found: dict[str, float] = {}
    for pair in pairs:
        name, _, amount = pair.partition("=")
        try:
            found[name] = int(amount) if whole else float(amount)
        except ValueError:
            found[name] = math.nan
        if not (name and 0 <= found[name] < math.inf):
            number = "a whole number" if whole else "a number"
            says = f"write {name or 'NAME'}=N with {number} from 0 on"
            raise InputError(f"{named} {pair!r} has no amount; {says}")
    return found
