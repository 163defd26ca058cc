"""The page: an offline, interactive picture of a plan (plotly, extra `report`)."""

from html import escape
from pathlib import Path
from typing import Any

from ..duration import human
from ..files import write_text
from ..instance import Instance
from ..plan import Plan, Solution
from .axis import NodeGroup, TimeUnit, node_groups, time_unit
from .chart import Chart, Kind, chart
from .facts import JobFacts, job_facts
from .page import page
from .palette import BAND, GRID, INK, LATE, MUTED, NOW, OVERHEAD, PAPER, QUEUE, WORK, job_colour, shade

MOST_LABELS = 800
"""Bars beyond this number carry no names: measuring texts is what makes large pages slow."""
CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}
QUEUE_PX, USE_PX, SPACE_PX, TOP_PX, BOTTOM_PX = 130, 120, 44, 26, 52


def write_html(instance: Instance, solution: Solution, path: str | Path) -> None:
    """Write one self-contained HTML file; it needs no network.

    The solution must hold a plan that passes the verifier. Raises InputError where the file cannot be written.
    """
    plan = solution.plan
    assert plan is not None
    drawn = chart(instance, plan)
    div = figure(instance, plan, drawn).to_html(
        full_html=False, include_plotlyjs=True, div_id="gantt", config=CONFIG,
    )
    write_text(path, page(instance, solution, drawn, div))


def figure(instance: Instance, plan: Plan, drawn: Chart) -> Any:
    """The plotly figure: Gantt, queue and GPUs in use on one time axis."""
    import plotly.graph_objects as go

    unit = time_unit(drawn.end_s)
    groups = node_groups(instance, drawn.rows)
    facts = [job_facts(instance, entry) for entry in _in_file_order(instance, plan)]
    gantt_px = max(120, min(860, 26 * len(drawn.rows)))
    fig = go.Figure()
    for kind in ("past", "work", "setup", "save"):
        _add_bars(fig, go, instance, plan, drawn, facts, unit, kind)
    _add_pauses(fig, go, drawn, facts, unit)
    _add_steps(fig, go, drawn, unit)
    _lay_out(fig, drawn, groups, unit, gantt_px)
    return fig


def _in_file_order(instance: Instance, plan: Plan) -> list[Any]:
    entries = {entry.id: entry for entry in plan.jobs}
    return [entries[job.id] for job in instance.jobs]


FADE, HATCH = {"past": 1.7, "work": 1.0, "setup": 0.74, "save": 0.74}, {"past": "", "work": "", "setup": "/", "save": "x"}


def _add_bars(
    fig: Any, go: Any, instance: Instance, plan: Plan, drawn: Chart, facts: list[JobFacts], unit: TimeUnit, kind: Kind
) -> None:
    """One trace for each kind of bar, however many jobs there are."""
    bars = [bar for bar in drawn.bars if bar.kind == kind]
    if not bars:
        return
    entries = _in_file_order(instance, plan)
    late = [kind != "past" and bar.job in drawn.late and bar.segment == len(entries[bar.job].segments) - 1
            for bar in bars]
    few = sum(bar.kind == "work" for bar in drawn.bars) <= MOST_LABELS
    fig.add_bar(
        orientation="h",
        base=[bar.start_s / unit.seconds for bar in bars],
        x=[(bar.end_s - bar.start_s) / unit.seconds for bar in bars],
        y=[bar.top + bar.height / 2 for bar in bars],
        width=[bar.height - (0.12 if few else 0.0) for bar in bars],
        marker={
            "color": [shade(job_colour(bar.job), FADE[kind]) for bar in bars],
            "line": {"color": [LATE if one else PAPER for one in late], "width": [1.6 if one else 0.5 for one in late]},
            "pattern": {"shape": HATCH[kind], "fgcolor": PAPER, "fgopacity": 0.75, "size": 6, "solidity": 0.28},
            "cornerradius": 2,
        },
        text=[escape(instance.jobs[bar.job].id) for bar in bars] if few and kind == "work" else None,
        textposition="inside", insidetextanchor="middle",
        textfont={"color": INK, "size": 11}, constraintext="inside",
        hovertext=[_hover(instance, facts[bar.job], kind, bar.start_s, bar.end_s) for bar in bars],
        hoverinfo="text", name=kind, showlegend=False,
    )


KIND_WORDS = {"past": "ran before now", "work": "at work", "setup": "start-up or restore", "save": "checkpoint"}


def _hover(instance: Instance, facts: JobFacts, kind: Kind, start_s: float, end_s: float) -> str:
    job = instance.job[facts.id]
    lines = [f"<b>{escape(facts.id)}</b>  now: {facts.decision}"]
    if kind == "past":
        lines.append(f"ran since {_when(instance.running_job[job.id].started_s - instance.now_s)}")
    else:
        lines.append(f"{KIND_WORDS[kind]}: {_when(start_s)} to {_when(end_s)} ({human(end_s - start_s)})")
    gang = f"{facts.gpus} x {escape(facts.gpu_type or 'GPU')}" if facts.gpus else "no GPU"
    lines.append(f"{gang} on {escape(', '.join(facts.nodes[:4]) or 'no node')}{' ...' if len(facts.nodes) > 4 else ''}")
    lines.append(f"weight {job.weight:g}, completion time {human(facts.jct_s)}, waiting {human(facts.waiting_s)}")
    if job.tenant is not None:
        lines.append(f"tenant {escape(job.tenant)}")
    if job.after:
        lines.append(f"after {escape(', '.join(job.after[:6]))}{' ...' if len(job.after) > 6 else ''}")
    if job.deadline_s is not None:
        late = f", <b>missed by {human(facts.late_s)}</b>" if facts.late_s else ", met"
        lines.append(f"deadline {_when(job.deadline_s - instance.now_s)}{late}")
    return "<br>".join(lines)


def _when(at_s: float) -> str:
    if abs(at_s) < 1e-3:
        return "now"
    return f"{'+' if at_s > 0 else '-'}{human(abs(at_s))}"


def _add_pauses(fig: Any, go: Any, drawn: Chart, facts: list[JobFacts], unit: TimeUnit) -> None:
    """A dotted line from where a preempted job stopped to where it comes back, with a mark at either end."""
    if not drawn.pauses:
        return
    xs: list[float | None] = []
    ys: list[float | None] = []
    for pause in drawn.pauses:
        xs += [pause.stop_s / unit.seconds, pause.back_s / unit.seconds, None]
        ys += [pause.stop_row, pause.back_row, None]
    fig.add_scatter(x=xs, y=ys, mode="lines", line={"color": INK, "width": 1.2, "dash": "dot"}, hoverinfo="skip",
                    showlegend=False)
    for at, symbol, word in (("stop", "square", "preempted"), ("back", "triangle-right", "back")):
        fig.add_scatter(
            x=[getattr(pause, f"{at}_s") / unit.seconds for pause in drawn.pauses],
            y=[getattr(pause, f"{at}_row") for pause in drawn.pauses],
            mode="markers", marker={"symbol": symbol, "size": 10, "color": INK, "line": {"color": PAPER, "width": 1.5}},
            hovertext=[f"<b>{escape(facts[pause.job].id)}</b> {word} {_when(getattr(pause, f'{at}_s'))}<br>"
                       f"without GPUs for {human(max(0.0, pause.back_s - pause.stop_s))}" for pause in drawn.pauses],
            hoverinfo="text", showlegend=False,
        )


def _add_steps(fig: Any, go: Any, drawn: Chart, unit: TimeUnit) -> None:
    """Queue and GPUs in use, as stacked steps below the Gantt."""
    colours = {**QUEUE, "at work": WORK, "start, restore, checkpoint": OVERHEAD}
    for axis, legend, group in (("y2", "legend", drawn.queue), ("y3", "legend2", drawn.use)):
        for series in group:
            fig.add_scatter(
                x=[time / unit.seconds for time in series.times_s], y=series.values, yaxis=axis, legend=legend,
                stackgroup=axis, mode="lines", name=series.name, fillcolor=colours[series.name],
                line={"shape": "hv", "width": 0.6, "color": shade(colours[series.name], 0.85)},
                hovertemplate="%{y:.0f} " + series.name + "<extra></extra>",
            )
    if drawn.total_gpus:
        fig.add_scatter(x=[0, drawn.end_s / unit.seconds], y=[drawn.total_gpus] * 2, yaxis="y3", legend="legend2",
                        mode="lines", name="capacity", line={"color": INK, "width": 1.2, "dash": "dash"},
                        hoverinfo="skip")


def _lay_out(fig: Any, drawn: Chart, groups: list[NodeGroup], unit: TimeUnit, gantt_px: int) -> None:
    has_queue, has_use = bool(drawn.queue), bool(drawn.total_gpus)
    inner = gantt_px + (QUEUE_PX + SPACE_PX) * has_queue + (USE_PX + SPACE_PX) * has_use
    use_top = USE_PX / inner if has_use else 0.0
    queue_bottom = (USE_PX + SPACE_PX) / inner if has_use else 0.0
    queue_top = queue_bottom + QUEUE_PX / inner
    row_px = gantt_px / max(1, len(drawn.rows))
    axis = {"showgrid": False, "zeroline": False, "fixedrange": True, "color": MUTED}
    labels = [group for group in groups if group.labelled(row_px)]
    fig.update_layout(
        height=inner + TOP_PX + BOTTOM_PX, margin={"l": 118, "r": 24, "t": TOP_PX, "b": BOTTOM_PX}, barmode="overlay",
        bargap=0, plot_bgcolor=PAPER, paper_bgcolor=PAPER, font={"family": FONT, "size": 12, "color": INK},
        uniformtext={"minsize": 10, "mode": "hide"}, hovermode="closest", dragmode="zoom",
        hoverlabel={"bgcolor": PAPER, "bordercolor": GRID, "font": {"size": 12, "family": FONT}, "align": "left"},
        xaxis={
            "title": {"text": f"{unit.name} from now", "font": {"size": 12, "color": MUTED}}, "anchor": "free",
            "position": 0, "range": [drawn.start_s / unit.seconds, drawn.end_s * 1.01 / unit.seconds],
            "gridcolor": GRID, "zeroline": False, "color": MUTED, "showspikes": True, "spikemode": "across",
            "spikethickness": 1, "spikecolor": MUTED, "spikedash": "dot", "spikesnap": "cursor",
        },
        yaxis={**axis, "domain": [queue_top + SPACE_PX / inner if has_queue else
                                  use_top + SPACE_PX / inner if has_use else 0, 1],
               "range": [len(drawn.rows), 0], "tickvals": [group.first + group.rows / 2 for group in labels],
               "ticktext": [group.text(row_px, escape) for group in labels], "fixedrange": False,
               "tickfont": {"size": 11, "color": INK}, "ticks": "outside", "ticklen": 7, "tickcolor": PAPER},
        shapes=_shapes(drawn, groups, row_px),
        annotations=[{"x": 0, "y": 1, "xref": "x", "yref": "paper", "yanchor": "bottom", "text": "now",
                      "showarrow": False, "font": {"size": 11, "color": NOW}}],
    )
    legend = {"orientation": "h", "x": 1, "xanchor": "right", "yanchor": "bottom", "font": {"size": 11, "color": MUTED},
              "bgcolor": "rgba(0,0,0,0)", "traceorder": "normal"}
    title = {"font": {"size": 12, "color": INK}}
    if has_queue:
        fig.update_layout(legend={**legend, "y": queue_top},
                          yaxis2={**axis, "domain": [queue_bottom, queue_top], "rangemode": "tozero", "showgrid": True,
                                  "gridcolor": GRID, "nticks": 5, "title": {**title, "text": "jobs waiting"},
                                  "tickformat": ",d"})
    if has_use:
        fig.update_layout(legend2={**legend, "y": use_top},
                          yaxis3={**axis, "domain": [0, use_top], "range": [0, drawn.total_gpus * 1.08],
                                  "showgrid": True, "gridcolor": GRID, "nticks": 5,
                                  "title": {**title, "text": "GPUs in use"}, "tickformat": ",d"})


FONT = "Inter, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


def _shapes(drawn: Chart, groups: list[NodeGroup], row_px: float) -> list[dict[str, Any]]:
    """Bands that tell nodes apart, lines between GPUs where there is room, and the line of now."""
    shapes: list[dict[str, Any]] = []
    for i, group in enumerate(groups):
        if len(groups) <= 256:
            shapes.append({"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": group.first,
                           "y1": group.first + group.rows, "layer": "below", "line": {"width": 0},
                           "fillcolor": BAND if i % 2 == 0 else "#eef2f6"})
        if row_px >= 9:
            shapes.extend(
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": row, "y1": row, "layer": "below",
                 "line": {"width": 1, "color": PAPER}}
                for row in range(group.first + 1, group.first + group.rows)
            )
    shapes.append({"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1,
                   "line": {"color": NOW, "width": 1.4}})
    return shapes
