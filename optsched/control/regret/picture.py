"""A picture of a regret: for each hour what the time of its jobs was spent on, and the bound."""

from datetime import datetime
from itertools import accumulate

from ...duration import human
from ...picture.axis import time_unit
from ...picture.palette import INK
from ...picture.panels import Axis, Chart, Line, Panel
from ...picture.paper import svg as drawn
from .regret import Regret

PARTS = {
    "alone": ("work at its fastest", "#4c78a8"),
    "slower": ("slower than that", "#9ecae9"),
    "waiting": ("waiting for GPUs", "#f58518"),
    "switching": ("starting, saving, restoring", "#e45756"),
    "failures": ("failures", "#b279a2"),
    "held": ("on hold", "#bab0ac"),
    "after": ("predecessors", "#d8d0c8"),
}
NOTE = (
    "The bound of an hour is that of its jobs alone on the cluster; that of all jobs together says "
    "more."
)


def svg(regret: Regret) -> bytes:
    """Return the picture as SVG: the parts of the mean completion time of each hour in which jobs
    were released, on top of each other, and the bound of its jobs."""
    slices = regret.slices
    start_s, end_s = slices[0].from_s, slices[-1].to_s
    unit, time = time_unit(max(hour.mean_s for hour in slices)), time_unit(end_s - start_s)
    edges_s = [at_s for hour in slices for at_s in (hour.from_s, hour.to_s)]
    x = [(at_s - start_s) / time.seconds for at_s in edges_s]
    tops = [
        list(accumulate(max(0.0, hour.parts_s.get(name, 0.0)) / unit.seconds for name in PARTS))
        for hour in slices
    ]
    areas = [
        Line(words, x, [high for top in tops for high in (top[k], 0.0)], colour, filled=True)
        for k, (words, colour) in enumerate(PARTS.values())
        if any(hour.parts_s.get([*PARTS][k]) for hour in slices)
    ]
    bounds = [hour.bound_s / unit.seconds for hour in slices for _ in range(2)]
    panel = Panel(
        f"{human(regret.mean_s)}, bound {human(regret.bound_s)} over all {regret.jobs} jobs",
        Axis(f"{time.name} from {datetime.fromtimestamp(start_s):%Y-%m-%d %H:%M}", low=0.0),
        Axis(f"mean completion time, {unit.name}", low=0.0),
        (*areas[::-1], Line("bound", x, bounds, INK)),
    )
    title = "Mean completion time by hour of release"
    return drawn(Chart("regret", title, NOTE, (panel,), panel_in=3.6))
