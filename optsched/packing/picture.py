"""Allocation against arrived demand, with the bound, as SVG and PNG."""

from collections.abc import Sequence
from pathlib import Path

from ..files import write_bytes
from ..picture.style import STILL, saved
from .engine import Packing
from .problem import Problem
from .result import Point

MOST_POINTS = 600
KINDS = ("svg", "png")


def draw(
    problem: Problem, packing: Packing, points: Sequence[Point], rule: str, folder: Path
) -> list[Path]:
    """Write allocation.svg and allocation.png. Raises InputError where they cannot be written."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    step = max(1, len(packing.order) // MOST_POINTS)
    arrived, held = (
        [0.0, *(units[::step] / problem.gpu_units * 100), units[-1] / problem.gpu_units * 100]
        for units in (packing.arrived_units, packing.units)
    )
    bounds = [(point.load, point.bound) for point in points if point.bound is not None]
    with rc_context({**STILL, "svg.fonttype": "none"}):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.add_subplot()
        demand = [0, 100, max(100.0, arrived[-1])], [0, 100, 100]
        axes.plot(*demand, color="0.75", lw=1, label="all that has come")
        if bounds:
            limit = axes.plot(*zip(*bounds, strict=True), "o--", label="no rule can exceed")
            limit[0].set(color="#c0392b", markersize=3)
        axes.plot(arrived, held, color="#1f5fa8", lw=2, label=f"allocated by {rule}")
        axes.set_xlabel("GPUs asked for so far, % of the cluster")
        axes.set_ylabel("GPUs allocated, %")
        axes.set_xlim(min(75.0, arrived[-1] / 2), arrived[-1] + 1)
        axes.set_ylim(min(75.0, held[-1] * 0.75), 101)
        axes.grid(color="0.92")
        axes.legend(loc="lower right", frameon=False)
        written = [folder / f"allocation.{kind}" for kind in KINDS]
        for path, kind in zip(written, KINDS, strict=True):
            write_bytes(path, saved(figure, kind, dpi=150))
    return written
