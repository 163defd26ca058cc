"""`optsched rounds`: the rounds that a controller decided."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from ..errors import InputError
from .journal import Journal, clock_text, reads_journal
from .parts.arguments import count_option, make_folder, option
from .parts.out import Out, Parts, answers_aloud

if TYPE_CHECKING:
    from rich.table import Table

    from ..control.journal.journal import RoundEntry


@click.command("rounds")
@click.argument("number", type=click.IntRange(min=1), required=False, metavar="[ROUND]")
@count_option("--last N", "Number of recent rounds to list.", default=20)
@option(
    "-o, --output DIR",
    "Write the instance and round files of ROUND into this folder.",
    type=click.Path(path_type=Path, file_okay=False),
)
@answers_aloud
@reads_journal
def command(journal: Journal, number: int | None, last: int, output: Path | None, out: Out) -> int:
    """List the rounds that a controller decided, or ROUND alone with what is noted of it; with -o,
    write its files.

    Value and bound are those of the objective of the round (more is better); the gap is the most
    that could have been gained by other starts in that round. How far the plan that it leads to may
    be from the best is among its notes. The files are like those of `optsched round`: solve,
    verify and explain them offline.

    \b
    optsched rounds --last 100
    optsched rounds 17 -o here
    optsched explain here/round-17.instance.json here/round-17.round.json
    """
    from ..round.files import load_round

    if output is not None and number is None:
        raise InputError("-o writes the files of one round; name it: optsched rounds 17 -o DIR")
    if number is None:
        entries = journal.rounds(last)
    else:
        entries = tuple(entry for entry in journal.rounds() if entry.number == number)
        if not entries:
            raise InputError(journal.no_round(number))
    notes = () if number is None else load_round(journal.round_files(number)[1]).notes
    written = _write(journal, number, output) if output is not None and number is not None else []

    def parts() -> Parts:
        if not entries:
            yield "no rounds yet"
            return
        yield _table(entries)
        yield from (f"note: {note}" for note in notes)
        pruned = journal.last_pruned()
        if pruned is not None and pruned.rounds_before_s is not None and number is None:
            yield f"rounds decided before {clock_text(pruned.rounds_before_s)} were dropped"
        yield from (f"written: {path}" for path in written)

    out.answer(lambda: [_plain(entry) for entry in entries], parts)
    return 0


def _write(journal: Journal, number: int, folder: Path) -> list[Path]:
    from ..files import write_text

    instance, decided = journal.round_files(number)
    make_folder(folder)
    paths = [folder / f"round-{number}.instance.json", folder / f"round-{number}.round.json"]
    for path, text in zip(paths, (instance, decided), strict=True):
        write_text(path, text)
    return paths


def _plain(entry: "RoundEntry") -> dict[str, Any]:
    return {**asdict(entry), "gap": entry.gap if math.isfinite(entry.gap) else None}


def _table(entries: "tuple[RoundEntry, ...]") -> "Table":
    from ..picture.facts import percent, quantity
    from ..picture.text import table
    from ..round.plan import UNPROVED

    numeric = ("jobs", "value", "bound", "gap", "took")
    return table(
        "round",
        "time",
        *numeric,
        "solver",
        "fallback",
        rows=(
            (
                str(entry.number),
                clock_text(entry.at_s),
                f"{entry.jobs:,}",
                quantity(entry.value, ""),
                quantity(entry.bound, "") if entry.bound < UNPROVED else "-",
                percent(entry.gap) if math.isfinite(entry.gap) else "-",
                human(entry.wall_s),
                entry.solver,
                entry.fallback or "",
            )
            for entry in entries
        ),
        numeric=("round", *numeric),
        folded=("fallback",),
    )
