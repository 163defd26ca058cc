"""The figures of a study: a panel for each case, the best methods told apart."""

from collections.abc import Sequence

from ...picture.palette import MUTED
from ...picture.panels import Chart, Line, Panel

NEUTRAL = MUTED
OTHERS = "#c3cad5"
COLOURS = (
    "#1f5f9e",
    "#d9622b",
    "#2a9d6f",
    "#8e4fb0",
    "#c2385b",
    "#a67c00",
    "#17a2b8",
    "#6b7a3a",
    "#e58fb1",
    "#5b5ea6",
)
"""Of the methods that are told apart, the best first."""
TELLS = len(COLOURS)


MOST_PANELS = 12


def curve(
    methods: Sequence[str],
    method: str,
    x: Sequence[float],
    y: Sequence[float],
    *,
    name: str | None = None,
    dashed: bool = False,
) -> Line:
    """Return the curve of a method: the first methods have colours of their own and are listed, all
    others are thin and grey."""
    rank = methods.index(method)
    told = rank < TELLS
    return Line(
        name or method,
        x,
        y,
        COLOURS[rank] if told else OTHERS,
        dashed,
        width=1.7 if told else 0.8,
        listed=told and not dashed,
    )


def others(methods: Sequence[str]) -> str:
    """Return the sentence about those that are not told apart."""
    more = len(methods) - TELLS
    return f" The best {TELLS} methods are told apart; {more} others are in grey." * (more > 0)


def chart_of_cases(
    key: str, title: str, note: str, panels: Sequence[Panel], panel_in: float = 2.6
) -> Chart | None:
    """Return the figure with a panel for each case, the first ones where there are many; None
    without any."""
    if not panels:
        return None
    if len(panels) > MOST_PANELS:
        note += f" The first {MOST_PANELS} of {len(panels)} instances are drawn."
    return Chart(key, title, note, tuple(panels[:MOST_PANELS]), panel_in)
