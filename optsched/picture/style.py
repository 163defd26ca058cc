"""What figures share: on pages (plotly), and for papers (matplotlib)."""

import io
from typing import Any

from .palette import GRID, INK, MUTED, PAPER

FONT = "Inter, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"
AXIS: dict[str, Any] = {"gridcolor": GRID, "zeroline": False, "color": MUTED, "automargin": True}
GROUND: dict[str, Any] = {
    "plot_bgcolor": PAPER,
    "paper_bgcolor": PAPER,
    "font": {"family": FONT, "size": 12, "color": INK},
    "hoverlabel": {"bgcolor": PAPER, "bordercolor": GRID},
}
"""The layout that all figures have."""
LEGEND: dict[str, Any] = {
    "orientation": "h",
    "x": 0,
    "xanchor": "left",
    "yanchor": "bottom",
    "traceorder": "normal",
    "font": {"size": 11, "color": MUTED},
}
"""In a line above what it explains."""
TIME_TICKS = (
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (36000.0, "10 h"),
    (86400.0, "1 d"),
    (864000.0, "10 d"),
    (8640000.0, "100 d"),
)
"""Of a logarithmic axis of lengths of time."""


def heading(text: str, colour: str = MUTED) -> dict[str, Any]:
    """Return the title of an axis."""
    return {"text": text, "font": {"size": 12, "color": colour}}


STILL: Any = {
    "svg.hashsalt": "optsched",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GRID,
    "xtick.color": MUTED,
    "text.color": INK,
    "font.size": 8,
}
"""Of matplotlib."""


def saved(figure: Any, kind: str, dpi: int) -> bytes:
    """Return a matplotlib figure as svg, png or pdf; the same figure gives the same bytes."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # "none" would draw it once more for each kind
        for (
            ax
        ) in figure.axes:  # the last bits of a layout depend on where its objects lie in memory
            ax.set_position([round(length, 9) for length in ax.get_position().bounds])
    out = io.BytesIO()
    when = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(out, format=kind, dpi=dpi, metadata=when, facecolor=PAPER)
    return out.getvalue()
