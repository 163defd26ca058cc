"""How value and bound of a solve developed."""

from collections.abc import Callable

from ..files import csv_text
from .search import Progress

TRACE_COLUMNS = ("wall_s", "value", "bound", "source")


class Trace:
    """Called at every progress of the engine, keeps what changed and passes it on."""

    def __init__(self, pass_on: Callable[[Progress], None] | None = None) -> None:
        self.pass_on = pass_on
        self.rows: list[tuple[float, float | None, float | None, str | None]] = []

    def __call__(self, progress: Progress) -> None:
        row = (progress.elapsed_s, progress.value, progress.bound, progress.source)
        if not self.rows or row[1:] != self.rows[-1][1:]:
            self.rows.append(row)
        if self.pass_on is not None:
            self.pass_on(progress)

    def as_csv(self) -> str:
        """Return one line per change: `wall_s` since the start, `value` and `bound` of the first
        objective that is not settled, and the `source` of the plan; empty where there is none
        yet."""
        lines = (
            (f"{wall_s:.3f}", value, bound, source) for wall_s, value, bound, source in self.rows
        )
        return csv_text([TRACE_COLUMNS, *lines])
