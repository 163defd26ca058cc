"""Tables for people, as text: what the command line prints and what `print` shows in Python."""

import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from ..duration import human
from ..model import Instance
from ..noun import number_of
from .facts import ROUNDING, percent, quantity

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 150
"""Columns where nothing says how many there are: tables are not folded to the 80 that rich would
assume."""
WIDE = 100
"""Columns from which on every column is shown."""
LEAST_HOURS = 0.0001
"""Fewer hours are not told apart."""
MOST_JOBS = 30


def as_text(parts: "Iterable[str | Table]", width: int = WIDTH, file: TextIO | None = None) -> str:
    """Return lines and tables as text, plain unless `file` is a terminal."""
    from rich.console import Console

    console = Console(
        file=file or io.StringIO(), width=width, highlight=False, markup=False, emoji=False
    )
    with console.capture() as captured:
        for part in parts:
            if isinstance(part, str):
                part = printable_lines(part)
            console.print(part, soft_wrap=isinstance(part, str))
    return captured.get().rstrip("\n")


def printable(text: str) -> str:
    """Return a text without what would move a terminal's cursor: names, and reasons that quote
    commands, are those of others."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def printable_lines(text: str) -> str:
    """Return a text of several lines without what would move a terminal's cursor."""
    return "\n".join(map(printable, text.split("\n")))


def table(
    *heads: str,
    rows: Iterable[Iterable[str]] = (),
    numeric: Sequence[str] = (),
    folded: Sequence[str] = (),
) -> "Table":
    """Return a table of `rows`; columns named in `numeric` are aligned to the right. Where it is
    narrow, those in `folded` are folded, or all without any."""
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
        padding=(0, 1, 0, 0),
    )
    for head in heads:
        made.add_column(
            head,
            justify="right" if head in numeric else "left",
            overflow="fold",
            no_wrap=bool(folded) and head not in folded,
        )
    for row in rows:
        made.add_row(*map(printable, row))
    return made


def headline(instance: Instance) -> str:
    """Return the size of an instance in a line."""
    jobs, gpus = number_of(len(instance.jobs), "job"), number_of(instance.cluster.total_gpus, "GPU")
    nodes = number_of(len(instance.cluster.nodes), "node")
    return f"{instance.name}: {jobs}, {gpus} on {nodes}, {len(instance.running):,} running now"


def aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return names and values, one pair a line."""
    wide = max(len(name) for name, _ in rows) + 2
    return [f"  {name:<{wide}}{text}" for name, text in rows]


def solver_line(solver: str, seed: int, wall_s: float | None) -> str:
    """Return who answered, and how long it took where that is known."""
    wall = "" if wall_s is None else f", in {human(wall_s)}"
    return f"{solver}, seed {seed}{wall}"


def remarks(fallback: str | None, notes: Sequence[str]) -> list[tuple[str, str]]:
    """Return why another solver answered, if one did, and what else is to be said."""
    rows = [("fallback", fallback)] if fallback else []
    return rows + [("note", note) for note in notes]


def counted(decisions: Iterable[str], order: Sequence[str]) -> str:
    """Return how often each decision is there, as `3 start, 1 wait`."""
    counts = Counter(decisions)
    return ", ".join(f"{counts[name]:,} {name}" for name in order if counts[name])


def gap_text(gap: float | None, status: str) -> str:
    """Return a gap in words; one that is open is none, however small beside a large value."""
    if status == "optimal":
        return percent(0.0)
    return percent(max(gap, ROUNDING) if gap else gap)


def with_length(value: float | None, unit: str) -> str:
    """Return a value with its unit, and as hours and minutes beside it where it is seconds."""
    text = quantity(value, unit)
    long = unit == "s" and value is not None and abs(value) >= 60
    return f"{text} ({human(value)})" if long and value is not None else text


def hours(value: float) -> str:
    """Return GPU-hours with one decimal, or as many as the first digit that is not 0 takes."""
    size = abs(value)
    if not 0 < size < 0.1:
        return f"{value:,.1f}"
    if size < LEAST_HOURS:
        return f"under {LEAST_HOURS}"
    return f"{value:.{math.ceil(-math.log10(size))}f}"


def gpus_text(gpus: int, gpu_type: str | None) -> str:
    """Return a number of GPUs with their type."""
    return f"{gpus} {gpu_type or ''}".strip() if gpus else "-"


def short(nodes: Sequence[str]) -> str:
    """Return the first few names."""
    if not nodes:
        return "-"
    return ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
