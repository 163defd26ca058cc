"""What the figures of all pages share (plotly)."""

from typing import Any

from .palette import GRID, MUTED

FONT = "Inter, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"
AXIS: dict[str, Any] = {"gridcolor": GRID, "zeroline": False, "color": MUTED, "automargin": True}
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
