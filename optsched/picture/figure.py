"""A still picture of a plan for papers and READMEs (matplotlib)."""

from pathlib import Path
from typing import Any

from ..duration import human
from ..files import write_bytes
from ..model import Instance, Solution
from .axis import TimeUnit, node_groups, time_unit
from .chart import Chart, chart
from .facts import level_unit, percent, quantity
from .palette import BANDS, FADE, GRID, INK, LATE, MUTED, PAPER, QUEUE, USE, job_colour, shade
from .style import STILL, saved

WIDTH_IN, ROW_IN, QUEUE_IN, USE_IN = 10.0, 0.2, 0.9, 0.8
SMALLEST_IN, LARGEST_IN = 1.2, 6.5
NAME_PT = 6.5
HATCH = {"setup": "////", "save": "xxxx"}


def write_svg(instance: Instance, solution: Solution, path: str | Path) -> None:
    """Write the figure as .svg, .png or .pdf, by the ending of `path`; the same plan gives the same
    bytes.

    The solution must hold a plan that passes the verifier. Raises InputError where the file cannot
    be written.
    """
    write_bytes(path, as_bytes(instance, solution, Path(path).suffix.lower().lstrip(".")))


def as_bytes(instance: Instance, solution: Solution, kind: str) -> bytes:
    """Return the figure as svg, png or pdf."""
    from matplotlib import rc_context

    with rc_context({**STILL, "hatch.linewidth": 0.5, "ytick.color": INK}):
        return saved(draw(instance, solution), kind, dpi=160)


def draw(instance: Instance, solution: Solution) -> Any:
    """Return the matplotlib figure: Gantt, queue and GPUs in use on one time axis."""
    from matplotlib.figure import Figure

    plan = solution.plan
    assert plan is not None
    drawn = chart(instance, plan)
    unit = time_unit(drawn.end_s)
    gantt_in = min(LARGEST_IN, max(SMALLEST_IN, ROW_IN * len(drawn.rows)))
    heights = [gantt_in] + [QUEUE_IN] * bool(drawn.queue) + [USE_IN] * bool(drawn.total_gpus)
    figure = Figure(
        figsize=(WIDTH_IN, sum(heights) + 0.95 + 0.22 * len(heights)), layout="constrained"
    )
    axes = list(
        figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    )
    _gantt(axes[0], instance, drawn, unit, gantt_in)
    axes[0].set_title(_title(instance, solution), loc="left", fontsize=9)
    lower = axes[1:]
    if drawn.queue:
        _steps(lower.pop(0), drawn.queue, QUEUE, unit, "jobs waiting")
    if drawn.total_gpus:
        _steps(lower[0], drawn.use, USE, unit, "GPUs in use")
        lower[0].axhline(drawn.total_gpus, color=INK, linewidth=0.8, linestyle="--")
        lower[0].set_ylim(0, drawn.total_gpus * 1.1)
    for ax in axes:
        ax.axvline(0, color=INK, linewidth=1)
        ax.grid(axis="x", color=GRID, linewidth=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(length=0)
    axes[-1].set_xlabel(f"{unit.name} from now", color=MUTED)
    axes[0].set_xlim(drawn.start_s / unit.seconds, drawn.end_s * 1.01 / unit.seconds)
    return figure


def _title(instance: Instance, solution: Solution) -> str:
    unit = level_unit(solution.deciding.name)
    length = f" ({human(solution.value)})" if unit == "s" and solution.value is not None else ""
    return (
        f"{instance.name}: {solution.deciding.name} {quantity(solution.value, unit)}{length}, "
        f"bound {quantity(solution.bound, unit)}, gap {percent(solution.gap)}, "
        f"{solution.status} by {solution.solver}"
    )


def _gantt(ax: Any, instance: Instance, drawn: Chart, unit: TimeUnit, height_in: float) -> None:
    groups = node_groups(instance, drawn.rows)
    row_pt = 72 * height_in / max(1, len(drawn.rows))
    for i, group in enumerate(groups):
        ax.axhspan(group.first, group.first + group.rows, color=BANDS[i % 2], linewidth=0, zorder=0)
    for kind in ("past", "work", "setup", "save"):
        bars = [bar for bar in drawn.bars if bar.kind == kind]
        ax.barh(
            [bar.top + bar.height / 2 for bar in bars],
            [(bar.end_s - bar.start_s) / unit.seconds for bar in bars],
            left=[bar.start_s / unit.seconds for bar in bars],
            height=[bar.height - min(0.12, 0.6 / row_pt) for bar in bars],
            color=[shade(job_colour(bar.job), FADE[kind]) for bar in bars],
            edgecolor=[LATE if bar.late else PAPER for bar in bars],
            linewidth=[1.2 if bar.late else 0.3 for bar in bars],
            hatch=HATCH.get(kind),
            zorder=2,
        )
    _names(ax, instance, drawn, unit, row_pt)
    mark = {"color": INK, "markersize": 4, "markeredgecolor": PAPER, "markeredgewidth": 0.6}
    for pause in drawn.pauses:
        x = pause.stop_s / unit.seconds, pause.back_s / unit.seconds
        y = pause.stop_row, pause.back_row
        ax.plot(x, y, color=INK, linewidth=0.8, linestyle=":", zorder=3)
        for k, marker in enumerate("s>"):
            ax.plot(x[k], y[k], marker, **mark, zorder=5)
    labels = [group for group in groups if group.labelled(row_pt * 1.3)]
    ax.set_yticks(
        [group.first + group.rows / 2 for group in labels],
        [
            _plain(group.name)
            + (f"\n{group.what}" if group.rows * row_pt >= 24 and group.what else "")
            for group in labels
        ],
        fontsize=7,
    )
    ax.set_ylim(max(1, len(drawn.rows)), 0)


def _names(ax: Any, instance: Instance, drawn: Chart, unit: TimeUnit, row_pt: float) -> None:
    """Write the name of a job on each of its bars that has room for it, upright if need be; the
    plot is about 8.6 inches wide."""
    pt_per_s = 8.6 * 72 / (drawn.end_s * 1.01 - drawn.start_s)
    for bar in drawn.bars:
        name = instance.jobs[bar.job].id
        wide, high = (bar.end_s - bar.start_s) * pt_per_s, bar.height * row_pt
        long, thick = NAME_PT * 0.6 * len(name) + 2, NAME_PT + 1
        flat = wide >= long and high >= thick
        if bar.kind == "work" and (flat or (wide >= thick and high >= long)):
            ax.text(
                (bar.start_s + bar.end_s) / 2 / unit.seconds,
                bar.top + bar.height / 2,
                _plain(name),
                ha="center",
                va="center",
                fontsize=NAME_PT,
                rotation=0 if flat else 90,
                zorder=4,
            )


def _plain(text: str) -> str:
    """Return text in which matplotlib sees no mathematics."""
    return text.replace("$", r"\$")


def _steps(
    ax: Any, group: tuple[Any, ...], colours: dict[str, str], unit: TimeUnit, name: str
) -> None:
    from matplotlib.ticker import MaxNLocator

    if group:
        ax.stackplot(
            [time / unit.seconds for time in group[0].times_s],
            [series.values for series in group],
            colors=[colours[series.name] for series in group],
            labels=[series.name for series in group],
            step="post",
            linewidth=0,
        )
        ax.legend(
            loc="lower right",
            bbox_to_anchor=(1, 0.97),
            ncols=len(group),
            frameon=False,
            fontsize=6.5,
            labelcolor=MUTED,
            handlelength=1.2,
            columnspacing=1.2,
            borderpad=0,
        )
    ax.set_ylabel(name, fontsize=7)
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.set_ylim(bottom=0)
