"""The page: an offline, interactive picture of a plan (plotly)."""

from html import escape
from pathlib import Path
from typing import Any

from ..files import write_text
from ..model import Instance, Plan, Solution
from .axis import NodeGroup, TimeUnit, node_groups, time_unit
from .chart import Chart, chart
from .facts import job_facts
from .html import div
from .marks import add_bars, add_pauses, add_steps
from .page import page
from .palette import BANDS, GRID, INK, MUTED, NOW, PAPER
from .style import FONT, GROUND, LEGEND, heading

QUEUE_PX, USE_PX, SPACE_PX, TOP_PX, BOTTOM_PX = 130, 120, 44, 26, 52


def write_html(instance: Instance, solution: Solution, path: str | Path) -> None:
    """Write one self-contained HTML file; it needs no network.

    The solution must hold a plan that passes the verifier. Raises InputError where the file cannot
    be written.
    """
    plan = solution.plan
    assert plan is not None
    drawn = chart(instance, plan)
    picture = div(figure(instance, plan, drawn), "gantt", library=True)
    write_text(path, page(instance, solution, drawn, picture))


def figure(instance: Instance, plan: Plan, drawn: Chart) -> Any:
    """Return the plotly figure: Gantt, queue and GPUs in use on one time axis."""
    import plotly.graph_objects as go

    unit = time_unit(drawn.end_s)
    groups = node_groups(instance, drawn.rows)
    entries = {entry.id: entry for entry in plan.jobs}
    facts = [job_facts(instance, entries[job.id]) for job in instance.jobs]
    gantt_px = max(120, min(860, 26 * len(drawn.rows)))
    fig = go.Figure()
    for kind in ("past", "work", "setup", "save"):
        add_bars(fig, instance, drawn, facts, unit, kind)
    add_pauses(fig, drawn, facts, unit)
    add_steps(fig, drawn, unit)
    _lay_out(fig, drawn, groups, unit, gantt_px)
    return fig


def _lay_out(
    fig: Any, drawn: Chart, groups: list[NodeGroup], unit: TimeUnit, gantt_px: int
) -> None:
    has_queue, has_use = bool(drawn.queue), bool(drawn.total_gpus)
    inner = gantt_px + (QUEUE_PX + SPACE_PX) * has_queue + (USE_PX + SPACE_PX) * has_use
    use_top = USE_PX / inner if has_use else 0.0
    queue_bottom = (USE_PX + SPACE_PX) / inner if has_use else 0.0
    queue_top = queue_bottom + QUEUE_PX / inner
    row_px = gantt_px / max(1, len(drawn.rows))
    axis = {"showgrid": False, "zeroline": False, "fixedrange": True, "color": MUTED}
    labels = [group for group in groups if group.labelled(row_px)]
    fig.update_layout(
        height=inner + TOP_PX + BOTTOM_PX,
        margin={"l": 118, "r": 24, "t": TOP_PX, "b": BOTTOM_PX},
        barmode="overlay",
        bargap=0,
        **GROUND,
        uniformtext={"minsize": 10, "mode": "hide"},
        hovermode="closest",
        dragmode="zoom",
        hoverlabel_font={"family": FONT, "size": 12},
        hoverlabel_align="left",
        xaxis={
            "title": heading(f"{unit.name} from now"),
            "anchor": "free",
            "position": 0,
            "range": [drawn.start_s / unit.seconds, drawn.end_s * 1.01 / unit.seconds],
            "gridcolor": GRID,
            "zeroline": False,
            "color": MUTED,
            "showspikes": True,
            "spikemode": "across",
            "spikethickness": 1,
            "spikecolor": MUTED,
            "spikedash": "dot",
            "spikesnap": "cursor",
        },
        yaxis={
            **axis,
            "domain": [
                queue_top + SPACE_PX / inner
                if has_queue
                else use_top + SPACE_PX / inner
                if has_use
                else 0,
                1,
            ],
            "range": [len(drawn.rows), 0],
            "tickvals": [group.first + group.rows / 2 for group in labels],
            "ticktext": [group.text(row_px, escape) for group in labels],
            "fixedrange": False,
            "tickfont": {"size": 11, "color": INK},
            "ticks": "outside",
            "ticklen": 7,
            "tickcolor": PAPER,
        },
        shapes=_shapes(groups, row_px),
        annotations=[
            {
                "x": 0,
                "y": 1,
                "xref": "x",
                "yref": "paper",
                "yanchor": "bottom",
                "text": "now",
                "showarrow": False,
                "font": {"size": 11, "color": NOW},
            }
        ],
    )
    legend = {**LEGEND, "x": 1, "xanchor": "right", "bgcolor": "rgba(0,0,0,0)"}
    steps = {**axis, "showgrid": True, "gridcolor": GRID, "nticks": 5, "tickformat": ",d"}
    if has_queue:
        fig.update_layout(
            legend={**legend, "y": queue_top},
            yaxis2={
                **steps,
                "domain": [queue_bottom, queue_top],
                "rangemode": "tozero",
                "title": heading("jobs waiting", INK),
            },
        )
    if has_use:
        fig.update_layout(
            legend2={**legend, "y": use_top},
            yaxis3={
                **steps,
                "domain": [0, use_top],
                "range": [0, drawn.total_gpus * 1.08],
                "title": heading("GPUs in use", INK),
            },
        )


def _shapes(groups: list[NodeGroup], row_px: float) -> list[dict[str, Any]]:
    """Return bands that tell nodes apart, lines between GPUs where there is room, and the line of
    now."""
    across = {"xref": "paper", "x0": 0, "x1": 1, "layer": "below"}
    shapes: list[dict[str, Any]] = []
    for i, group in enumerate(groups):
        end = group.first + group.rows
        if len(groups) <= 256:
            place = {**across, "y0": group.first, "y1": end}
            shapes.append(
                {"type": "rect", **place, "line": {"width": 0}, "fillcolor": BANDS[i % 2]}
            )
        if row_px >= 9:
            line = {"width": 1, "color": PAPER}
            shapes += [
                {"type": "line", **across, "y0": row, "y1": row, "line": line}
                for row in range(group.first + 1, end)
            ]
    now = {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1}
    return [*shapes, {**now, "line": {"color": NOW, "width": 1.4}}]
