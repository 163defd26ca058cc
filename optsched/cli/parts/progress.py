"""One live line on a terminal while a solver works: best plan, bound, gap, time left."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...duration import human
from ...picture.facts import level_unit, percent, quantity

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from ...bounds import Follow
    from ...bounds.by_prices import PricesFound
    from ...engine import Progress
    from ...objectives import Objective

REDRAWN_PER_S = 4


@contextmanager
def live_line(line: "Callable[[], RenderableType]", wanted: bool) -> Iterator[bool]:
    """Keep a line on stderr up to date meanwhile; yields False where that is no terminal."""
    if not wanted or not sys.stderr.isatty():
        yield False
        return
    from rich.console import Console
    from rich.live import Live

    with Live(
        console=Console(stderr=True),
        get_renderable=line,
        refresh_per_second=REDRAWN_PER_S,
        transient=True,
    ):
        yield True


def in_one_line(text: str) -> "Text":
    """Return text that is cut where the terminal ends."""
    from rich.text import Text

    return Text(text, overflow="ellipsis", no_wrap=True)


@contextmanager
def live_progress(
    objective: str, time_limit_s: float, wanted: bool
) -> "Iterator[Callable[[Progress], None] | None]":
    """Yield what to give the engine as `on_progress`: a live line on stderr; None where that is no
    terminal."""
    started_s = time.monotonic()
    last: list[Progress] = []

    def line() -> "Text":
        elapsed_s = time.monotonic() - started_s
        return in_one_line(words(last[-1] if last else None, objective, elapsed_s, time_limit_s))

    with live_line(line, wanted) as shown:
        yield last.append if shown else None


@contextmanager
def completed_jobs(jobs: int, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield what to give a simulation as `on_progress`: a bar on stderr; None where that is no
    terminal."""
    done = [0]

    def line() -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        bar = Table.grid(padding=(0, 1))
        completed = f"{done[-1]:,} of {jobs:,} jobs completed"
        bar.add_row(ProgressBar(total=jobs, completed=done[-1], width=40), completed)
        return bar

    def tell(completed: int) -> None:
        done[-1] = completed

    with live_line(line, wanted) as shown:
        yield tell if shown else None


def prices_found(
    objective: "Objective", most: int, time_limit_s: float | None, wanted: bool
) -> "Follow":
    """Return what goes through the steps of a search for prices, at `most` so many or for so long,
    with a live line on stderr. Ctrl-C ends the search with the best prices so far."""
    last: PricesFound | None = None
    started_s = time.monotonic()

    def line() -> "Text":
        if last is None:
            return in_one_line("looking for first prices")
        rest = f"step {last.step} of {most}"
        if time_limit_s is not None:
            rest = f"{human(max(0.0, round(time_limit_s + started_s - time.monotonic())))} left"
        return in_one_line(f"bound {quantity(last.value, level_unit(objective.name))}  {rest}")

    def follow(steps: "Iterator[PricesFound]") -> "PricesFound | None":
        nonlocal last
        with live_line(line, wanted):
            try:
                for found in steps:
                    last = found
            except KeyboardInterrupt:
                if last is None:
                    raise
        return last

    return follow


def words(
    progress: "Progress | None", objective: str, elapsed_s: float, time_limit_s: float
) -> str:
    """Return the live line as text."""
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
