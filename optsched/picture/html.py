"""Parts of all pages: the document, tiles, tables and figures. Texts are escaped here, the cells of
tables by who makes them."""

from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Any

from ..model import Cluster
from .palette import GRID, INK, LATE, MUTED

CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}


def document(title: str, header: str, body: str, style: str = "") -> str:
    """Return the whole document, which needs no network."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>
<header>{header}</header>
{body}
</body></html>
"""


def tiles(told: Iterable[tuple[str, str, str, str]]) -> str:
    """Return a tile for each number: its name, its value, what stands below it, what it means."""
    return f'<section class="tiles">{"".join(_tile(*map(escape, each)) for each in told)}</section>'


def _tile(name: str, value: str, small: str, title: str) -> str:
    return (
        f'<div class="tile" title="{title}"><span>{name}</span><b>{value}</b>'
        f"<small>{small}</small></div>"
    )


def row(cells: Sequence[str], numeric: Collection[int] = (), tag: str = "td") -> str:
    """Return a row of a table; `numeric` are the positions of numbers."""
    inside = (
        f"<{tag}{' class=n' if i in numeric else ''}>{cell}</{tag}>" for i, cell in enumerate(cells)
    )
    return f"<tr>{''.join(inside)}</tr>"


def table(
    heads: Sequence[str], lines: Iterable[Sequence[str]], numeric: Collection[int] = ()
) -> str:
    """Return a table with a head."""
    body = "".join(row(cells, numeric) for cells in lines)
    head = row(heads, numeric, "th")
    return wide(f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")


def wide(content: str) -> str:
    """Return a part that scrolls sideways by itself where the screen is narrower."""
    return f'<div class="wide">{content}</div>'


def folding(summary: str, content: str, more: str = "") -> str:
    """Return a part that can be closed; with `more` " open" it is open at first."""
    return f"<details{more}><summary>{escape(summary)}</summary>{content}</details>"


def div(figure: Any, name: str, library: bool | str = False, tools: bool = True) -> str:
    """Return a plotly figure as a part of a page that has, with `library`, the library in it, or in
    the file of that name; with `tools` there are buttons to zoom and save."""
    html: str = figure.to_html(
        full_html=False,
        include_plotlyjs=library,
        div_id=name,
        config=CONFIG if tools else {**CONFIG, "displayModeBar": False},
    )
    return html


def gpus_by_type(cluster: Cluster) -> str:
    """Return how many GPUs of each type there are."""
    types: dict[str, int] = {}
    for node in cluster.nodes:
        if node.gpus:
            name = node.gpu_type or "GPU"
            types[name] = types.get(name, 0) + node.gpus
    return " + ".join(f"{count:,} {escape(name)}" for name, count in types.items()) or "no GPUs"


STYLE = f"""
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:1800px;padding:22px 28px 40px;background:#f4f6f9;color:{INK};
font:14px/1.45 Inter,'Segoe UI','Helvetica Neue','DejaVu Sans',Arial,sans-serif}}
h1{{font-size:23px;margin:0 0 2px;font-weight:650}} header p{{margin:0 0 16px;color:{MUTED}}}
.pill{{font-size:13px;font-weight:600;border-radius:99px;padding:3px 11px;vertical-align:3px;margin-left:6px}}
.tiles{{display:flex;flex-wrap:wrap;gap:12px;margin-bottom:14px}}
.tile{{background:#fff;border:1px solid {GRID};border-radius:10px;padding:10px 16px;flex:1 1 150px}}
.tile span,.tile small{{display:block;color:{MUTED};font-size:12px;min-height:17px}}
.tile b{{font-size:20px;font-weight:620;font-variant-numeric:tabular-nums;white-space:nowrap}}
.remark{{background:#fff8e6;border:1px solid #f5deb0;border-radius:10px;padding:8px 14px;margin:0 0 12px}}
.picture,details{{background:#fff;border:1px solid {GRID};border-radius:10px;padding:14px 12px 6px;
margin-bottom:16px}}
.key{{display:flex;flex-wrap:wrap;gap:4px 20px;color:{MUTED};font-size:12px;padding:0 10px}}
.key span:last-child{{margin-left:auto;font-style:italic}}
.key i{{display:inline-block;width:22px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}}
details{{padding:12px 18px}} summary{{cursor:pointer;font-weight:600}}
table{{border-collapse:collapse;width:100%;margin-top:10px}}
th{{text-align:left;color:{MUTED};font-weight:500}}
td,th{{padding:4px 10px;border-bottom:1px solid {GRID}}}
.n{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
.wide,.picture{{overflow-x:auto}} .plotly-graph-div{{min-width:600px}}
@media (max-width:600px){{body{{padding:14px 10px 24px}}}}
td i{{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:8px}}
em{{color:{LATE};font-style:normal}}
"""  # noqa: E501
