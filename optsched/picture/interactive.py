"""Figures of pages (plotly)."""

from html import escape
from math import log10
from typing import Any

import numpy as np

from ..duration import human
from .palette import INK, MUTED, PAPER
from .panels import Axis, Bars, Chart, Dots, Heat, Intervals, Line, Mark, Panel
from .paper import SCALE, WORST
from .style import AXIS, GROUND, LEGEND, TIME_TICKS, heading

PX_PER_IN, ABOVE_PX, BELOW_PX, BETWEEN_PX = 105, 34, 52, 84


def figure(chart: Chart) -> Any:
    """Return the plotly figure: all panels with one legend to the right."""
    from plotly.subplots import make_subplots

    columns = chart.columns
    inner = chart.rows * chart.panel_in * PX_PER_IN + (chart.rows - 1) * BETWEEN_PX
    names = any(panel.y.names for panel in chart.panels)
    fig = make_subplots(
        rows=chart.rows,
        cols=columns,
        subplot_titles=[escape(panel.title) for panel in chart.panels],
        vertical_spacing=BETWEEN_PX / inner if chart.rows > 1 else 0.0,
        horizontal_spacing=(0.2 if names else 0.09) if columns > 1 else 0.0,
    )
    listed: set[str] = set()
    for i, panel in enumerate(chart.panels):
        where = {"row": i // columns + 1, "col": i % columns + 1}
        for mark in panel.marks:
            _mark(fig, mark, panel, where, listed)
        fig.update_xaxes(**_axis(panel.x, panel), **where)
        fig.update_yaxes(**_axis(panel.y, panel), **where)
        if panel.y.names:
            fig.update_yaxes(
                autorange="reversed",
                type="category",
                tickfont={"size": 11, "color": INK},
                dtick=1,
                showgrid=False,
                categoryorder="array",
                categoryarray=list(panel.y.names),
                **where,
            )
        if panel.x.names:
            fig.update_xaxes(
                type="category",
                side="top",
                showgrid=False,
                tickfont={"size": 11, "color": INK},
                **where,
            )
    first = next(iter(chart.panels[0].marks), None)
    below = 8 if isinstance(first, Heat) else BELOW_PX
    fig.update_annotations(font={"size": 12.5, "color": INK})
    fig.update_layout(
        height=int(inner + ABOVE_PX + below),
        margin={"l": 64, "r": 20, "t": ABOVE_PX, "b": below},
        barmode="stack",
        **GROUND,
        hovermode="closest",
        showlegend=bool(listed),
        legend={**LEGEND, "y": 1.02}
        if chart.above
        else {
            **LEGEND,
            "orientation": "v",
            "x": 1.01,
            "y": 1,
            "yanchor": "top",
            "traceorder": "reversed" if isinstance(first, Line | Dots) else "normal",
        },
    )
    return fig


def _axis(what: Axis, panel: Panel) -> dict[str, Any]:
    axis: dict[str, Any] = {**AXIS, "title": heading(what.title)}
    if what.names:
        return axis
    if what.log:
        axis["type"] = "log"
    if what.low is not None and what.high is not None:
        axis["range"] = [log10(what.low), log10(what.high)] if what.log else [what.low, what.high]
    elif what.low is not None:
        axis["rangemode"] = "tozero"
    if what.percent:
        axis["tickformat"] = ".0%"
    if what.ticks:
        axis |= {
            "tickvals": [at for at, _ in what.ticks],
            "ticktext": [text for _, text in what.ticks],
        }
    if any(isinstance(mark, Intervals) for mark in panel.marks):
        axis |= {"zeroline": True, "zerolinecolor": MUTED}
    return axis


def _mark(fig: Any, mark: Mark, panel: Panel, where: dict[str, int], listed: set[str]) -> None:
    name = escape(mark.name)
    is_listed = not isinstance(mark, Heat) and getattr(mark, "listed", True)
    first = is_listed and mark.name not in listed
    if is_listed:
        listed.add(mark.name)
    shared = {"name": name, "legendgroup": name, "showlegend": first, **where}
    match mark:
        case Line():
            fig.add_scatter(
                x=list(mark.x),
                y=_rounded(mark.y),
                mode="lines",
                fill="tozeroy" if mark.filled else None,
                line={
                    "color": mark.colour,
                    "width": mark.width,
                    "dash": "dash" if mark.dashed else "solid",
                    "shape": "hv",
                },
                text=[human(x) if panel.x.ticks is TIME_TICKS else f"{x:.4g}" for x in mark.x],
                hovertemplate=f"{name}: %{{y{':.1%' if panel.y.percent else ':.4~g'}}} at "
                f"%{{text}}<extra></extra>",
                **shared,
            )
        case Dots():
            fig.add_scatter(
                x=list(mark.x),
                y=list(mark.y),
                mode="markers+text" if mark.told else "markers",
                text=list(map(escape, mark.names)),
                textposition="top right",
                textfont={"size": 10},
                marker={"color": mark.colour, "size": 9, "line": {"width": 1, "color": PAPER}},
                hovertemplate="%{text}: %{x:.4~g}, %{y:.4~g}<extra></extra>",
                **shared,
            )
        case Bars():
            fig.add_bar(
                orientation="h",
                y=list(panel.y.names),
                x=_rounded(mark.lengths),
                marker={"color": mark.colour},
                hovertemplate=f"%{{y}}, {name}: %{{x:,.4~g}}<extra></extra>",
                **shared,
            )
        case Intervals():
            fig.add_scatter(
                x=_rounded(mark.mid),
                y=list(mark.rows),
                mode="markers",
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "thickness": 1.3,
                    "width": 3,
                    "color": mark.colour,
                    "array": _rounded(np.subtract(mark.high, mark.mid)),
                    "arrayminus": _rounded(np.subtract(mark.mid, mark.low)),
                },
                marker={
                    "color": mark.colour if mark.filled else PAPER,
                    "size": 8,
                    "line": {"width": 1.5, "color": mark.colour},
                },
                hovertemplate="%{y}: %{x:+.3~g} %<extra></extra>",
                **shared,
            )
        case Heat():
            fig.add_heatmap(
                x=list(panel.x.names),
                y=list(panel.y.names),
                z=[list(row) for row in mark.values],
                text=[list(row) for row in mark.texts],
                texttemplate="%{text}",
                textfont={"size": 10.5, "color": INK},
                zmin=0,
                zmax=max(
                    [WORST, *(value for row in mark.values for value in row if value is not None)]
                ),
                colorscale=[list(step) for step in SCALE],
                xgap=1,
                ygap=1,
                showscale=False,
                hovertemplate=f"%{{y}} on %{{x}}: {name} %{{text}}<extra></extra>",
                **where,
            )


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
