"""Small pictures of rate against cores."""

from ..picture.palette import GRID, INK, MUTED, WORK
from ..picture.style import STILL, saved
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
    """Return an SVG of rate against cores: medians joined by a line, whiskers from the least to the
    most repeat, and the line that counts on the plateau reach. `unit` says what the cores are for,
    as "cores for each GPU"."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = [str(count.cpus_per_gpu) for count in sweep.counts]
    rates = [count.rate for count in sweep.counts]
    whiskers = zip(*((count.least_rate, count.most_rate) for count in sweep.counts), strict=True)
    unsure = "" if sweep.sure else "; repeats disagree"
    with rc_context(STILL):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(1 - sweep.within, color=MUTED, linestyle="--", linewidth=0.8)
        axes.vlines(names, *whiskers, color=INK, linewidth=0.8)
        axes.plot(names, rates, color=WORK, marker="o")
        axes.plot([str(sweep.smallest)], [rates[names.index(str(sweep.smallest))]], "o", color=INK)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.set_xlabel(f"{unit}; {sweep.smallest} is the smallest on the plateau{unsure}")
        axes.set_ylabel("rate, 1 on the plateau")
        shown = title if len(title) <= TITLE else f"{title[: TITLE - 3]}..."
        axes.set_title(shown, loc="left", parse_math=False)
        return saved(figure, "svg", dpi=100)
