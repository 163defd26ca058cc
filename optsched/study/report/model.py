"""What a figure shows, said once for the page (plotly) and for papers (matplotlib)."""

from collections.abc import Sequence
from dataclasses import field

from ...frozen import record
from ...picture.palette import MUTED


@record
class Axis:
    """`ticks` are values with their words; `names` makes it an axis of categories, the first on top
    or on the left."""

    title: str = ""
    log: bool = False
    percent: bool = False
    low: float | None = None
    high: float | None = None
    ticks: tuple[tuple[float, str], ...] = ()
    names: tuple[str, ...] = ()


@record
class Line:
    """A curve whose value holds until the next point. Only a curve with `listed` is in the
    legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dashed: bool = False
    width: float = 1.6
    listed: bool = True


@record
class Dots:
    """Points with the name of each; `told` are written beside them."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    names: Sequence[str]
    colour: str
    told: bool = False


@record
class Bars:
    """A part of the horizontal bars of a panel, one bar a category of its vertical axis, on top of
    the parts before."""

    name: str
    lengths: Sequence[float]
    colour: str


@record
class Intervals:
    """A value with its interval for each category of the vertical axis that `rows` names."""

    name: str
    rows: Sequence[str]
    mid: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    colour: str
    filled: bool


@record
class Heat:
    """A number (None: unknown) and its text for each pair of categories, row by row."""

    name: str
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]


Mark = Line | Dots | Bars | Intervals | Heat


@record
class Panel:
    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]


@record
class Chart:
    """One figure: `key` names its files, `note` says what is drawn and what is not; `panel_in` is
    the height of a panel in inches, `table` (a head and lines) stands below it on the page."""

    key: str
    title: str
    note: str
    panels: tuple[Panel, ...]
    panel_in: float = 2.6
    table: tuple[tuple[str, ...], ...] = field(default=())

    @property
    def columns(self) -> int:
        return min(2, len(self.panels))

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.columns)


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
