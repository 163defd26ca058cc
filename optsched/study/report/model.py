"""What a figure shows, said once for the page (plotly) and for papers (matplotlib)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...picture.palette import MUTED


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Line:
    """A curve; with `steps` its value holds until the next point. Only a curve with `listed` is in
    the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dashed: bool = False
    steps: bool = False
    width: float = 1.6
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Dots:
    """Points with the name of each; `told` are written beside them."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    names: Sequence[str]
    colour: str
    told: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """A part of the horizontal bars of a panel, one bar a category of its vertical axis, on top of
    the parts before."""

    name: str
    lengths: Sequence[float]
    colour: str


@dataclass(frozen=True, slots=True)
class Intervals:
    """A value with its interval for each category of the vertical axis that `rows` names."""

    name: str
    rows: Sequence[str]
    mid: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    colour: str
    filled: bool


@dataclass(frozen=True, slots=True)
class Heat:
    """A number (None: unknown) and its text for each pair of categories, row by row."""

    name: str
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]


Mark = Line | Dots | Bars | Intervals | Heat


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure: `key` names its files, `note` says what is drawn and what is not; `panel_in` is
    the height of a panel in inches, `table` (a head and lines) stands below it on the page."""

    key: str
    title: str
    note: str
    panels: tuple[Panel, ...]
    columns: int = 2
    panel_in: float = 2.6
    table: tuple[tuple[str, ...], ...] = field(default=())

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


def colours(methods: Sequence[str]) -> dict[str, str]:
    """Return a colour for each method: its own for the first ones, grey for all others."""
    return {name: COLOURS[i] if i < TELLS else OTHERS for i, name in enumerate(methods)}


def others(methods: Sequence[str], drawn: str = "in grey") -> str:
    """Return the sentence about those that are not told apart."""
    more = len(methods) - TELLS
    return (
        f" The best {TELLS} methods are told apart; {more} others are {drawn}." if more > 0 else ""
    )
