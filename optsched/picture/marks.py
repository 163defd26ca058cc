"""The bars, marks and steps of a page: a few plotly traces with arrays, never one a job."""

from collections.abc import Sequence
from html import escape
from typing import Any

from ..duration import human
from ..model import Instance
from .axis import TimeUnit
from .chart import Chart, Kind
from .facts import JobFacts
from .palette import FADE, INK, LATE, PAPER, QUEUE, USE, job_colour, shade

MOST_LABELS = 800
"""Bars beyond this number carry no names: measuring texts is what makes large pages slow."""

HATCH = {"past": "", "work": "", "setup": "/", "save": "x"}


def add_bars(
    fig: Any, instance: Instance, drawn: Chart, facts: list[JobFacts], unit: TimeUnit, kind: Kind
) -> None:
    """Add one trace for each kind of bar, however many jobs there are."""
    bars = [bar for bar in drawn.bars if bar.kind == kind]
    if not bars:
        return
    few = sum(bar.kind == "work" for bar in drawn.bars) <= MOST_LABELS
    fig.add_bar(
        orientation="h",
        base=[bar.start_s / unit.seconds for bar in bars],
        x=[(bar.end_s - bar.start_s) / unit.seconds for bar in bars],
        y=[bar.top + bar.height / 2 for bar in bars],
        width=[bar.height - (0.12 if few else 0.0) for bar in bars],
        marker={
            "color": [shade(job_colour(bar.job), FADE[kind]) for bar in bars],
            "line": {
                "color": [LATE if bar.late else PAPER for bar in bars],
                "width": [1.6 if bar.late else 0.5 for bar in bars],
            },
            "pattern": {
                "shape": HATCH[kind],
                "fgcolor": PAPER,
                "fgopacity": 0.75,
                "size": 6,
                "solidity": 0.28,
            },
            "cornerradius": 2,
        },
        text=[escape(instance.jobs[bar.job].id) for bar in bars]
        if few and kind == "work"
        else None,
        textposition="inside",
        insidetextanchor="middle",
        textfont={"color": INK, "size": 11},
        constraintext="inside",
        hovertext=[_hover(instance, facts[bar.job], kind, bar.start_s, bar.end_s) for bar in bars],
        hoverinfo="text",
        name=kind,
        showlegend=False,
    )


KIND_WORDS = {"work": "at work", "setup": "start-up or restore", "save": "checkpoint"}


def _hover(instance: Instance, facts: JobFacts, kind: Kind, start_s: float, end_s: float) -> str:
    job = instance.job[facts.id]
    if kind == "past":
        did = f"ran since {_when(instance.running_job[job.id].started_s - instance.now_s)}"
    else:
        length = human(end_s - start_s)
        did = f"{KIND_WORDS[kind]}: {_when(start_s)} to {_when(end_s)} ({length})"
    gang = f"{facts.gpus} x {escape(facts.gpu_type or 'GPU')}" if facts.gpus else "no GPU"
    lines = [
        f"<b>{escape(facts.id)}</b>  now: {facts.decision}",
        did,
        f"{gang} on {_first(facts.nodes, 4) or 'no node'}",
        f"weight {job.weight:g}, completion time {human(facts.jct_s)}, waiting "
        f"{human(facts.waiting_s)}",
    ]
    if job.tenant is not None:
        lines.append(f"tenant {escape(job.tenant)}")
    if job.after:
        lines.append(f"after {_first(job.after, 6)}")
    if job.deadline_s is not None:
        late = f", <b>missed by {human(facts.late_s)}</b>" if facts.late_s else ", met"
        lines.append(f"deadline {_when(job.deadline_s - instance.now_s)}{late}")
    return "<br>".join(lines)


def _first(names: Sequence[str], most: int) -> str:
    return escape(", ".join(names[:most])) + " ..." * (len(names) > most)


def _when(at_s: float) -> str:
    if abs(at_s) < 1e-3:
        return "now"
    return f"{'+' if at_s > 0 else '-'}{human(abs(at_s))}"


def add_pauses(fig: Any, drawn: Chart, facts: list[JobFacts], unit: TimeUnit) -> None:
    """Add a dotted line from where a preempted job stopped to where it comes back, with a mark at
    either end."""
    if not drawn.pauses:
        return
    xs: list[float | None] = []
    ys: list[float | None] = []
    for pause in drawn.pauses:
        xs += [pause.stop_s / unit.seconds, pause.back_s / unit.seconds, None]
        ys += [pause.stop_row, pause.back_row, None]
    fig.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        line={"color": INK, "width": 1.2, "dash": "dot"},
        hoverinfo="skip",
        showlegend=False,
    )
    for at, symbol, word in (("stop", "square", "preempted"), ("back", "triangle-right", "back")):
        fig.add_scatter(
            x=[getattr(pause, f"{at}_s") / unit.seconds for pause in drawn.pauses],
            y=[getattr(pause, f"{at}_row") for pause in drawn.pauses],
            mode="markers",
            marker={
                "symbol": symbol,
                "size": 10,
                "color": INK,
                "line": {"color": PAPER, "width": 1.5},
            },
            hovertext=[
                f"<b>{escape(facts[pause.job].id)}</b> {word} "
                f"{_when(getattr(pause, f'{at}_s'))}<br>"
                f"without GPUs for {human(max(0.0, pause.back_s - pause.stop_s))}"
                for pause in drawn.pauses
            ],
            hoverinfo="text",
            showlegend=False,
        )


def add_steps(fig: Any, drawn: Chart, unit: TimeUnit) -> None:
    """Add the queue and the GPUs in use, as stacked steps below the Gantt."""
    colours = {**QUEUE, **USE}
    for axis, legend, group in (("y2", "legend", drawn.queue), ("y3", "legend2", drawn.use)):
        for series in group:
            x = [time / unit.seconds for time in series.times_s]
            add_stacked(
                fig, series.name, x, series.values, colours[series.name], axis, legend, ".0f"
            )
    if drawn.total_gpus:
        fig.add_scatter(
            x=[0, drawn.end_s / unit.seconds],
            y=[drawn.total_gpus] * 2,
            yaxis="y3",
            legend="legend2",
            mode="lines",
            name="capacity",
            line={"color": INK, "width": 1.2, "dash": "dash"},
            hoverinfo="skip",
        )


def add_stacked(
    fig: Any, name: str, x: Any, y: Any, colour: str, axis: str, legend: str, digits: str
) -> None:
    """Add steps on top of those that the axis has."""
    fig.add_scatter(
        x=x,
        y=y,
        yaxis=axis,
        legend=legend,
        stackgroup=axis,
        mode="lines",
        name=name,
        fillcolor=colour,
        line={"shape": "hv", "width": 0.5, "color": shade(colour, 0.85)},
        hovertemplate=f"%{{y:{digits}}} {name}<extra></extra>",
    )
