"""One live line on a terminal while a solver works: best plan, bound, gap, time left."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..duration import human
from ..picture.facts import level_unit, percent, quantity

if TYPE_CHECKING:
    from rich.text import Text

    from ..engine import Progress

REDRAWN_PER_S = 4


@contextmanager
def live_progress(
    objective: str, time_limit_s: float, wanted: bool
) -> "Iterator[Callable[[Progress], None] | None]":
    """What to give the engine as `on_progress`: a live line on stderr; None where that is no terminal."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    started_s = time.monotonic()
    last: list[Progress] = []

    def line() -> "Text":
        return _line(last[-1] if last else None, objective, time.monotonic() - started_s, time_limit_s)

    with Live(
        console=Console(stderr=True), get_renderable=line, refresh_per_second=REDRAWN_PER_S, transient=True
    ):
        yield last.append


def _line(progress: "Progress | None", objective: str, elapsed_s: float, time_limit_s: float) -> "Text":
    from rich.text import Text

    return Text(words(progress, objective, elapsed_s, time_limit_s), overflow="ellipsis", no_wrap=True)


def words(progress: "Progress | None", objective: str, elapsed_s: float, time_limit_s: float) -> str:
    """The live line as text."""
    left = human(max(0.0, round(time_limit_s - elapsed_s)))
    if progress is None or progress.value is None:
        return f"looking for a first plan, {left} left"
    unit = level_unit(objective) if "," not in objective else ""
    parts = [f"best {quantity(progress.value, unit)}" + (f" by {progress.source}" if progress.source else "")]
    if progress.bound is not None:
        parts += [f"bound {quantity(progress.bound, unit)}", f"gap {percent(progress.gap)}"]
    return "  ".join([*parts, f"{left} left"])
