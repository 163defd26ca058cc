"""The figures of the page, each a few plotly traces, however many jobs there are."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ...duration import human
from ...picture.axis import TimeUnit, time_unit
from ...picture.chart import SIZES
from ...picture.facts import percent
from ...picture.interactive import figure
from ...picture.marks import add_stacked
from ...picture.palette import INK, MUTED, PAPER, QUEUE, shade
from ...picture.panels import SHARE_OF_JOBS, Axis, Bars, Chart, Line, Mark, Panel
from ...picture.style import AXIS, GROUND, LEGEND, TIME_TICKS, heading
from ...picture.text_simulation import REASON_WORDS
from ..metrics import Metrics
from ..metrics.waiting import REASONS
from ..record import Floats
from .series import (
    Curves,
    distribution,
    gpus_in_use,
    jobs_waiting,
    node_map,
    shown_s,
    size_of,
    waiting_by_size,
)

TYPE_COLOURS = (
    "#4d93cc",
    "#e9a23b",
    "#5fb49c",
    "#b07cc6",
    "#d9776b",
    "#8a9a5b",
    "#c9a66b",
    "#6f7fbf",
)
REASON_COLOURS = {
    "decision": "#cfd8e3",
    "fair_share": "#e9c46a",
    "fragmentation": "#e07a5f",
    "price": "#4d93cc",
}
HOURS = {
    "work": ("work", "#4d93cc"),
    "first_starts": ("first starts", "#a9cdea"),
    "preemptions": ("preemptions", "#e9a23b"),
    "failures": ("failures", "#d92d20"),
    "node_losses": ("lost nodes", "#8c1d18"),
    "out_of_memory": ("out of memory", "#7a5195"),
}
ROUNDED_S = 1.0
"""Times below this are drawn as this on a logarithmic axis."""


def over_time(metrics: Metrics) -> Any:
    """Return GPUs in use above the jobs that wait, on one time axis."""
    use, queue = gpus_in_use(metrics), jobs_waiting(metrics)
    unit = time_unit(shown_s(metrics))
    fig = _figure(480, hovermode="x unified")
    colours = {name: TYPE_COLOURS[k % len(TYPE_COLOURS)] for k, name in enumerate(use.means)}
    _stack(fig, use, unit, colours, "y", "legend")
    if use.there is not None:
        fig.add_scatter(
            x=use.edges_s / unit.seconds,
            y=_closed(use.there),
            name="there",
            legend="legend",
            mode="lines",
            line={"shape": "hv", "width": 1.2, "color": INK, "dash": "dash"},
            hovertemplate="%{y:,.0f} GPUs there<extra></extra>",
        )
    _stack(fig, queue, unit, QUEUE, "y2", "legend2")
    legend = {**LEGEND, "bgcolor": "rgba(0,0,0,0)"}
    counted = {**AXIS, "rangemode": "tozero", "tickformat": ",d", "fixedrange": True}
    fig.update_layout(
        xaxis={
            **AXIS,
            "title": heading(_from_now(metrics, unit)),
            "anchor": "y2",
            "hoverformat": ".4~g",
            "range": [0, shown_s(metrics) / unit.seconds],
        },
        yaxis={**counted, "domain": [0.54, 1], "title": heading("GPUs in use", INK)},
        yaxis2={
            **counted,
            "domain": [0, 0.44],
            "title": heading("jobs waiting", INK),
            "tickformat": ",",
        },
        legend={**legend, "y": 1.0},
        legend2={**legend, "y": 0.44},
    )
    _mark_last_submission(fig, metrics, unit)
    return fig


def _from_now(metrics: Metrics, unit: TimeUnit) -> str:
    last_s = float(metrics.completion_s.max()) - metrics.instance.now_s
    text = f"{unit.name} from now"
    return (
        text
        if shown_s(metrics) >= last_s
        else f"{text} (the last job completes at {human(last_s)}: double-click)"
    )


def _mark_last_submission(fig: Any, metrics: Metrics, unit: TimeUnit) -> None:
    last_s = float(metrics.release_s.max()) - metrics.instance.now_s
    if last_s <= 0:
        return
    fig.add_vline(x=last_s / unit.seconds, line={"color": MUTED, "width": 1, "dash": "dot"})
    fig.add_annotation(
        x=last_s / unit.seconds,
        y=0.93,
        yref="paper",
        text="last submission",
        showarrow=False,
        xanchor="left",
        yanchor="top",
        xshift=3,
        font={"size": 11, "color": MUTED},
    )


def _stack(
    fig: Any, curves: Curves, unit: TimeUnit, colours: dict[str, str], axis: str, legend: str
) -> None:
    x = curves.edges_s / unit.seconds
    for name, values in curves.means.items():
        add_stacked(fig, escape(name), x, _closed(values), colours[name], axis, legend, ",.1f")


def _closed(values: Floats) -> Floats:
    """Return a value for each edge: steps last until the end of the last one."""
    return np.append(values, values[-1:]).round(3)


def waiting_split(metrics: Metrics) -> Any:
    """Return mean wait by reason, one bar for each size of gang."""
    names, jobs, means = waiting_by_size(metrics)
    unit = time_unit(float(means.sum(axis=1).max()))
    bars = [
        Bars(REASON_WORDS[reason], (means[:, k] / unit.seconds).tolist(), REASON_COLOURS[reason])
        for k, reason in enumerate(REASONS)
        if means[:, k].any()
    ]
    rows = tuple(f"{name}: {count:,} jobs" for name, count in zip(names, jobs, strict=True))
    return _panel(
        Axis(f"mean waiting, {unit.name}", low=0.0), Axis(names=rows), bars, 0.42 * len(names)
    )


def distributions(metrics: Metrics, values: Floats, title: str) -> Any:
    """Return the share of jobs whose time is at most so long, on a logarithmic axis, for each size
    of gang."""
    size = size_of(metrics.gpus)
    groups = [(name, values[size == k], shade(QUEUE[name], 0.9)) for k, name in enumerate(SIZES)]
    there = [group for group in groups if len(group[1])]
    lines = []
    for name, mine, colour in [*(there if len(there) > 1 else []), ("all jobs", values, INK)]:
        at_s, share = distribution(mine)
        x, y = np.maximum(at_s, ROUNDED_S).tolist(), share.tolist()
        lines.append(Line(name, x, y, colour, width=2.2 if colour == INK else 1.6))
    return _panel(Axis(title, log=True, ticks=TIME_TICKS), SHARE_OF_JOBS, lines, 2.3)


def gpu_hours(total: dict[str, Any]) -> Any:
    """Return what the GPU-hours held went into, as one bar; what is idle would drown it in a long
    drain."""
    hours = total["gpu_h"]
    bars = []
    for name, (words, colour) in HOURS.items():
        amount = sum(hours[name].values()) if isinstance(hours[name], dict) else hours[name]
        if amount > 0:
            share = amount / hours["held"]
            bars.append(Bars(f"{words} {percent(share)}", [share], colour))
    return _panel(Axis(percent=True, low=0.0, high=1.0), Axis(names=("",)), bars, 0.9)


def _panel(x: Axis, y: Axis, marks: Sequence[Mark], panel_in: float) -> Any:
    panel = Panel("", x, y, tuple(marks))
    return figure(Chart("", "", "", (panel,), panel_in, above=True))


def nodes_over_time(metrics: Metrics) -> Any:
    """Return how busy each node was: a map of nodes and time."""
    busy = node_map(metrics)
    unit = time_unit(shown_s(metrics))
    fig = _figure(int(min(760, 120 + max(10, 700 / len(busy.names)) * len(busy.names))))
    fig.add_heatmap(
        x=busy.edges_s / unit.seconds,
        y=[escape(name) for name in busy.names],
        z=busy.share.round(3),
        zmin=0,
        zmax=1,
        colorscale=[[0, PAPER], [0.25, "#d4e6f4"], [0.75, "#6aa6d6"], [1, "#1f5f9e"]],
        colorbar={
            "title": {"text": "GPUs held", "font": {"size": 11, "color": MUTED}},
            "tickformat": ".0%",
            "thickness": 12,
            "outlinewidth": 0,
        },
        hovertemplate="%{y}<br>%{z:.0%} held<extra></extra>",
    )
    fig.update_layout(
        xaxis={
            **AXIS,
            "title": heading(_from_now(metrics, unit)),
            "showgrid": False,
            "range": [0, shown_s(metrics) / unit.seconds],
        },
        yaxis={
            **AXIS,
            "autorange": "reversed",
            "showgrid": False,
            "tickfont": {"size": 10, "color": INK},
            "type": "category",
        },
    )
    return fig


def _figure(height: int, **more: Any) -> Any:
    """Return an empty figure."""
    import plotly.graph_objects as go

    margin = {"l": 60, "r": 20, "t": 34, "b": 44}
    return go.Figure().update_layout(height=height, margin=margin, **GROUND, **more)
