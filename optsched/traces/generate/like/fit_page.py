"""The offline page that shows a generated workload against the real trace and published figures."""

import os
from html import escape
from pathlib import Path

from ....duration import human
from ....errors import InputError
from ....files import write_text
from ....model import Instance
from ....picture.html import div, document, folding, table, tiles
from ....picture.interactive import figure
from ....picture.panels import Chart
from . import MODELS, offered_load
from .columns import Columns, of_instance, of_trace
from .figures import MADE, PANEL_IN, PUBLISHED, REAL, figures
from .fit import Distance, distances, totals
from .model import Model

MEASURES = {"ks": "Kolmogorov-Smirnov", "tv": "total variation"}


def can_draw(path: Path) -> None:
    """Raise InputError for a name that is not a page."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--fit {path}: no such kind of page; give a name that ends in .html")


def write(instance: Instance, kind: str, path: Path) -> None:
    """Write the page of a workload made like the cluster `kind`; it needs no network.

    The real trace is looked for in the folder that OPTSCHED_DATA names. Raises InputError where the
    page cannot be written or the trace is not sound.
    """
    model = MODELS[kind]
    made, real = of_instance(instance), of_trace(kind, data_folder())
    write_text(path, _page(instance, model, made, real))


def data_folder() -> Path | None:
    """Return the folder of the public data, where OPTSCHED_DATA names one."""
    named = os.environ.get("OPTSCHED_DATA")
    return Path(named) if named else None


def _page(instance: Instance, model: Model, made: Columns, real: Columns | None) -> str:
    measured = distances(model, made, real)
    drawn = figures(model, made, real)
    small = [i for i, chart in enumerate(drawn) if chart.panel_in == PANEL_IN]
    wide = small[-1] if len(small) % 2 else None
    parts = [_div(number, chart, number == wide) for number, chart in enumerate(drawn)]
    header = (
        f"<h1>{escape(instance.name)}</h1>"
        f"<p>generated like {escape(model.title)} &middot; {_against(model, real)}</p>"
    )
    body = f"""{tiles(_tiles(instance, measured))}
<section class="key bare">{_key(real)}</section>
<section class="figures">{"".join(parts)}</section>
<section class="tables">{_distances(measured)}{_totals(model, instance)}</section>
{folding("Where the numbers are from", f"<pre>{escape(model.sources.strip())}</pre>")}"""
    return document(f"{instance.name}: how it fits", header, body, GRID_STYLE)


def _against(model: Model, real: Columns | None) -> str:
    if real is not None:
        return f"real: {escape(real.name)}"
    if model.name == "acme":
        return "no jobs of the real trace are read for this page: published figures only"
    return "the real trace is not there (OPTSCHED_DATA): published figures only"


def _tiles(instance: Instance, distances: list[Distance]) -> list[tuple[str, str, str, str]]:
    load = offered_load(instance)
    failing = len({failure.job for failure in instance.failures})
    worst = max(
        (each.value for each in distances if each.measure == "ks" and "," not in each.marginal),
        default=None,
    )
    users, nodes = len({job.user for job in instance.jobs}), len(instance.cluster.nodes)
    offered, distance = "\u2013", ("\u2013", "")
    if load is not None:
        offered = f"{load:.2f}"
    if worst is not None:
        distance = f"{worst:.3f}", "Kolmogorov-Smirnov, to the real trace"
    return [
        ("jobs", f"{len(instance.jobs):,}", f"{users:,} users", ""),
        ("GPUs", f"{instance.cluster.total_gpus:,}", f"{nodes:,} nodes", ""),
        ("submitted over", human(max(job.submit_s for job in instance.jobs)), "", ""),
        ("offered load", offered, "of what the GPUs can do meanwhile", ""),
        ("jobs that fail", f"{failing:,}", f"{len(instance.failures):,} attempts", ""),
        ("largest distance", *distance, ""),
    ]


def _key(real: Columns | None) -> str:
    parts = [f'<span><i style="background:{MADE}"></i>generated</span>']
    if real is not None:
        parts.append(f'<span><i style="background:{REAL}"></i>real: {escape(real.name)}</span>')
    parts.append(f'<span><i style="background:{PUBLISHED}"></i>published figure</span>')
    return "".join(parts) + "<span>drag to zoom, double-click to return</span>"


def _div(number: int, chart: Chart, wide: bool) -> str:
    html = div(figure(chart), chart.key, number == 0, tools=False)
    head = f"<h2>{escape(chart.title)}</h2>"
    return f'<div class="figure{" wide" if wide else ""}">{head}{html}</div>'


def _distances(measured: list[Distance]) -> str:
    lines = [
        (
            escape(distance.marginal),
            f"{distance.value:.3f}",
            MEASURES[distance.measure],
            escape(distance.against),
            f"{distance.count:,}" if distance.count else "",
        )
        for distance in measured
    ]
    if not lines:
        return ""
    content = table(("marginal", "distance", "measure", "to", "of"), lines, (1, 4))
    return folding("How close (0 is the same, 1 is nothing in common)", content, " open")


def _totals(model: Model, instance: Instance) -> str:
    lines = [
        (escape(name), _number(published), _number(value))
        for name, published, value in totals(model, instance)
        if instance.failures or "failed" not in name
    ]
    content = table(("", "published", "generated"), lines, (1, 2))
    return folding("Published totals", content, " open")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


GRID_STYLE = """
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(560px,1fr));gap:14px;margin-bottom:16px}
.figure{background:#fff;border:1px solid #e4e7ec;border-radius:10px;padding:10px 12px 4px;min-width:0}
.wide{grid-column:1/-1}
.figure h2{font-size:15px;font-weight:620;margin:2px 0 0 6px}
.tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(560px,1fr));gap:0 14px;align-items:start}
.bare{margin-bottom:12px}
pre{white-space:pre-wrap;font:13px/1.5 inherit}
"""  # noqa: E501
