"""Figures of what simulated methods do to jobs and GPUs: JCT, use, lost GPU time, average against
tail."""

import math
from typing import Any

import numpy as np

from ...picture.axis import time_unit
from ...picture.style import TIME_TICKS
from ...simulate.report.figures import HOURS
from .compare import MEAN_JCT, P99_JCT, Comparison, Entry
from .model import (
    NEUTRAL,
    OTHERS,
    Axis,
    Bars,
    Chart,
    Dots,
    Line,
    Mark,
    Panel,
    chart_of_cases,
    curve,
    others,
)
from .statistics import pareto

MOSTLY = 0.97
LOST = ("preemptions", "failures", "node_losses", "out_of_memory")
ROUNDED_S = 1.0
"""Times below this are drawn as this on a logarithmic axis."""


def _curve(one: Entry, name: str) -> Any:
    return ((one.result.answer or {}).get("curves") or {}).get(name)


def _with(found: Comparison, name: str) -> dict[str, dict[str, list[Entry]]]:
    """Runs that have a curve, by case and method, the best method first."""
    table: dict[str, dict[str, list[Entry]]] = {}
    for case in found.cases:
        mine = {
            method: [entry for entry in found.of(case, method) if _curve(entry, name)]
            for method in found.methods
        }
        there = {method: runs for method, runs in mine.items() if runs}
        if there:
            table[case] = there
    return table


def completion_times(found: Comparison) -> Chart | None:
    """Return the distribution of JCT, all seeds of a method together."""
    panels = []
    for case, runs_of in _with(found, "jct_s").items():
        lines = []
        for method, runs in reversed(runs_of.items()):
            points = [np.maximum(_curve(run, "jct_s"), ROUNDED_S) for run in runs]
            at_s = np.concatenate(points)
            # Each run counts the same, however many quantiles it is told by.
            weight = np.concatenate(
                [np.full(len(point), 1 / len(point) / len(points)) for point in points]
            )
            order = np.argsort(at_s, kind="stable")
            share = np.concatenate([[0.0], np.cumsum(weight[order])])
            x = at_s[[order[0], *order]]
            lines.append(curve(found.methods, method, x.tolist(), share.tolist()))
        low, high = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
        time = Axis(
            "job completion time", log=True, low=low, high=max(high, 1.1 * low), ticks=TIME_TICKS
        )
        share_of_jobs = Axis("share of jobs", percent=True, low=0.0, high=1.02)
        panels.append(Panel(case, time, share_of_jobs, tuple(lines)))
    return chart_of_cases(
        "jct",
        "Job completion times",
        "Share of jobs that complete within a time of their submission, all seeds together."
        + others(found.methods),
        panels,
    )


def use_over_time(found: Comparison) -> Chart | None:
    """Return the share of GPUs held, of the first seed."""
    panels = []
    for case, runs_of in _with(found, "gpus_held").items():
        first = next(iter(runs_of.values()))[0].seed
        held_of = {
            method: _curve(run, "gpus_held")
            for method, runs in runs_of.items()
            for run in runs
            if run.seed == first
        }
        until_s = max(map(_mostly_done_s, held_of.values()))
        unit = time_unit(until_s)
        lines = [
            curve(
                found.methods,
                method,
                (np.array(held["edges_s"]) / unit.seconds).tolist(),
                [*held["share"], held["share"][-1]],
            )
            for method, held in reversed(held_of.items())
        ]
        panels.append(
            Panel(
                case if first is None else f"{case}, seed {first}",
                Axis(f"{unit.name} from now", low=0.0, high=1.02 * until_s / unit.seconds),
                Axis("share of GPUs held", percent=True, low=0.0, high=1.05),
                tuple(lines),
            )
        )
    return chart_of_cases(
        "use",
        "GPUs held over time",
        "GPU-seconds held over those there, until each method has spent "
        f"{MOSTLY:.0%} of its GPU time: a few last jobs may go on for long."
        + others(found.methods),
        panels,
    )


def _mostly_done_s(held: Any) -> float:
    """Return when most of the GPU time has been spent."""
    edges_s = np.array(held["edges_s"])
    spent = np.cumsum(np.array(held["share"]) * np.diff(edges_s))
    return float(edges_s[1 + int(np.searchsorted(spent, MOSTLY * spent[-1]))]) or 1.0


def lost_time(found: Comparison) -> Chart | None:
    """GPU-hours that preemptions, failures, lost nodes and lack of memory took, the mean over the
    seeds."""
    panels, most = [], 0
    for case in found.cases:
        means: dict[str, list[float]] = {}
        for method in found.methods:
            hours = [(entry.result.answer or {}).get("gpu_h") for entry in found.of(case, method)]
            there = [hour for hour in hours if hour]
            if there:
                means[method] = [
                    math.fsum(sum(one[name].values()) for one in there) / len(there)
                    for name in LOST
                ]
        if not any(any(row) for row in means.values()):
            continue
        most = max(most, len(means))
        bars = tuple(
            Bars(HOURS[name][0], [row[k] for row in means.values()], HOURS[name][1])
            for k, name in enumerate(LOST)
            if any(row[k] for row in means.values())
        )
        panels.append(Panel(case, Axis("GPU-hours lost", low=0.0), Axis(names=tuple(means)), bars))
    return chart_of_cases(
        "lost",
        "Lost GPU-hours by cause",
        "GPU-hours held that counted for nothing: checkpoints, restarts and lost work of "
        "preemptions and failures; mean over seeds. First starts are not lost. The best method of "
        "the study is on top.",
        panels,
        0.7 + 0.17 * most,
    )


def average_and_tail(found: Comparison) -> Chart | None:
    """Return mean against p99 of JCT, the means over the seeds; those that no other method beats in
    both are named."""
    panels = []
    for case in found.cases:
        points: dict[str, tuple[float, float]] = {}
        for method in found.methods:
            pairs = [
                (x, y)
                for entry in found.of(case, method)
                if (x := MEAN_JCT(entry.result)) is not None
                and (y := P99_JCT(entry.result)) is not None
            ]
            if pairs:
                x_sum, y_sum = (math.fsum(values) for values in zip(*pairs, strict=True))
                points[method] = x_sum / len(pairs), y_sum / len(pairs)
        if len(points) < 2:
            continue
        names, xy = list(points), np.array(list(points.values()))
        front = pareto(xy[:, 0], xy[:, 1])
        order = [int(i) for i in np.argsort(xy[:, 0], kind="stable") if front[i]]
        rest_of = [i for i in range(len(names)) if not front[i]]
        corner_x, corner_y = xy[order, 0], xy[order, 1]
        marks: list[Mark] = [
            Line(
                "front",
                corner_x.tolist(),
                corner_y.tolist(),
                NEUTRAL,
                dashed=True,
                width=1.0,
                listed=False,
            ),
            Dots(
                "another is better in both",
                xy[rest_of, 0].tolist(),
                xy[rest_of, 1].tolist(),
                [names[i] for i in rest_of],
                OTHERS,
            ),
            Dots(
                "no other is better in both",
                corner_x.tolist(),
                corner_y.tolist(),
                [names[i] for i in order],
                "#1f5f9e",
                told=True,
            ),
        ]
        panels.append(Panel(case, Axis("mean JCT, h"), Axis("p99 of JCT, h"), tuple(marks)))
    return chart_of_cases(
        "pareto",
        "Average against tail",
        "Mean and 99th percentile of JCT, each the mean over seeds; named are the methods than "
        "which no other is at most as large in both.",
        panels,
        3.0,
    )
