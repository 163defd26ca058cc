"""The pictures of the page that shows the fit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....picture.palette import MUTED
from ....picture.panels import Axis, Chart, Dots, Intervals, Line, Mark, Panel
from ....picture.style import TIME_TICKS
from .columns import Columns
from .distribution import Floats
from .fit import GANG_CLASSES, class_name, gang_class, gap_ratios, published_causes, sizes
from .model import HOURS, Model

MADE, REAL, PUBLISHED = "#1f5f9e", "#e08b2d", "#1f2430"
SHADES = {
    MADE: ("#9cc4e6", "#4d93cc", "#1f5f9e", "#12304f"),
    REAL: ("#f6cf9d", "#e9a552", "#c8741c", "#7d430a"),
}
"""Of the classes of gangs."""
POINTS = 400
WEEKDAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
PANEL_IN, ROW_IN = 2.35, 0.17
MOST_TENANTS, MOST_CAUSES = 20, 30
LEAST_GAP = 0.005
UP_TO = Axis("% of jobs up to this", low=0.0, high=101.0)
Shown = Sequence[tuple[Columns, str, str]]
"""The generated workload and, where it is known, the real one: columns, name and colour."""


def figures(model: Model, made: Columns, real: Columns | None) -> list[Chart]:
    """Return every picture for which there is something to show."""
    shown = [(made, "generated", MADE)]
    if real is not None:
        shown.append((real, real.name, REAL))
    drawn = (
        _run_times(shown, model),
        _run_times_by_gang(shown),
        _gangs(shown),
        _gaps(shown),
        _by_clock(shown, "hours", "Submissions by hour of the day", "hour of the day", ()),
        _by_clock(shown, "weekdays", "Submissions by weekday (whole weeks)", "", WEEKDAY_NAMES),
        _users(made, model),
        _tenants(shown, model),
        _causes(made, model),
        _after(made, model),
    )
    return [chart for chart in drawn if chart is not None]


def _of(shown: Shown, column: str) -> list[tuple[str, str, Any]]:
    """Return name, colour and values of a column, of those that have it."""
    return [
        (name, colour, values)
        for columns, name, colour in shown
        if (values := getattr(columns, column)) is not None
    ]


def _chart(
    key: str, title: str, x: Axis, y: Axis, marks: Sequence[Mark], panel_in: float = PANEL_IN
) -> Chart:
    return Chart(key, title, "", (Panel("", x, y, tuple(marks)),), panel_in, above=True)


def _numbers(title: str, values: Sequence[float], low: float, high: float) -> Axis:
    """Return a logarithmic axis."""
    ticks = tuple((value, f"{value:g}") for value in values)
    return Axis(title, log=True, low=low, high=high, ticks=ticks)


def _seconds(title: str, values: Sequence[Floats]) -> Axis:
    """Return a logarithmic axis of times with ticks that people read."""
    times = np.concatenate(values)
    low, high = max(1.0, float(times.min())), float(times.max())
    return Axis(title, log=True, low=0.9 * low, high=1.1 * max(high, 2 * low), ticks=TIME_TICKS)


def _dotted(x: Floats, y: Floats, name: str) -> Line:
    """Return a thin line to compare with."""
    return Line(name, x.tolist(), y.tolist(), MUTED, dashed=True, width=1.0)


def _cumulative(
    values: Floats, name: str, colour: str, least: float = 1.0, dashed: bool = False
) -> Line:
    """Return an empirical distribution function by its quantiles; values below `least` stand
    there."""
    level = np.linspace(0, 1, POINTS + 1)
    x = np.maximum(np.quantile(values, level), least)
    return Line(name, x.tolist(), (100 * level).tolist(), colour, dashed, width=2.0)


def _points(
    rows: Mapping[str, float], name: str, colour: str, to: Mapping[str, float] | None = None
) -> Intervals:
    """Return a value for each row, with its interval up to that of `to`."""
    values = list(rows.values())
    high = values if to is None else list(to.values())
    return Intervals(name, [*rows], values, values, high, colour, filled=colour != PUBLISHED)


def _run_times(shown: Shown, model: Model) -> Chart:
    known = _of(shown, "run_s")
    marks: list[Mark] = [_cumulative(run_s, name, colour) for name, colour, run_s in known]
    if "median_run_s" in model.published:
        name, median_s = "published median", model.published["median_run_s"]
        marks.append(Dots(name, [median_s], [50.0], [name], PUBLISHED))
    time = _seconds("run time", [run_s for _, _, run_s in known])
    return _chart("run-times", "Run times", time, UP_TO, marks)


def _run_times_by_gang(shown: Shown) -> Chart:
    lines = []
    for columns, _, colour in shown:
        if columns.run_s is None or columns.gpus is None:
            continue
        is_real = colour == REAL
        for bounds, shade in zip(GANG_CLASSES, SHADES[colour], strict=True):
            mine = columns.run_s[gang_class(columns.gpus, *bounds)]
            if len(mine) > 1:
                name = class_name(*bounds) + (", real" if is_real else "")
                lines.append(_cumulative(mine, name, shade, dashed=is_real))
    time = _seconds("run time", [run_s for _, _, run_s in _of(shown, "run_s")])
    share = Axis("% of the jobs of this size", low=0.0, high=101.0)
    return _chart("run-times-by-gang", "Run times by gang size", time, share, lines)


def _shares(counts: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Return the per cent of each name that there is."""
    total = sum(counts.values())
    return {name: 100 * counts[name] / total for name in names if name in counts}


def _gangs(shown: Shown) -> Chart:
    known = [(name, colour, sizes(gpus)) for name, colour, gpus in _of(shown, "gpus")]
    names = tuple(sorted({size for _, _, counts in known for size in counts}, key=int))
    marks = [_points(_shares(counts, names), name, colour) for name, colour, counts in known]
    least = min(100 / sum(counts.values()) for _, _, counts in known)
    x = _numbers("% of jobs", (0.001, 0.01, 0.1, 1, 10, 100), least / 2, 10**2.1)
    y = Axis("GPUs of a job", names=names)
    return _chart("gangs", "Gang sizes (logarithmic)", x, y, marks)


def _gaps(shown: Shown) -> Chart | None:
    submissions = _of(shown, "submit_s")
    if len(submissions[0][2]) < 3:
        return None
    level = np.linspace(0, 0.999, POINTS)
    lines = [
        _cumulative(gap_ratios(submit_s), name, colour, LEAST_GAP)
        for name, colour, submit_s in submissions
    ]
    poisson = np.maximum(-np.log(1 - level), LEAST_GAP)
    lines.append(_dotted(poisson, 100 * level, "Poisson"))
    title = "interval to the job before, in mean intervals"
    x = _numbers(title, (0.01, 0.1, 1, 10), LEAST_GAP, 60)
    return _chart("gaps", "Intervals between submissions", x, UP_TO, lines)


def _by_clock(
    shown: Shown, column: str, title: str, x: str, names: tuple[str, ...]
) -> Chart | None:
    known = _of(shown, column)
    if getattr(shown[0][0], column) is None:
        return None
    lines = [
        Line(name, [*range(len(shares) + 1)], [*(100 * shares), 100 * shares[-1]], colour)
        for name, colour, shares in known
    ]
    count = len(names) or HOURS
    ticks = tuple((i + 0.5, name) for i, name in enumerate(names))
    clock = Axis(x, low=0.0, high=float(count), ticks=ticks)
    return _chart(column, title, clock, Axis("% of submissions", low=0.0), lines)


def _users(made: Columns, model: Model) -> Chart:
    counts = np.sort(np.array(list(made.users.values())))[::-1]
    counts = np.append(counts, np.zeros(max(0, model.users - len(counts))))
    share = np.append(0.0, np.cumsum(counts)) / counts.sum()
    x = 100 * np.linspace(0, 1, len(share))
    percent = np.linspace(0.0, 100.0, 101)
    helios = "Helios' top 5 %: 45 to 60 % of the GPU time"
    marks: list[Mark] = [
        Line("generated", x.tolist(), (100 * share).tolist(), MADE, width=2.0),
        _dotted(percent, percent, "all alike"),
        Dots(helios, [5.0, 5.0], [45.0, 60.0], [helios] * 2, PUBLISHED),
    ]
    users = Axis("% of users, the busiest first", low=-1.0, high=101.0)
    return _chart("users", "Jobs by user", users, Axis("% of jobs", low=0.0, high=101.0), marks)


def _tenants(shown: Shown, model: Model) -> Chart | None:
    if not shown[0][0].tenants:
        return None
    groups = sorted(model.groups, key=lambda group: -group.share)[:MOST_TENANTS]
    names = tuple(group.name for group in groups)
    marks = [
        _points(_shares(counts, names), name, colour)
        for columns, name, colour in shown
        if (counts := columns.tenants)
    ]
    share, rows = Axis("% of jobs", low=0.0), Axis(names=names)
    return _chart("tenants", "Jobs by virtual cluster", share, rows, marks)


def _ordered(counts: Mapping[str, float]) -> list[str]:
    """Return causes, those with the most published failures first."""
    return sorted(counts, key=lambda kind: -counts[kind])[:MOST_CAUSES]


def _causes(made: Columns, model: Model) -> Chart | None:
    if not made.after_s:
        return None
    published = published_causes(model)
    kinds = _ordered(published)
    attempts = {kind: float(len(after_s)) for kind, after_s in made.after_s.items()}
    marks = (
        _points(_shares(attempts, kinds), "generated", MADE),
        _points(_shares(published, kinds), f"published ({model.failing.source})", PUBLISHED),
    )
    share, rows = Axis("% of failed attempts", low=0.0), Axis(names=tuple(kinds))
    high_in = 0.6 + ROW_IN * len(kinds)
    return _chart("causes", "Failures by cause", share, rows, marks, high_in)


def _after(made: Columns, model: Model) -> Chart | None:
    kinds = [
        kind for kind in _ordered(published_causes(model)) if len(made.after_s.get(kind, ())) >= 5
    ]
    if not kinds:
        return None
    fitted = {cause.kind: cause.after_s for cause in model.failing.causes}

    def seen(share: float) -> dict[str, float]:
        return {kind: max(1.0, float(np.quantile(made.after_s[kind], share))) for kind in kinds}

    def meant(share: float) -> dict[str, float]:
        return {kind: float(fitted[kind].at(np.array([share]))[0]) for kind in kinds}

    marks = (
        _points(seen(0.5), "generated", MADE, to=seen(0.9)),
        _points(meant(0.5), "fitted", PUBLISHED, to=meant(0.9)),
    )
    time = _seconds("run time to failure", [made.after_s[kind] for kind in kinds])
    title = "Run time to failure: median and 90th percentile"
    high_in = 0.6 + ROW_IN * len(kinds)
    return _chart("after", title, time, Axis(names=tuple(kinds)), marks, high_in)
