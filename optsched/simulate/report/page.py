"""The HTML around the figures: what was simulated and what came of it."""

from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from ...duration import human
from ...model.plan import Plan
from ...picture.axis import time_unit
from ...picture.chart import chart
from ...picture.gantt import CONFIG
from ...picture.gantt import figure as gantt
from ...picture.page import STYLE
from ..metrics import Metrics
from ..metrics.use import type_name
from ..metrics.waiting import REASONS
from .figures import (
    REASON_WORDS,
    distributions,
    gpu_hours,
    nodes_over_time,
    over_time,
    waiting_split,
)
from .series import shown_s
from .words import tables, tiles

GANTT_ROWS, GANTT_GPUS = 1500, 300
"""Most segments and GPUs of which a Gantt chart is drawn; beyond them a map of how busy the nodes
were."""
LONGEST = 25
"""Jobs in the table of those that waited longest."""


def page(found: Metrics, total: dict[str, Any], plan: Plan) -> str:
    """The whole document, which needs no network. `total` is the summary with the names of instance
    and policy, and the levels of the objective; `plan` is that of the simulation."""
    title = f"{escape(total['instance']['name'])}: {escape(total['policy'])}"
    figures = _Figures()
    body = _body(found, total, plan, figures) if total["jobs"] else "<p>No jobs.</p>"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}{MORE_STYLE}</style></head><body>
<header><h1>{title}</h1><p>{_subtitle(found, total)}</p></header>
<section class="tiles">{"".join(_tile(*one) for one in tiles(total))}</section>
{body}
<section class="numbers">{"".join(_table(name, lines) for name, lines in tables(total).items())}</section>
</body></html>
"""  # noqa: E501


class _Figures:
    """Figures as HTML; the first brings the library along."""

    def __init__(self) -> None:
        self.count = 0

    def div(self, fig: Any, tools: bool = True) -> str:
        """With `tools` there are buttons to zoom and save."""
        self.count += 1
        config = CONFIG if tools else {**CONFIG, "displayModeBar": False}
        html: str = fig.to_html(
            full_html=False,
            include_plotlyjs=self.count == 1,
            div_id=f"figure-{self.count}",
            config=config,
        )
        return html


def _body(found: Metrics, total: dict[str, Any], plan: Plan, figures: _Figures) -> str:
    has_gpus = found.instance.cluster.total_gpus > 0
    parts = [_section("GPUs and queue over time", figures.div(over_time(found)))]
    left = _section("What jobs waited for", figures.div(waiting_split(found), tools=False))
    if has_gpus:
        left += _section(
            "What the GPU-hours held went into", figures.div(gpu_hours(total), tools=False)
        )
    parts.append(f'<div class="columns"><div>{left}</div><div>{_longest(found)}</div></div>')
    jct = _section(
        "Job completion time",
        figures.div(distributions(found, found.jct_s, "completion minus submission")),
    )
    waits = _section(
        "Waiting", figures.div(distributions(found, found.waiting_s, "waiting until completion"))
    )
    parts.append(f'<div class="columns"><div>{jct}</div><div>{waits}</div></div>')
    small = found.rows.rows <= GANTT_ROWS and found.instance.cluster.total_gpus <= GANTT_GPUS
    if small:
        drawn = replace(chart(found.instance, plan), queue=(), use=(), total_gpus=0)
        fig, unit = gantt(found.instance, plan, drawn), time_unit(drawn.end_s)
        fig.update_xaxes(range=[drawn.start_s / unit.seconds, 1.01 * shown_s(found) / unit.seconds])
        parts.append(_section("Who ran where", figures.div(fig)))
    elif has_gpus:
        parts.append(_section("How busy the nodes were", figures.div(nodes_over_time(found))))
    return "\n".join(parts)


def _subtitle(found: Metrics, total: dict[str, Any]) -> str:
    cluster = found.instance.cluster
    types: dict[str, int] = {}
    for node in cluster.nodes:
        if node.gpus:
            types[type_name(node.gpu_type)] = types.get(type_name(node.gpu_type), 0) + node.gpus
    gpus = " + ".join(f"{count:,} {escape(name)}" for name, count in types.items()) or "no GPUs"
    how = f"policy <b>{escape(total['policy'])}</b>"
    how += "".join(f", {escape(key)}={escape(value)}" for key, value in total["options"].items())
    how += f", in rounds of {human(total['round_s'])}" if total["round_s"] else ""
    return (
        f"{total['jobs']:,} jobs on {len(cluster.nodes):,} nodes, {gpus} &middot; {how} "
        f"&middot; instance {escape(total['instance']['hash'])}"
    )


def _section(title: str, html: str) -> str:
    return f'<section class="picture"><h2>{title}</h2>{html}</section>'


def _tile(name: str, value: str, small: str, title: str) -> str:
    return (
        '<div class="tile" '
        f'title="{escape(title)}"><span>{escape(name)}</span><b>{escape(value)}</b>'
        f"<small>{escape(small)}</small></div>"
    )


def _table(title: str, lines: list[tuple[str, str, str]]) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td "
        f'class="n">{escape(value)}</td><td>{escape(meaning)}</td></tr>'
        for name, value, meaning in lines
    )
    return f'<section class="picture"><h2>{title}</h2><table>{rows}</table></section>'


def _longest(found: Metrics) -> str:
    """The jobs that waited longest, and for what."""
    order = np.argsort(-found.waiting_s, kind="stable")[:LONGEST]
    rows = []
    for i in order[found.waiting_s[order] > 0].tolist():
        job = found.instance.jobs[i]
        split = found.waiting_by_reason_s[i]
        most = int(split.argmax())
        rows.append(
            f"<tr><td>{escape(job.id)}</td><td>{escape(job.tenant or '')}</td>"
            f'<td class="n">{int(found.gpus[i]) or ""}</td><td '
            f'class="n">{human(float(found.waiting_s[i]))}</td>'
            f"<td>{split[most] / split.sum():.0%} {REASON_WORDS[REASONS[most]]}</td>"
            f'<td class="n">{human(float(found.jct_s[i]))}</td>'
            f'<td class="n">{int(found.preemptions[i]) or ""}</td></tr>'
        )
    if not rows:
        return _section("Longest waits", "<p>No job waited.</p>")
    heads = ("job", "tenant", "GPUs", "waited", "mostly for", "completion time", "preempted")
    numeric = {"GPUs", "waited", "completion time", "preempted"}
    head = "".join(f"<th{' class=n' if name in numeric else ''}>{name}</th>" for name in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return _section("Longest waits", f'<div class="scroll">{table}</div>')


MORE_STYLE = """
h2{font-size:14px;font-weight:600;margin:0 0 4px 8px}
.picture p{margin:6px 8px} .picture{overflow:hidden} td.n{white-space:nowrap}
.columns{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:0 16px}
@media (max-width:1100px){.columns{grid-template-columns:minmax(0,1fr)}}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(560px,1fr));gap:0 16px;align-items:start}
.numbers td:first-child{white-space:nowrap} .numbers td:last-child{color:#667085;font-size:12px}
.scroll{max-height:520px;overflow:auto}
"""  # noqa: E501
