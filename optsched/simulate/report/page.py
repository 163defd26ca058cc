"""The HTML around the figures: what was simulated and what came of it."""

from dataclasses import replace
from html import escape
from itertools import count
from typing import Any

import numpy as np

from ...duration import human
from ...model import Plan
from ...picture.axis import time_unit
from ...picture.chart import chart
from ...picture.gantt import figure as gantt
from ...picture.html import div, document, gpus_by_type, row, table, tiles, wide
from ...picture.text_simulation import REASON_WORDS
from ..metrics import Metrics
from ..metrics.waiting import REASONS
from .figures import distributions, gpu_hours, nodes_over_time, over_time, waiting_split
from .series import shown_s
from .words import tables
from .words import tiles as told

GANTT_ROWS, GANTT_GPUS = 1500, 300
"""Most segments and GPUs of which a Gantt chart is drawn; beyond them a map of how busy the nodes
were."""
LONGEST = 25
"""Jobs in the table of those that waited longest."""


def page(metrics: Metrics, total: dict[str, Any], plan: Plan) -> str:
    """Return the whole document, which needs no network. `total` is the summary with the names of
    instance and policy, and the levels of the objective; `plan` is that of the simulation."""
    title = f"{total['instance']['name']}: {total['policy']}"
    shown = _body(metrics, total, plan) if total["jobs"] else "<p>No jobs.</p>"
    numbers = "".join(_table(name, lines) for name, lines in tables(total).items())
    return document(
        title,
        f"<h1>{escape(title)}</h1><p>{_subtitle(metrics, total)}</p>",
        f'{tiles(told(total))}\n{shown}\n<section class="numbers">{numbers}</section>',
        MORE_STYLE,
    )


def _body(metrics: Metrics, total: dict[str, Any], plan: Plan) -> str:
    numbers = count(1)

    def draw(fig: Any, tools: bool = True) -> str:
        number = next(numbers)  # the first figure brings the library along
        return div(fig, f"figure-{number}", number == 1, tools)

    has_gpus = metrics.instance.cluster.total_gpus > 0
    parts = [_section("GPUs and queue over time", draw(over_time(metrics)))]
    left = _section("What jobs waited for", draw(waiting_split(metrics), tools=False))
    if has_gpus:
        left += _section("What the GPU-hours held went into", draw(gpu_hours(total), tools=False))
    parts.append(f'<div class="columns"><div>{left}</div><div>{_longest(metrics)}</div></div>')
    jct = _section(
        "Job completion time",
        draw(distributions(metrics, metrics.jct_s, "completion minus submission")),
    )
    waits = _section(
        "Waiting", draw(distributions(metrics, metrics.waiting_s, "waiting until completion"))
    )
    parts.append(f'<div class="columns"><div>{jct}</div><div>{waits}</div></div>')
    small = metrics.rows.rows <= GANTT_ROWS and metrics.instance.cluster.total_gpus <= GANTT_GPUS
    if small:
        drawn = replace(chart(metrics.instance, plan), queue=(), use=(), total_gpus=0)
        fig, unit = gantt(metrics.instance, plan, drawn), time_unit(drawn.end_s)
        fig.update_xaxes(
            range=[drawn.start_s / unit.seconds, 1.01 * shown_s(metrics) / unit.seconds]
        )
        parts.append(_section("Who ran where", draw(fig)))
    elif has_gpus:
        parts.append(_section("How busy the nodes were", draw(nodes_over_time(metrics))))
    return "\n".join(parts)


def _subtitle(metrics: Metrics, total: dict[str, Any]) -> str:
    cluster = metrics.instance.cluster
    how = f"policy <b>{escape(total['policy'])}</b>"
    how += "".join(f", {escape(key)}={escape(value)}" for key, value in total["options"].items())
    how += f", in rounds of {human(total['round_s'])}" if total["round_s"] else ""
    return (
        f"{total['jobs']:,} jobs on {len(cluster.nodes):,} nodes, {gpus_by_type(cluster)} "
        f"&middot; {how} &middot; instance {escape(total['instance']['hash'])}"
    )


def _section(title: str, html: str) -> str:
    return f'<section class="picture"><h2>{title}</h2>{html}</section>'


def _table(title: str, lines: list[tuple[str, str, str]]) -> str:
    rows = "".join(row([escape(cell) for cell in line], (1,)) for line in lines)
    return f'<section class="picture"><h2>{title}</h2>{wide(f"<table>{rows}</table>")}</section>'


def _longest(metrics: Metrics) -> str:
    """Return the jobs that waited longest, and for what."""
    order = np.argsort(-metrics.waiting_s, kind="stable")[:LONGEST]
    lines = []
    for i in order[metrics.waiting_s[order] > 0].tolist():
        job = metrics.instance.jobs[i]
        split = metrics.waiting_by_reason_s[i]
        most = int(split.argmax())
        lines.append(
            (
                escape(job.id),
                escape(job.tenant or ""),
                str(int(metrics.gpus[i]) or ""),
                human(float(metrics.waiting_s[i])),
                f"{split[most] / split.sum():.0%} {REASON_WORDS[REASONS[most]]}",
                human(float(metrics.jct_s[i])),
                str(int(metrics.preemptions[i]) or ""),
            )
        )
    if not lines:
        return _section("Longest waits", "<p>No job waited.</p>")
    heads = ("job", "tenant", "GPUs", "waited", "mostly for", "completion time", "preempted")
    waits = table(heads, lines, (2, 3, 5, 6))
    return _section("Longest waits", f'<div class="scroll">{waits}</div>')


MORE_STYLE = """
h2{font-size:14px;font-weight:600;margin:0 0 4px 8px}
.picture p{margin:6px 8px}
.columns{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:0 16px}
@media (max-width:1100px){.columns{grid-template-columns:minmax(0,1fr)}}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(560px,100%),1fr));gap:0 16px;align-items:start}
.numbers td:first-child{white-space:nowrap} .numbers td:last-child{color:#667085;font-size:12px}
.scroll{max-height:520px;overflow:auto}
"""  # noqa: E501
