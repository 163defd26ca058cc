"""The figures for papers: SVG and PDF (matplotlib)."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from .palette import GRID, INK, MUTED, PAPER
from .panels import Axis, Bars, Chart, Dots, Heat, Intervals, Line, Mark, Panel
from .style import STILL, saved

WIDTH_IN, FOOT_PT, LINE_IN = 10.0, 6.0, 0.115
TOLD_AT_MOST = 12
STYLE: Any = {
    **STILL,
    "ytick.color": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "text.parse_math": False,
}


def pictures(
    chart: Chart, foot: Sequence[str] = (), kinds: Sequence[str] = ("svg", "pdf")
) -> dict[str, bytes]:
    """Return the figure in each kind; the same chart gives the same bytes."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = draw(chart, foot)
        return {kind: saved(figure, kind, dpi=130) for kind in kinds}


def svg(chart: Chart) -> bytes:
    """Return the figure as svg."""
    return pictures(chart, kinds=("svg",))["svg"]


def draw(chart: Chart, foot: Sequence[str]) -> Any:
    """Return the matplotlib figure, what reproduces it at its foot."""
    from matplotlib.figure import Figure

    lines = [line for text in (chart.note, *foot) for line in wrap(text, 205)]
    foot_in = 0.14 + LINE_IN * len(lines)
    columns = chart.columns
    height_in = 0.45 + chart.rows * (chart.panel_in + 0.25) + foot_in
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    layout: Any = figure.get_layout_engine()
    layout.set(rect=(0, foot_in / height_in, 1, 1 - foot_in / height_in), hspace=0.06, wspace=0.04)
    grid = figure.subplots(chart.rows, columns, squeeze=False)
    places = [ax for row in grid for ax in row]
    for ax in places[len(chart.panels) :]:
        ax.set_visible(False)
    for ax, panel in zip(places, chart.panels, strict=False):
        _panel(figure, ax, panel)
    figure.suptitle(chart.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    _legend(figure, places[: len(chart.panels)])
    figure.text(
        0.01,
        0.06 / height_in,
        "\n".join(lines),
        fontsize=FOOT_PT,
        color=MUTED,
        va="bottom",
        linespacing=1.35,
    )
    return figure


def _legend(figure: Any, places: list[Any]) -> None:
    """Add one legend for all panels, to the right of them; curves are drawn the worst first, and
    listed the best first."""
    there: dict[str, Any] = {}
    for ax in places:
        handles, names = ax.get_legend_handles_labels()
        if any(not hasattr(handle, "patches") for handle in handles):
            handles, names = handles[::-1], names[::-1]
        for handle, name in zip(handles, names, strict=True):
            there.setdefault(name, handle)
    if there:
        figure.legend(
            there.values(),
            there.keys(),
            loc="outside right upper",
            frameon=False,
            fontsize=7,
            handlelength=1.6,
            labelcolor=INK,
        )


def _panel(figure: Any, ax: Any, panel: Panel) -> None:
    ax.set_title(panel.title, color=INK)
    ax.set_axisbelow(True)
    ax.tick_params(length=0)
    position = {name: i for i, name in enumerate(panel.y.names)}
    left = [0.0] * len(position)
    for mark in panel.marks:
        left = _mark(figure, ax, mark, position, left)
    if not any(isinstance(mark, Heat) for mark in panel.marks):
        ax.grid(axis="x" if panel.y.names else "both", color=GRID, linewidth=0.6)
        _axis(ax.xaxis, ax.set_xscale, ax.set_xlim, panel.x)
        _axis(ax.yaxis, ax.set_yscale, ax.set_ylim, panel.y)
    else:
        ax.set_xticks(
            range(len(panel.x.names)),
            panel.x.names,
            rotation=30 if len(panel.x.names) > 6 else 0,
            ha="left" if len(panel.x.names) > 6 else "center",
            rotation_mode="anchor",
        )
        ax.xaxis.tick_top()
    if panel.y.names:
        ax.set_yticks(range(len(panel.y.names)), panel.y.names, color=INK, fontsize=7)
        ax.set_ylim(len(panel.y.names) - 0.5, -0.5)
        if any(isinstance(mark, Intervals) for mark in panel.marks):
            ax.axvline(0, color=MUTED, linewidth=0.8)


def _axis(axis: Any, scale: Any, limit: Any, what: Axis) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator, PercentFormatter, StrMethodFormatter

    axis.set_label_text(what.title)
    if what.names:
        return
    if what.log:
        scale("log")
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    limit(what.low, what.high)
    if what.percent:
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    inside = [
        (at, text)
        for at, text in what.ticks
        if (what.low is None or at >= what.low) and (what.high is None or at <= what.high * 1.001)
    ]
    if inside:
        axis.set_ticks([at for at, _ in inside], [text for _, text in inside])
        axis.set_minor_locator(NullLocator())


def _mark(
    figure: Any, ax: Any, mark: Mark, position: dict[str, int], left: list[float]
) -> list[float]:
    """Draw it; return the ends of the bars so far."""
    match mark:
        case Line(filled=True):
            ax.fill_between(mark.x, mark.y, step="post", color=mark.colour, lw=0, label=mark.name)
        case Line():
            ax.plot(
                mark.x,
                mark.y,
                color=mark.colour,
                linewidth=mark.width,
                linestyle="--" if mark.dashed else "-",
                drawstyle="steps-post",
                label=mark.name if mark.listed else None,
            )
        case Dots():
            ax.plot(
                mark.x,
                mark.y,
                "o",
                color=mark.colour,
                markersize=5,
                markeredgecolor=PAPER,
                markeredgewidth=0.6,
                label=mark.name,
            )
            if mark.told:
                every = -(-len(mark.names) // TOLD_AT_MOST)
                for x, y, name in list(zip(mark.x, mark.y, mark.names, strict=True))[::every]:
                    ax.annotate(
                        name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=6.5
                    )
        case Bars():
            ax.barh(
                range(len(left)),
                mark.lengths,
                left=left,
                height=0.72,
                color=mark.colour,
                label=mark.name,
            )
            return [a + b for a, b in zip(left, mark.lengths, strict=True)]
        case Intervals():
            rows = [position[name] for name in mark.rows]
            reach = [np.subtract(mark.mid, mark.low), np.subtract(mark.high, mark.mid)]
            ax.errorbar(
                mark.mid,
                rows,
                xerr=reach,
                fmt="o",
                color=mark.colour,
                markersize=4,
                linewidth=1.1,
                markerfacecolor=mark.colour if mark.filled else PAPER,
                label=mark.name,
            )
        case Heat():
            _heat(ax, mark)
    return left


def _heat(ax: Any, mark: Heat) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    values = np.array(mark.values, dtype=float)
    colours = LinearSegmentedColormap.from_list("gap", [colour for _, colour in SCALE])
    ax.imshow(
        values, aspect="auto", cmap=colours, vmin=0, vmax=max(WORST, float(np.nanmax(values)))
    )
    for i, row in enumerate(mark.texts):
        for k, text in enumerate(row):
            ax.text(k, i, text, ha="center", va="center", fontsize=6.5, color=INK)


SCALE = ((0.0, "#e9f5ee"), (0.35, "#fdf3d3"), (0.7, "#f6c79c"), (1.0, "#e88d7a"))
"""From no gap to the largest."""
WORST = 5.0
"""The least value, in percent, that has the last colour: a largest gap of 0.1 % is not shown as a
bad one."""
