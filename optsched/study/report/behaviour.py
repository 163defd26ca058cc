"""Figures of what simulated methods do to jobs and GPUs: JCT, use, lost GPU time, average against
tail."""

import math
from collections import defaultdict
from typing import Any

import numpy as np

from ...picture.axis import time_unit
from ...picture.panels import SHARE_OF_JOBS, Axis, Bars, Chart, Dots, Line, Mark, Panel
from ...picture.style import TIME_TICKS
from ...picture.text_simulation import LOST_TO
from ...simulate.report.figures import HOURS
from ...simulate.report.series import distribution
from .compare import MEAN_JCT, P99_JCT, Comparison, Entry
from .model import COLOURS, NEUTRAL, OTHERS, chart_of_cases, curve, others
from .statistics import Floats, pareto

MOSTLY = 0.97
FAR = 5.0
"""How many times the median a value is that gets the axis a logarithmic scale."""
HOURS_TICKS = tuple(digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5))
SPEEDUPS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)
ROUNDED_S = 1.0
"""Times below this are drawn as this on a logarithmic axis."""


def _curve(entry: Entry, name: str) -> Any:
    return (entry.said.get("curves") or {}).get(name)


def _with_curve(comparison: Comparison, name: str) -> dict[str, dict[str, list[Entry]]]:
    """Return the runs that have a curve, by case and method, the best method first."""
    table: dict[str, dict[str, list[Entry]]] = defaultdict(dict)
    for case in comparison.cases:
        for method in comparison.methods:
            if runs := [run for run in comparison.of(case, method) if _curve(run, name)]:
                table[case][method] = runs
    return table


def completion_times(comparison: Comparison) -> Chart | None:
    """Return the distribution of JCT, all seeds of a method together."""
    panels = []
    for case, runs_of in _with_curve(comparison, "jct_s").items():
        lines = []
        for method, runs in reversed(runs_of.items()):
            points = [np.maximum(_curve(run, "jct_s"), ROUNDED_S) for run in runs]
            at_s = np.concatenate(points)
            # Each run counts the same, however many quantiles it is told by.
            weight = np.concatenate(
                [np.full(len(point), 1 / len(point) / len(points)) for point in points]
            )
            order = np.argsort(at_s, kind="stable")
            share = np.append(0.0, np.cumsum(weight[order]))
            x = at_s[[order[0], *order]]
            lines.append(curve(comparison.methods, method, x.tolist(), share.tolist()))
        low, high = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
        time = Axis(
            "job completion time", log=True, low=low, high=max(high, 1.1 * low), ticks=TIME_TICKS
        )
        panels.append(Panel(case, time, SHARE_OF_JOBS, tuple(lines)))
    return chart_of_cases(
        "jct",
        "Job completion times",
        "Share of jobs that complete within a time of their submission, all seeds together."
        + others(comparison.methods),
        panels,
    )


def speedups(comparison: Comparison, baseline: str) -> Chart | None:
    """Return how many times earlier than under the baseline jobs complete, paired job by job."""
    panels = []
    for case, runs_of in _with_curve(comparison, "sample_jct_s").items():
        base = {run.seed: _sample(run) for run in runs_of.get(baseline, ())}
        lines = []
        for method, runs in reversed(runs_of.items()):
            pairs = [
                base[run.seed] / own
                for run in runs
                if run.seed in base and len(own := _sample(run)) == len(base[run.seed])
            ]
            if method != baseline and pairs:
                x, share = distribution(np.concatenate(pairs))
                steps = [x[0], *x.tolist()], [0.0, *share.tolist()]
                lines.append(curve(comparison.methods, method, *steps))
        if lines:
            low, high = (float(fn([fn(line.x) for line in lines])) for fn in (np.min, np.max))
            axis = Axis(
                f"JCT under {baseline} / JCT",
                log=True,
                low=max(low, 1e-2) / 1.05,
                high=min(high, 1e3) * 1.05,
                ticks=tuple((at, f"{at:g}x") for at in SPEEDUPS),
            )
            panels.append(Panel(case, axis, SHARE_OF_JOBS, tuple(lines)))
    return chart_of_cases(
        "speedup",
        f"Speed-up of jobs over {baseline}",
        f"Share of jobs whose completion time under {baseline} is at most so many times that under "
        "the method, each job against itself, all seeds together: left of 1 are those that it "
        f"makes wait. Times below {ROUNDED_S:g} s count as that." + others(comparison.methods),
        panels,
    )


def _sample(entry: Entry) -> Floats:
    sample: Floats = np.maximum(np.array(_curve(entry, "sample_jct_s")), ROUNDED_S)
    return sample


def use_over_time(comparison: Comparison) -> Chart | None:
    """Return the share of GPUs held, of the first seed."""
    panels = []
    for case, runs_of in _with_curve(comparison, "gpus_held").items():
        first = next(iter(runs_of.values()))[0].seed
        held_of = {
            method: _curve(run, "gpus_held")
            for method, runs in runs_of.items()
            for run in runs
            if run.seed == first
        }
        until_s = max(map(_mostly_done_s, held_of.values()))
        unit = time_unit(until_s)
        lines = []
        for method, held in reversed(held_of.items()):
            x = (np.array(held["edges_s"]) / unit.seconds).tolist()
            lines.append(curve(comparison.methods, method, x, [*held["share"], held["share"][-1]]))
        time = Axis(f"{unit.name} from now", low=0.0, high=1.02 * until_s / unit.seconds)
        share = Axis("share of GPUs held", percent=True, low=0.0, high=1.05)
        title = case if first is None else f"{case}, seed {first}"
        panels.append(Panel(title, time, share, tuple(lines)))
    return chart_of_cases(
        "use",
        "GPUs held over time",
        "GPU-seconds held over those there, until each method has spent "
        f"{MOSTLY:.0%} of its GPU time: a few last jobs may go on for long."
        + others(comparison.methods),
        panels,
    )


def _mostly_done_s(held: Any) -> float:
    """Return when most of the GPU time has been spent."""
    edges_s = np.array(held["edges_s"])
    spent = np.cumsum(np.array(held["share"]) * np.diff(edges_s))
    return float(edges_s[1 + int(np.searchsorted(spent, MOSTLY * spent[-1]))]) or 1.0


def lost_time(comparison: Comparison) -> Chart | None:
    """Return the GPU-hours that preemptions, failures, lost nodes and lack of memory took, the mean
    over the seeds."""
    panels, most = [], 0
    for case in comparison.cases:
        means: dict[str, list[float]] = {}
        for method in comparison.methods:
            runs = comparison.of(case, method)
            hours = [run.said["gpu_h"] for run in runs if run.said.get("gpu_h")]
            if hours:
                means[method] = [
                    math.fsum(sum(lost[cause].values()) for lost in hours) / len(hours)
                    for cause in LOST_TO
                ]
        by_cause = dict(zip(LOST_TO, zip(*means.values(), strict=True), strict=False))
        bars = tuple(
            Bars(HOURS[cause][0], lengths, HOURS[cause][1])
            for cause, lengths in by_cause.items()
            if any(lengths)
        )
        if bars:
            most = max(most, len(means))
            methods = Axis(names=tuple(means))
            panels.append(Panel(case, Axis("GPU-hours lost", low=0.0), methods, bars))
    return chart_of_cases(
        "lost",
        "Lost GPU-hours by cause",
        "GPU-hours held that counted for nothing: checkpoints, restarts and lost work of "
        "preemptions and failures; mean over seeds. First starts are not lost. The best method of "
        "the study is on top.",
        panels,
        0.7 + 0.17 * most,
    )


def _hours(title: str, values: Floats) -> Axis:
    """Return an axis, logarithmic where one method would press all others together."""
    low, high = float(values.min()), float(values.max())
    if low <= 0 or high < FAR * float(np.median(values)):
        return Axis(title)
    ticks = tuple((at, f"{at:g}") for at in HOURS_TICKS)
    return Axis(title, log=True, low=0.9 * low, high=1.1 * high, ticks=ticks)


def average_and_tail(comparison: Comparison) -> Chart | None:
    """Return mean against p99 of JCT, the means over the seeds; those that no other method beats in
    both are named."""
    panels = []
    for case in comparison.cases:
        points: dict[str, tuple[float, float]] = {}
        for method in comparison.methods:
            pairs = [
                pair
                for run in comparison.of(case, method)
                if None not in (pair := (MEAN_JCT(run.result), P99_JCT(run.result)))
            ]
            if pairs:
                x, y = (math.fsum(values) / len(pairs) for values in zip(*pairs, strict=True))
                points[method] = x, y
        if len(points) < 2:
            continue
        names, xy = np.array(list(points)), np.array(list(points.values()))
        front = pareto(xy[:, 0], xy[:, 1])
        order = np.argsort(xy[:, 0], kind="stable")
        best, rest = order[front[order]], np.flatnonzero(~front)
        (best_x, best_y), (rest_x, rest_y) = xy[best].T.tolist(), xy[rest].T.tolist()
        marks: tuple[Mark, ...] = (
            Line("front", best_x, best_y, NEUTRAL, dashed=True, width=1.0, listed=False),
            Dots("another is better in both", rest_x, rest_y, names[rest].tolist(), OTHERS),
            Dots(
                "no other is better in both",
                best_x,
                best_y,
                names[best].tolist(),
                COLOURS[0],
                told=True,
            ),
        )
        axes = (_hours("mean JCT, h", xy[:, 0]), _hours("p99 of JCT, h", xy[:, 1]))
        panels.append(Panel(case, *axes, marks))
    return chart_of_cases(
        "pareto",
        "Average against tail",
        "Mean and 99th percentile of JCT, each the mean over seeds; named are the methods than "
        "which no other is at most as large in both.",
        panels,
        3.0,
    )
