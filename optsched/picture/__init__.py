"""Pictures of plans: an offline page with plotly, a figure for papers and READMEs with
matplotlib."""

from collections.abc import Callable
from pathlib import Path

from ..errors import InputError
from ..model import Instance, Solution

Draw = Callable[[Instance, Solution, Path], None]
FIGURES = (".svg", ".png", ".pdf")


def can_draw(path: Path) -> Draw:
    """Return what draws a picture of the kind that the name of `path` says.

    Raises InputError for a name without a kind.
    """
    kind = path.suffix.lower()
    if kind in (".html", ".htm"):
        from .gantt import write_html

        return write_html
    if kind in FIGURES:
        from .figure import write_svg

        return write_svg
    raise InputError(
        f"{path}: no such kind of picture; give a name that ends in .html, .svg, .png or .pdf"
    )
