"""Allocation against arrived demand, with the bound, as SVG and PNG."""

from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .engine import Packing
from .problem import Problem
from .result import Point

MOST_POINTS = 600
ENDINGS = (".svg", ".png")


def draw(
    problem: Problem, packing: Packing, found: Sequence[Point], rule: str, folder: Path
) -> list[Path]:
    """Write allocation.svg and allocation.png. Raises InputError where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("the picture needs matplotlib: pip install optsched") from None
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    total = problem.gpu_units
    step = max(1, len(packing.order) // MOST_POINTS)
    arrived = [
        0.0,
        *(packing.arrived_units[::step] / total * 100),
        packing.arrived_units[-1] / total * 100,
    ]
    held = [0.0, *(packing.units[::step] / total * 100), packing.units[-1] / total * 100]
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(
        [0, 100, max(100.0, arrived[-1])],
        [0, 100, 100],
        color="0.75",
        lw=1,
        label="all that has come",
    )
    bounds = [(one.load, one.bound) for one in found if one.bound is not None]
    if bounds:
        axes.plot(
            *zip(*bounds, strict=True),
            color="#c0392b",
            ls="--",
            marker="o",
            ms=3,
            label="no rule can exceed",
        )
    axes.plot(arrived, held, color="#1f5fa8", lw=2, label=f"allocated by {rule}")
    axes.set_xlabel("GPUs asked for so far, % of the cluster")
    axes.set_ylabel("GPUs allocated, %")
    axes.set_xlim(min(75.0, arrived[-1] / 2), arrived[-1] + 1)
    axes.set_ylim(min(75.0, held[-1] * 0.75), 101)
    axes.grid(color="0.92")
    axes.legend(loc="lower right", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    written = []
    with matplotlib.rc_context({"svg.hashsalt": "optsched", "svg.fonttype": "none"}):
        for ending in ENDINGS:
            path = folder / f"allocation{ending}"
            try:
                figure.savefig(path, dpi=150, metadata={"Date": None} if ending == ".svg" else None)
            except OSError as error:
                raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
            written.append(path)
    return written
