"""What a figure shows, said once for pages (plotly) and for papers (matplotlib)."""

from collections.abc import Sequence
from dataclasses import field

from ..frozen import record


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


SHARE_OF_JOBS = Axis("share of jobs", percent=True, low=0.0, high=1.02)
"""Of distributions."""


@record
class Line:
    """A curve whose value holds until the next point, with its colour down to 0 where it is
    `filled`. Only a curve with `listed` is in the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dashed: bool = False
    width: float = 1.6
    listed: bool = True
    filled: bool = False


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
    the height of a panel in inches, `table` (a head and lines) stands below it on the page; the
    legend of a page is `above` the figure instead of beside it."""

    key: str
    title: str
    note: str
    panels: tuple[Panel, ...]
    panel_in: float = 2.6
    table: tuple[tuple[str, ...], ...] = field(default=())
    above: bool = False

    @property
    def columns(self) -> int:
        return min(2, len(self.panels))

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.columns)
