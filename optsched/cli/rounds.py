"""`optsched rounds`: the rounds that a controller decided."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from ..errors import InputError
from .journal import clock_text, reads_journal
from .parts.arguments import count_option, json_option, make_folder
from .parts.outputs import print_json

if TYPE_CHECKING:
    from ..control.journal.journal import Journal, RoundEntry


@click.command("rounds")
@click.argument("number", type=click.IntRange(min=1), required=False, metavar="[ROUND]")
@count_option("--last", default=20, help="Number of recent rounds to list.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the instance and round files of ROUND into this folder.",
)
@json_option
@reads_journal
def command(
    journal: "Journal", number: int | None, last: int, output: Path | None, as_json: bool
) -> int:
    """List the rounds that a controller decided, or ROUND alone; with -o, write its files.

    Value and bound are those of the objective of the round (more is better); the gap is the most
    that could have been gained in that round. The files are like those of `optsched round`: solve,
    verify and explain them offline.

    \b
    optsched rounds --last 100
    optsched rounds 17 -o here
    optsched explain here/round-17.instance.json here/round-17.round.json
    """
    if output is not None and number is None:
        raise InputError("-o writes the files of one round; name it: optsched rounds 17 -o DIR")
    if number is None:
        entries = journal.rounds(last)
    else:
        entries = tuple(entry for entry in journal.rounds() if entry.number == number)
        if not entries:
            raise InputError(journal.no_round(number))
    written = _write(journal, number, output) if output is not None and number is not None else []
    if as_json:
        print_json([_plain(entry) for entry in entries])
        return 0
    if not entries:
        click.echo("no rounds yet")
        return 0
    _show(entries)
    pruned = journal.last_pruned()
    if pruned is not None and pruned.rounds_before_s is not None and number is None:
        click.echo(f"rounds decided before {clock_text(pruned.rounds_before_s)} were dropped")
    for path in written:
        click.echo(f"written: {path}")
    return 0


def _write(journal: "Journal", number: int, folder: Path) -> list[Path]:
    from ..files import write_text

    instance, decided = journal.round_files(number)
    make_folder(folder)
    paths = [folder / f"round-{number}.instance.json", folder / f"round-{number}.round.json"]
    for path, text in zip(paths, (instance, decided), strict=True):
        write_text(path, text)
    return paths


def _plain(entry: "RoundEntry") -> dict[str, Any]:
    return {**asdict(entry), "gap": entry.gap if math.isfinite(entry.gap) else None}


def _show(entries: "tuple[RoundEntry, ...]") -> None:
    from ..picture.facts import percent, quantity
    from .parts.table import show, table

    found = table(
        "round",
        "time",
        "jobs",
        "value",
        "bound",
        "gap",
        "took",
        "solver",
        "fallback",
        numeric=("round", "jobs", "value", "bound", "gap", "took"),
        folded=("fallback",),
    )
    for entry in entries:
        gap = percent(entry.gap) if math.isfinite(entry.gap) else "-"
        found.add_row(
            str(entry.number),
            clock_text(entry.at_s),
            f"{entry.jobs:,}",
            quantity(entry.value, ""),
            quantity(entry.bound, ""),
            gap,
            human(entry.wall_s),
            entry.solver,
            entry.fallback or "",
        )
    show(found)
