"""The pictures of the page that shows the fit (plotly)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....picture.palette import MUTED
from ....picture.style import AXIS, GROUND, LEGEND, TIME_TICKS, heading
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
HEIGHT_PX = 330
MOST_TENANTS, MOST_CAUSES = 20, 30
LEAST_GAP = 0.005
Figure = tuple[str, str, Any]
"""Identifier, title, plotly figure."""


def figures(model: Model, made: Columns, real: Columns | None) -> list[Figure]:
    """Return every picture for which there is something to show."""
    both = [(made, "generated", MADE)]
    if real is not None:
        both.append((real, real.name, REAL))
    shown = _Shown(both)
    drawn = [
        ("run-times", "Run times", _run_times(shown, model)),
        ("run-times-by-gang", "Run times by gang size", _run_times_by_gang(shown)),
        ("gangs", "Gang sizes (logarithmic)", _gangs(shown)),
        ("gaps", "Intervals between submissions", _gaps(shown)),
        ("hours", "Submissions by hour of the day", _hours(shown)),
        ("weekdays", "Submissions by weekday (whole weeks)", _weekdays(shown)),
        ("users", "Jobs by user", _users(made, model)),
        ("tenants", "Jobs by virtual cluster", _tenants(shown, model)),
        ("causes", "Failures by cause", _causes(made, model)),
        ("after", "Run time to failure: median and 90th percentile", _after(made, model)),
    ]
    return [(name, title, figure) for name, title, figure in drawn if figure is not None]


class _Shown(list[tuple[Columns, str, str]]):
    """The generated workload and, where it is known, the real one: columns, name and colour."""

    def of(self, column: str) -> list[tuple[str, str, Any]]:
        """Return name, colour and values of a column, of those that have it."""
        return [
            (name, colour, values)
            for columns, name, colour in self
            if (values := getattr(columns, column)) is not None
        ]


def _figure(x: str, y: str, **layout: Any) -> Any:
    import plotly.graph_objects as go

    usual = {
        **GROUND,
        "height": HEIGHT_PX,
        "margin": {"l": 62, "r": 18, "t": 34, "b": 50},
        "showlegend": True,
        "hovermode": "closest",
        "legend": {**LEGEND, "y": 1.02},
        "bargap": 0.25,
        "bargroupgap": 0.05,
    }
    figure = go.Figure().update_layout(**{**usual, **layout})
    figure.update_xaxes(title=heading(x), **AXIS)
    figure.update_yaxes(title=heading(y), **AXIS)
    return figure


def _log_axis(values: Sequence[float], low: float, high: float) -> dict[str, Any]:
    return {
        "type": "log",
        "tickvals": list(values),
        "ticktext": [f"{value:g}" for value in values],
        "range": [np.log10(low), np.log10(high)],
    }


def _dotted(figure: Any, x: Any, y: Any, name: str) -> None:
    """Draw a thin line to compare with."""
    line = {"color": MUTED, "width": 1, "dash": "dot"}
    figure.add_scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip")


def _marks(
    figure: Any, x: Any, y: Any, name: str, colour: str = PUBLISHED, symbol: str = "diamond"
) -> None:
    marker = {"color": colour, "size": 9, "symbol": symbol}
    figure.add_scatter(x=x, y=y, mode="markers", name=name, marker=marker)


def _bars(figure: Any, x: Any, y: Any, name: str, colour: str, **more: Any) -> None:
    figure.add_bar(x=x, y=y, name=name, marker={"color": colour}, **more)


def _seconds_axis(figure: Any, values: Sequence[Floats]) -> None:
    """Set a logarithmic axis of times with ticks that people read."""
    times = np.concatenate(values)
    low, high = max(1.0, float(times.min())), float(times.max())
    ticks, words = zip(*TIME_TICKS, strict=True)
    figure.update_xaxes(
        type="log",
        tickvals=ticks,
        ticktext=words,
        range=[np.log10(low) - 0.05, np.log10(max(high, 2 * low)) + 0.05],
    )


def _cumulative(
    figure: Any, values: Floats, name: str, colour: str, least: float = 1.0, dash: str = "solid"
) -> None:
    """Draw an empirical distribution function by its quantiles; values below `least` stand
    there."""
    level = np.linspace(0, 1, POINTS + 1)
    figure.add_scatter(
        x=np.maximum(np.quantile(values, level), least),
        y=100 * level,
        mode="lines",
        name=name,
        line={"color": colour, "width": 2, "dash": dash},
        hovertemplate="%{y:.1f} % up to %{x:,.4~g}<extra>" + name + "</extra>",
    )
    figure.update_yaxes(range=[0, 101])


def _run_times(shown: _Shown, model: Model) -> Any:
    figure = _figure("run time", "% of jobs up to this")
    for name, colour, run_s in shown.of("run_s"):
        _cumulative(figure, run_s, name, colour)
    if "median_run_s" in model.published:
        _marks(figure, [model.published["median_run_s"]], [50], "published median")
    _seconds_axis(figure, [run_s for _, _, run_s in shown.of("run_s")])
    return figure


def _run_times_by_gang(shown: _Shown) -> Any:
    figure = _figure(
        "run time",
        "% of the jobs of this size",
        margin={"l": 62, "r": 120, "t": 34, "b": 50},
        legend={"orientation": "v", "x": 1.02, "y": 1, "yanchor": "top"},
    )
    for columns, _, colour in shown:
        if columns.run_s is None or columns.gpus is None:
            continue
        is_real = colour == REAL
        for bounds, shade in zip(GANG_CLASSES, SHADES[colour], strict=True):
            mine = columns.run_s[gang_class(columns.gpus, *bounds)]
            if len(mine) > 1:
                name = class_name(*bounds) + (", real" if is_real else "")
                _cumulative(figure, mine, name, shade, dash="dot" if is_real else "solid")
    _seconds_axis(figure, [run_s for _, _, run_s in shown.of("run_s")])
    return figure


def _shares(counts: Mapping[str, float], names: Sequence[str]) -> list[float | None]:
    """Return the per cent of each name, None where there is nothing."""
    total = sum(counts.values())
    return [100 * counts[name] / total if name in counts else None for name in names]


def _gangs(shown: _Shown) -> Any:
    figure = _figure("GPUs of a job", "% of jobs", barmode="group")
    columns = [(name, colour, sizes(gpus)) for name, colour, gpus in shown.of("gpus")]
    names = sorted({size for _, _, counts in columns for size in counts}, key=int)
    for name, colour, counts in columns:
        hover = "%{x} GPUs: %{y:.3~g} %<extra>" + name + "</extra>"
        _bars(figure, names, _shares(counts, names), name, colour, hovertemplate=hover)
    least = min(100 / sum(counts.values()) for _, _, counts in columns)
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=names)
    figure.update_yaxes(**_log_axis((0.001, 0.01, 0.1, 1, 10, 100), least / 2, 10**2.1))
    return figure


def _gaps(shown: _Shown) -> Any | None:
    figure = _figure("interval to the job before, in mean intervals", "% of jobs up to this")
    submissions = shown.of("submit_s")
    if len(submissions[0][2]) < 3:
        return None
    for name, colour, submit_s in submissions:
        _cumulative(figure, gap_ratios(submit_s), name, colour, LEAST_GAP)
    level = np.linspace(0, 0.999, POINTS)
    _dotted(figure, np.maximum(-np.log(1 - level), LEAST_GAP), 100 * level, "Poisson")
    figure.update_xaxes(**_log_axis((0.01, 0.1, 1, 10), LEAST_GAP, 60))
    return figure


def _hours(shown: _Shown) -> Any:
    figure = _figure("hour of the day", "% of submissions")
    for name, colour, shares in shown.of("hours"):
        _bars(figure, [f"{hour}:00" for hour in range(HOURS)], 100 * shares, name, colour)
    return figure


def _weekdays(shown: _Shown) -> Any | None:
    if shown[0][0].weekdays is None:
        return None
    figure = _figure("", "% of submissions", barmode="group")
    for name, colour, shares in shown.of("weekdays"):
        _bars(figure, WEEKDAY_NAMES, 100 * shares, name, colour)
    return figure


def _users(made: Columns, model: Model) -> Any:
    figure = _figure("% of users, the busiest first", "% of jobs")
    counts = np.sort(np.array(list(made.users.values())))[::-1]
    counts = np.append(counts, np.zeros(max(0, model.users - len(counts))))
    share = np.append(0.0, np.cumsum(counts)) / counts.sum()
    figure.add_scatter(
        x=100 * np.linspace(0, 1, len(share)),
        y=100 * share,
        mode="lines",
        name="generated",
        line={"color": MADE, "width": 2},
        hovertemplate="the busiest %{x:.1f} % of users have %{y:.0f} % of the jobs<extra></extra>",
    )
    _dotted(figure, [0, 100], [0, 100], "all alike")
    _marks(figure, [5, 5], [45, 60], "Helios' top 5 %: 45 to 60 % of the GPU time")
    figure.update_xaxes(range=[-1, 101])
    figure.update_yaxes(range=[0, 101])
    return figure


def _tenants(shown: _Shown, model: Model) -> Any | None:
    if not shown[0][0].tenants:
        return None
    figure = _figure("virtual cluster", "% of jobs", barmode="group")
    groups = sorted(model.groups, key=lambda group: -group.share)[:MOST_TENANTS]
    names = [group.name for group in groups]
    for name, colour, counts in shown.of("tenants"):
        if counts:
            _bars(figure, names, _shares(counts, names), name, colour)
    figure.update_xaxes(type="category", tickangle=-40)
    return figure


def _by_cause(x: str, kinds: Sequence[str]) -> Any:
    margin = {"l": 150, "r": 18, "t": 40, "b": 50}
    figure = _figure(x, "", height=150 + 17 * len(kinds), margin=margin)
    figure.update_yaxes(tickfont={"size": 11}, type="category")
    return figure


def _ordered(counts: Mapping[str, float]) -> list[str]:
    """Return causes with the most published failures last, as bars are drawn from below."""
    return sorted(counts, key=lambda kind: counts[kind])[-MOST_CAUSES:]


def _causes(made: Columns, model: Model) -> Any | None:
    if not made.after_s:
        return None
    published = published_causes(model)
    kinds = _ordered(published)
    figure = _by_cause("% of failed attempts", kinds)
    attempts = {kind: float(len(after_s)) for kind, after_s in made.after_s.items()}
    _bars(figure, _shares(attempts, kinds), kinds, "generated", MADE, orientation="h")
    _marks(figure, _shares(published, kinds), kinds, f"published ({model.failing.source})")
    figure.update_xaxes(rangemode="tozero")
    return figure


def _after(made: Columns, model: Model) -> Any | None:
    kinds = [
        kind for kind in _ordered(published_causes(model)) if len(made.after_s.get(kind, ())) >= 5
    ]
    if not kinds:
        return None
    fitted = {cause.kind: cause.after_s for cause in model.failing.causes}
    times = [made.after_s[kind] for kind in kinds]
    figure = _by_cause("run time to failure", kinds)
    for share, symbol in ((0.5, "circle"), (0.9, "square")):
        x = [max(1.0, float(np.quantile(after_s, share))) for after_s in times]
        _marks(figure, x, kinds, f"generated, {100 * share:.0f} %", MADE, symbol)
        x = [float(fitted[kind].at(np.array([share]))[0]) for kind in kinds]
        _marks(figure, x, kinds, f"fitted, {100 * share:.0f} %", PUBLISHED, f"{symbol}-open")
    _seconds_axis(figure, times)
    return figure
