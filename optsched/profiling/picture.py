"""Small pictures of rate by cores."""

from ..picture.palette import INK, MUTED, WORK
from ..picture.panels import Axis, Chart, Intervals, Line, Panel
from ..picture.paper import svg as drawn
from .cores import CoreSweep

BAR = 40
"""Characters of the longest bar."""
TITLE = 64


def bars(sweep: CoreSweep) -> list[str]:
    """Return a bar for each count, as long as its rate; the smallest count on the plateau is
    marked."""
    wide = len(str(sweep.counts[-1].cpus_per_gpu))
    lines = []
    for count in sweep.counts:
        mark = "  <- smallest on the plateau" if count.cpus_per_gpu == sweep.smallest else ""
        filled = "█" * max(1, round(BAR * count.rate))
        lines.append(f"{count.cpus_per_gpu:>{wide}} {filled:<{BAR}} {count.rate:.2f}{mark}")
    return lines


def svg(sweep: CoreSweep, title: str, unit: str) -> bytes:
    """Return an SVG of the rate with each count: the median, from the least to the most repeat, and
    the line that counts on the plateau reach. `unit` says what the cores are for, as "cores for
    each GPU"."""
    names = tuple(str(count.cpus_per_gpu) for count in sweep.counts)

    def rates(smallest: bool) -> Intervals:
        counts = [
            count for count in sweep.counts if (count.cpus_per_gpu == sweep.smallest) == smallest
        ]
        return Intervals(
            "smallest on the plateau" if smallest else "median of repeats, and all of them",
            [str(count.cpus_per_gpu) for count in counts],
            [count.rate for count in counts],
            [count.least_rate for count in counts],
            [count.most_rate for count in counts],
            INK if smallest else WORK,
            smallest,
        )

    reached = Line("plateau", [1 - sweep.within] * 2, [-0.5, len(names) - 0.5], MUTED, dashed=True)
    panel = Panel(
        unit if sweep.sure else f"{unit}; repeats disagree",
        Axis("rate, 1 on the plateau", low=0.0),
        Axis(names=names),
        (rates(False), rates(True), reached),
    )
    shown = title if len(title) <= TITLE else f"{title[: TITLE - 3]}..."
    return drawn(Chart("cores", shown, "", (panel,), panel_in=0.7 + 0.25 * len(names)))
