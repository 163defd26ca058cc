"""The offline page that shows a generated workload against the real trace and published figures."""

import os
from html import escape
from pathlib import Path

from ....duration import human
from ....errors import InputError
from ....files import write_text
from ....model.instance import Instance
from ....picture.page import STYLE
from . import MODELS, offered_load
from .columns import Columns, of_instance, of_trace
from .figures import HEIGHT_PX, MADE, PUBLISHED, REAL, Figure, figures
from .fit import Distance, distances, totals
from .model import Model

MEASURES = {"ks": "Kolmogorov-Smirnov", "tv": "total variation"}


def can_draw(path: Path) -> None:
    """Raise InputError for a name that is no page."""
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
    """The folder of the public data, where OPTSCHED_DATA names one."""
    named = os.environ.get("OPTSCHED_DATA")
    return Path(named) if named else None


def _page(instance: Instance, model: Model, made: Columns, real: Columns | None) -> str:
    title = f"{escape(instance.name)}: how it fits"
    found = distances(model, made, real)
    drawn = figures(model, made, real)
    small = [i for i, (_, _, figure) in enumerate(drawn) if figure.layout.height == HEIGHT_PX]
    wide = small[-1] if len(small) % 2 else None
    parts = [_div(number, figure, number == wide) for number, figure in enumerate(drawn)]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}{GRID_STYLE}</style></head><body>
<header><h1>{escape(instance.name)}</h1>
<p>generated like {escape(model.title)} &middot; {_against(model, real)}</p></header>
<section class="tiles">{"".join(_tiles(instance, found))}</section>
<section class="key bare">{_key(real)}</section>
<section class="figures">{"".join(parts)}</section>
<section class="tables">{_distances(found)}{_totals(model, instance)}</section>
<details><summary>Where the numbers are from</summary><pre>{escape(model.sources.strip())}</pre></details>
</body></html>
"""  # noqa: E501


def _against(model: Model, real: Columns | None) -> str:
    if real is not None:
        return f"real: {escape(real.name)}"
    if model.name == "acme":
        return "no jobs of the real trace are read for this page: published figures only"
    return "the real trace is not there (OPTSCHED_DATA): published figures only"


def _tiles(instance: Instance, found: list[Distance]) -> list[str]:
    load = offered_load(instance)
    failing = len({failure.job for failure in instance.failures})
    worst = max(
        (one.value for one in found if one.measure == "ks" and "," not in one.marginal),
        default=None,
    )
    return [
        _tile(
            "jobs", f"{len(instance.jobs):,}", f"{len({job.user for job in instance.jobs}):,} users"
        ),
        _tile("GPUs", f"{instance.cluster.total_gpus:,}", f"{len(instance.cluster.nodes):,} nodes"),
        _tile("submitted over", human(max(job.submit_s for job in instance.jobs)), ""),
        _tile(
            "offered load",
            "&ndash;" if load is None else f"{load:.2f}",
            "of what the GPUs can do meanwhile",
        ),
        _tile("jobs that fail", f"{failing:,}", f"{len(instance.failures):,} attempts"),
        _tile(
            "largest distance",
            "&ndash;" if worst is None else f"{worst:.3f}",
            "" if worst is None else "Kolmogorov-Smirnov, to the real trace",
        ),
    ]


def _tile(name: str, value: str, small: str) -> str:
    return f'<div class="tile"><span>{escape(name)}</span><b>{value}</b><small>{escape(small)}</small></div>'  # noqa: E501


def _key(real: Columns | None) -> str:
    parts = [f'<span><i style="background:{MADE}"></i>generated</span>']
    if real is not None:
        parts.append(f'<span><i style="background:{REAL}"></i>real: {escape(real.name)}</span>')
    parts.append(f'<span><i style="background:{PUBLISHED}"></i>published figure</span>')
    return "".join(parts) + "<span>drag to zoom, double-click to return</span>"


def _div(number: int, figure: Figure, wide: bool) -> str:
    name, title, drawn = figure
    html = drawn.to_html(
        full_html=False,
        include_plotlyjs=number == 0,
        div_id=name,
        config={"displaylogo": False, "responsive": True, "displayModeBar": False},
    )
    return f'<div class="figure{" wide" if wide else ""}"><h2>{escape(title)}</h2>{html}</div>'


def _distances(found: list[Distance]) -> str:
    rows = "".join(
        f"<tr><td>{escape(one.marginal)}</td><td "
        f'class="n">{one.value:.3f}</td><td>{MEASURES[one.measure]}</td>'
        f"<td>{escape(one.against)}</td><td "
        f'class="n">{f"{one.count:,}" if one.count else ""}</td></tr>'
        for one in found
    )
    if not rows:
        return ""
    return (
        "<details open><summary>How close (0 is the same, 1 is nothing in "
        "common)</summary><table><thead><tr>"
        "<th>marginal</th><th class=n>distance</th><th>measure</th><th>to</th><th "
        "class=n>of</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></details>"
    )


def _totals(model: Model, instance: Instance) -> str:
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{_number(published)}</td><td '
        f'class="n">{_number(value)}</td></tr>'
        for name, published, value in totals(model, instance)
        if instance.failures or "failed" not in name
    )
    return (
        "<details open><summary>Published totals</summary><table><thead><tr><th></th><th "
        "class=n>published</th>"
        f"<th class=n>generated</th></tr></thead><tbody>{rows}</tbody></table></details>"
    )


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
