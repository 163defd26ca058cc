"""One live line on a terminal while a solver works: best plan, bound, gap, time left."""

import csv
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...duration import human
from ...picture.facts import level_unit, percent, quantity

if TYPE_CHECKING:
    from rich.text import Text

    from ...engine import Progress

REDRAWN_PER_S = 4
TRACE_COLUMNS = ("wall_s", "value", "bound", "source")


@contextmanager
def live_progress(
    objective: str, time_limit_s: float, wanted: bool
) -> "Iterator[Callable[[Progress], None] | None]":
    """What to give the engine as `on_progress`: a live line on stderr; None where that is no
    terminal."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    started_s = time.monotonic()
    last: list[Progress] = []

    def line() -> "Text":
        return _line(
            last[-1] if last else None, objective, time.monotonic() - started_s, time_limit_s
        )

    with Live(
        console=Console(stderr=True),
        get_renderable=line,
        refresh_per_second=REDRAWN_PER_S,
        transient=True,
    ):
        yield last.append


class Trace:
    """Called at every progress of the engine, keeps what changed and passes it on."""

    def __init__(self, pass_on: "Callable[[Progress], None] | None" = None) -> None:
        self.pass_on = pass_on
        self.rows: list[tuple[float, float | None, float | None, str | None]] = []

    def __call__(self, progress: "Progress") -> None:
        row = (progress.elapsed_s, progress.value, progress.bound, progress.source)
        if not self.rows or row[1:] != self.rows[-1][1:]:
            self.rows.append(row)
        if self.pass_on is not None:
            self.pass_on(progress)

    def as_csv(self) -> str:
        """A line a change: `wall_s` since the start, `value` and `bound` of the first objective
        that is not settled, and the `source` of the plan; empty where there is none yet."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(TRACE_COLUMNS)
        writer.writerows(
            [f"{wall_s:.3f}", value, bound, source] for wall_s, value, bound, source in self.rows
        )
        return out.getvalue()


def _line(
    progress: "Progress | None", objective: str, elapsed_s: float, time_limit_s: float
) -> "Text":
    from rich.text import Text

    return Text(
        words(progress, objective, elapsed_s, time_limit_s), overflow="ellipsis", no_wrap=True
    )


def words(
    progress: "Progress | None", objective: str, elapsed_s: float, time_limit_s: float
) -> str:
    """The live line as text."""
    left = human(max(0.0, round(time_limit_s - elapsed_s)))
    if progress is None or progress.value is None:
        return f"looking for a first plan, {left} left"
    unit = level_unit(objective) if "," not in objective else ""
    parts = [
        f"best {quantity(progress.value, unit)}"
        + (f" by {progress.source}" if progress.source else "")
    ]
    if progress.bound is not None:
        parts += [f"bound {quantity(progress.bound, unit)}", f"gap {percent(progress.gap)}"]
    return "  ".join([*parts, f"{left} left"])
