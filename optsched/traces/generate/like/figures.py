"""The pictures of the page that shows the fit (plotly)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....picture.palette import GRID, INK, MUTED, PAPER
from ....picture.style import FONT
from .columns import Columns
from .distribution import Floats
from .fit import GANG_CLASSES, class_name, gang_class, gap_ratios, published_causes, sizes
from .model import HOURS, Model

MADE, REAL, PUBLISHED = "#1f5f9e", "#e08b2d", "#1f2430"
POINTS = 400
WEEKDAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LENGTHS = {
    1: "1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
    21600: "6 h",
    86400: "1 d",
    864000: "10 d",
    8640000: "100 d",
}
HEIGHT_PX = 330
MOST_TENANTS, MOST_CAUSES = 20, 30
Figure = tuple[str, str, Any]
"""Identifier, title, plotly figure."""


def figures(model: Model, made: Columns, real: Columns | None) -> list[Figure]:
    """Every picture for which there is something to show."""
    drawn: list[Figure | None] = [
        _run_times(made, real, model),
        _run_times_by_gang(made, real),
        _gangs(made, real),
        _gaps(made, real),
        _hours(made, real),
        _weekdays(made, real),
        _users(made, model),
        _tenants(made, real, model),
        _causes(made, model),
        _after(made, model),
    ]
    return [figure for figure in drawn if figure is not None]


def _figure(x: str, y: str, **layout: Any) -> Any:
    import plotly.graph_objects as go

    axis = {
        "gridcolor": GRID,
        "zeroline": False,
        "color": MUTED,
        "title": {"font": {"size": 12, "color": MUTED}},
        "linecolor": GRID,
        "ticks": "outside",
        "tickcolor": GRID,
        "ticklen": 4,
    }
    figure = go.Figure()
    figure.update_layout(
        height=HEIGHT_PX,
        margin={"l": 62, "r": 18, "t": 34, "b": 50},
        plot_bgcolor=PAPER,
        paper_bgcolor=PAPER,
        font={"family": FONT, "size": 12, "color": INK},
        showlegend=True,
        hovermode="closest",
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "bgcolor": "rgba(0,0,0,0)",
        },
        xaxis=axis,
        yaxis=axis,
        bargap=0.25,
        bargroupgap=0.05,
    )
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    figure.update_layout(**layout)
    return figure


def _shown(made: Columns, real: Columns | None, what: str) -> list[tuple[str, str, Any]]:
    """Return name, colour and values of a column, of the generated workload and of the real one
    where it has it."""
    both = ((made, "generated", MADE), (real, "" if real is None else real.name, REAL))
    return [
        (name, colour, values)
        for columns, name, colour in both
        if columns is not None and (values := getattr(columns, what)) is not None
    ]


def _log_axis(values: Sequence[float], low: float, high: float) -> dict[str, Any]:
    return {
        "type": "log",
        "tickvals": list(values),
        "ticktext": [f"{value:g}" for value in values],
        "range": [np.log10(low), np.log10(high)],
    }


def _dotted(figure: Any, x: Any, y: Any, name: str) -> None:
    """A thin line to compare with."""
    line = {"color": MUTED, "width": 1, "dash": "dot"}
    figure.add_scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip")


def _bars(figure: Any, x: Any, y: Any, name: str, colour: str, **more: Any) -> None:
    figure.add_bar(x=x, y=y, name=name, marker={"color": colour}, **more)


def _seconds_axis(figure: Any, values: list[Floats]) -> None:
    """A logarithmic axis of times with ticks that people read."""
    low = max(1.0, min(float(one.min()) for one in values))
    high = max(float(one.max()) for one in values)
    figure.update_xaxes(
        type="log",
        tickvals=list(LENGTHS),
        ticktext=list(LENGTHS.values()),
        range=[np.log10(low) - 0.05, np.log10(max(high, 2 * low)) + 0.05],
    )


def _cumulative(
    figure: Any, values: Floats, name: str, colour: str, least: float, dash: str = "solid"
) -> None:
    """An empirical distribution function by its quantiles; values below `least` stand there."""
    level = np.linspace(0, 1, POINTS + 1)
    x = np.maximum(np.quantile(values, level), least)
    figure.add_scatter(
        x=x,
        y=100 * level,
        mode="lines",
        name=name,
        line={"color": colour, "width": 2, "dash": dash},
        hovertemplate="%{y:.1f} % up to %{x:,.4~g}<extra>" + name + "</extra>",
    )


def _run_times(made: Columns, real: Columns | None, model: Model) -> Figure:
    figure = _figure("run time", "% of jobs up to this")
    shown = _shown(made, real, "run_s")
    for name, colour, run_s in shown:
        _cumulative(figure, run_s, name, colour, 1.0)
    if "median_run_s" in model.published:
        figure.add_scatter(
            x=[model.published["median_run_s"]],
            y=[50],
            mode="markers",
            name="published median",
            marker={"color": PUBLISHED, "size": 10, "symbol": "diamond"},
            hovertemplate="median %{x:,.0f} s<extra>published</extra>",
        )
    _seconds_axis(figure, [run_s for _, _, run_s in shown])
    figure.update_yaxes(range=[0, 101])
    return "run-times", "Run times", figure


def _run_times_by_gang(made: Columns, real: Columns | None) -> Figure:
    assert made.run_s is not None and made.gpus is not None
    figure = _figure(
        "run time", "% of the jobs of this size", margin={"l": 62, "r": 120, "t": 34, "b": 50}
    )
    figure.update_layout(legend={"orientation": "v", "x": 1.02, "y": 1, "yanchor": "top"})
    shades = (
        ("#9cc4e6", "#4d93cc", "#1f5f9e", "#12304f"),
        ("#f6cf9d", "#e9a552", "#c8741c", "#7d430a"),
    )
    shown = []
    for number, one in enumerate((made, real)):
        if one is None or one.run_s is None or one.gpus is None:
            continue
        for bounds, colour in zip(GANG_CLASSES, shades[number], strict=True):
            mine = one.run_s[gang_class(one.gpus, *bounds)]
            if len(mine) > 1:
                name = class_name(*bounds) + (", real" if number else "")
                _cumulative(figure, mine, name, colour, 1.0, "dot" if number else "solid")
                shown.append(mine)
    _seconds_axis(figure, shown or [made.run_s])
    figure.update_yaxes(range=[0, 101])
    return "run-times-by-gang", "Run times by gang size", figure


def _gangs(made: Columns, real: Columns | None) -> Figure:
    figure = _figure("GPUs of a job", "% of jobs", barmode="group")
    columns = [(name, colour, sizes(gpus)) for name, colour, gpus in _shown(made, real, "gpus")]
    names = sorted({size for _, _, counts in columns for size in counts}, key=int)
    for name, colour, counts in columns:
        total = sum(counts.values())
        shares = [100 * counts[size] / total if size in counts else None for size in names]
        hover = "%{x} GPUs: %{y:.3~g} %<extra>" + name + "</extra>"
        _bars(figure, names, shares, name, colour, hovertemplate=hover)
    least = min(100 / sum(counts.values()) for _, _, counts in columns)
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=names)
    figure.update_yaxes(**_log_axis((0.001, 0.01, 0.1, 1, 10, 100), least / 2, 10**2.1))
    return "gangs", "Gang sizes (logarithmic)", figure


def _gaps(made: Columns, real: Columns | None) -> Figure | None:
    assert made.submit_s is not None
    if len(made.submit_s) < 3:
        return None
    figure = _figure("interval to the job before, in mean intervals", "% of jobs up to this")
    least = 0.005
    for name, colour, submit_s in _shown(made, real, "submit_s"):
        _cumulative(figure, gap_ratios(submit_s), name, colour, least)
    level = np.linspace(0, 0.999, POINTS)
    _dotted(figure, np.maximum(-np.log(1 - level), least), 100 * level, "Poisson")
    figure.update_xaxes(**_log_axis((0.01, 0.1, 1, 10), least, 60))
    figure.update_yaxes(range=[0, 101])
    return "gaps", "Intervals between submissions", figure


def _hours(made: Columns, real: Columns | None) -> Figure:
    assert made.hours is not None
    figure = _figure("hour of the day", "% of submissions", barmode="overlay")
    hours = list(range(HOURS))
    figure.add_bar(
        x=hours,
        y=100 * made.hours,
        name="generated",
        marker={"color": MADE, "opacity": 0.8},
        hovertemplate="%{x}:00: %{y:.1f} %<extra>generated</extra>",
    )
    if real is not None and real.hours is not None:
        figure.add_scatter(
            x=hours,
            y=100 * real.hours,
            mode="lines+markers",
            name=real.name,
            line={"color": REAL, "width": 2},
            marker={"size": 5},
            hovertemplate="%{x}:00: %{y:.1f} %<extra>real</extra>",
        )
    figure.update_xaxes(
        tickvals=list(range(0, HOURS, 3)), ticktext=[f"{hour}:00" for hour in range(0, HOURS, 3)]
    )
    figure.update_yaxes(rangemode="tozero")
    return "hours", "Submissions by hour of the day", figure


def _weekdays(made: Columns, real: Columns | None) -> Figure | None:
    if made.weekdays is None:
        return None
    figure = _figure("", "% of submissions", barmode="group")
    for name, colour, shares in _shown(made, real, "weekdays"):
        _bars(figure, WEEKDAY_NAMES, 100 * shares, name, colour)
    return "weekdays", "Submissions by weekday (whole weeks)", figure


def _users(made: Columns, model: Model) -> Figure:
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
    figure.add_scatter(
        x=[5, 5],
        y=[45, 60],
        mode="lines+markers",
        name="Helios' top 5 %: 45 to 60 % of the GPU time",
        line={"color": PUBLISHED, "width": 1},
        marker={"size": 8, "symbol": "diamond"},
    )
    figure.update_xaxes(range=[-1, 101])
    figure.update_yaxes(range=[0, 101])
    return "users", "Jobs by user", figure


def _tenants(made: Columns, real: Columns | None, model: Model) -> Figure | None:
    if not made.tenants:
        return None
    figure = _figure("virtual cluster", "% of jobs", barmode="group")
    names = [group.name for group in sorted(model.groups, key=lambda group: -group.share)][
        :MOST_TENANTS
    ]
    for name, colour, counts in _shown(made, real, "tenants"):
        if counts:
            total = sum(counts.values())
            shares = [100 * counts.get(tenant, 0) / total for tenant in names]
            _bars(figure, names, shares, name, colour)
    figure.update_xaxes(type="category", tickangle=-40)
    return "tenants", "Jobs by virtual cluster", figure


def _ordered(model: Model) -> list[str]:
    """Causes with the most published failures last, as bars are drawn from below."""
    counts = published_causes(model)
    return sorted(counts, key=lambda kind: counts[kind])[-MOST_CAUSES:]


def _by_cause(x: str, kinds: Sequence[str]) -> Any:
    margin = {"l": 150, "r": 18, "t": 40, "b": 50}
    figure = _figure(x, "", height=150 + 17 * len(kinds), margin=margin)
    figure.update_yaxes(tickfont={"size": 11})
    return figure


def _causes(made: Columns, model: Model) -> Figure | None:
    if not made.after_s:
        return None
    kinds, counts = _ordered(model), published_causes(model)
    figure = _by_cause("% of failed attempts", kinds)
    total, published = sum(len(after) for after in made.after_s.values()), sum(counts.values())
    shares = [100 * len(made.after_s.get(kind, ())) / total for kind in kinds]
    _bars(figure, shares, kinds, "generated", MADE, orientation="h")
    figure.add_scatter(
        y=kinds,
        x=[100 * counts[kind] / published for kind in kinds],
        mode="markers",
        name=f"published ({model.failing.source})",
        marker={"color": PUBLISHED, "size": 8, "symbol": "diamond"},
    )
    figure.update_xaxes(rangemode="tozero")
    return "causes", "Failures by cause", figure


def _after(made: Columns, model: Model) -> Figure | None:
    if not made.after_s:
        return None
    kinds = [kind for kind in _ordered(model) if len(made.after_s.get(kind, ())) >= 5]
    if not kinds:
        return None
    causes = {cause.kind: cause for cause in model.failing.causes}
    figure = _by_cause("run time to failure", kinds)
    for share, symbol in ((0.5, "circle"), (0.9, "square")):
        figure.add_scatter(
            y=kinds,
            x=[max(1.0, float(np.quantile(made.after_s[kind], share))) for kind in kinds],
            mode="markers",
            name=f"generated, {100 * share:.0f} %",
            marker={"color": MADE, "size": 9, "symbol": symbol},
        )
        figure.add_scatter(
            y=kinds,
            x=[float(causes[kind].after_s.at(np.array([share]))[0]) for kind in kinds],
            mode="markers",
            name=f"fitted, {100 * share:.0f} %",
            marker={
                "color": PUBLISHED,
                "size": 10,
                "symbol": symbol + "-open",
                "line": {"width": 1.5},
            },
        )
    _seconds_axis(figure, [np.concatenate([made.after_s[kind] for kind in kinds])])
    figure.update_yaxes(type="category")
    return "after", "Run time to failure: median and 90th percentile", figure
