"""Figures of how good methods are: gaps, performance profile, value over time, differences over
seeds."""

import csv
import io
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...files import csv_text
from ...picture.panels import Axis, Chart, Heat, Intervals, Panel
from .compare import GAP, VALUE, Comparison, Entry
from .model import MOST_PANELS, chart_of_cases, curve, others
from .statistics import (
    FEWEST_SEEDS,
    Difference,
    Floats,
    benjamini_hochberg,
    paired_bootstrap,
    profile,
)

MOST_CASES, ALL = 24, "all"
MARKS_S = (1.0, 5.0, 15.0, 60.0)
"""Seconds at which the value of a plan is told."""
FIRST_S, TIMES = 0.1, 240
FACTORS = tuple(
    (at, f"{at:g}")
    for at in (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e3, 1e4, 1e5, 1e6)
)
"""Ticks of a logarithmic axis of factors."""
CLEAR, UNCLEAR = "#d9622b", "#98a2b3"
SIGNIFICANT = 0.05
FAR = 3.0
"""How many times the third quartile a difference is that an axis leaves out."""

Trace = list[tuple[float, float | None, float | None]]
"""Seconds, value and bound."""
Runs = list[tuple[Floats, Floats, float]]
"""Value and bound over time, and the best value that any run over the same problem found."""


class Pair(NamedTuple):
    """Two methods over a case: the difference of the first minus the second in the unit of the
    measure, and its q-value."""

    case: str
    method: str
    against: str
    difference: Difference
    q: float


def gaps(comparison: Comparison) -> Chart | None:
    """Return the gap of each method over each instance, the mean over the seeds."""
    by_group = len(comparison.cases) > MOST_CASES
    gaps_of: dict[tuple[str, str], list[float]] = defaultdict(list)
    columns: dict[str, None] = {}
    for entry in comparison.entries:
        column = entry.group if by_group else entry.case
        columns[column] = None
        if (gap := GAP(entry.result)) is not None:
            gaps_of[entry.method, column].append(gap)
            gaps_of[entry.method, ALL].append(gap)
    rows = [method for method in comparison.methods if (method, ALL) in gaps_of]
    if not rows:
        return None
    known = [name for name in columns if any((method, name) in gaps_of for method in rows)]
    names = [ALL, *known[:MOST_CASES]] if len(known) > 1 else known
    means = [[_mean_percent(gaps_of.get((method, name), [])) for name in names] for method in rows]
    texts = [["-" if mean is None else _three_digits(mean) for mean in row] for row in means]
    more = ""
    if len(known) > MOST_CASES:
        more = f" The first {MOST_CASES} of {len(known)} instances; all are in the first column."
    panel = Panel(
        "", Axis(names=tuple(names)), Axis(names=tuple(rows)), (Heat("gap, %", means, texts),)
    )
    return Chart(
        "gaps",
        "Distance from the proved bound",
        "(value - bound) / |value| in percent, mean over seeds. The best method of the study is on "
        "top; - stands for a run without a bound or without an answer." + more,
        (panel,),
        panel_in=0.7 + 0.19 * len(rows),
    )


def _mean_percent(values: Sequence[float]) -> float | None:
    return 100 * (math.fsum(values) / len(values)) if values else None


def _three_digits(percent: float) -> str:
    return f"{percent:.2f}" if abs(percent) < 10 else f"{percent:.1f}"


def profiles(comparison: Comparison) -> Chart | None:
    """Return the performance profile."""
    there = ~np.isnan(comparison.ratios)
    useful = np.flatnonzero(there.sum(axis=0) > 1)
    table, runs = comparison.ratios[:, useful], there[:, useful].sum(axis=1)
    drawn = np.flatnonzero(runs)
    if len(drawn) < 2:
        return None
    methods = tuple(comparison.methods[i] for i in drawn)
    last = max(1.05, float(np.quantile(table[np.isfinite(table)], 0.99)) * 1.02)
    lines = []
    for method, i in reversed(list(zip(methods, drawn, strict=True))):
        factors, shares = (part.tolist() for part in profile(table[i]))
        x = [1.0, *factors, max([last, *factors[-1:]])]
        y = [shares[0] if factors[:1] == [1.0] else 0.0, *shares, *(shares[-1:] or [0.0])]
        name = method if runs[i] == len(useful) else f"{method} ({runs[i]} problems)"
        lines.append(curve(methods, method, x, y, name=name))
    measures = dict.fromkeys(comparison.measure[comparison.problems[k][0]] for k in useful)
    factor = Axis(
        "factor of the best value", last > 3, low=1.0, high=last, ticks=FACTORS if last > 3 else ()
    )
    share = Axis("share of problems", percent=True, low=0.0, high=1.02)
    return Chart(
        "profile",
        "Performance profile",
        f"Share of the {len(useful)} problems (an instance with a seed) on which a method is "
        f"within a factor of the best {' or '.join(measures)} of all (Dolan and Moré, 2002). A "
        "failed run is never within any." + others(methods),
        (Panel("", factor, share, tuple(lines)),),
        panel_in=3.6,
    )


def read_trace(path: Path) -> Trace:
    """Return the changes of value and bound that a run wrote; none where it has no such file."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    except OSError:
        return []

    def number(text: str) -> float | None:
        return float(text) if text else None

    return [(float(row["wall_s"]), number(row["value"]), number(row["bound"])) for row in rows]


def at_times(trace: Trace, times_s: Floats) -> tuple[Floats, Floats]:
    """Return value and bound that a run had at instants; NaN before the first."""
    known = np.array([(-math.inf, None, None), *trace], dtype=float)
    value, bound = known[np.searchsorted(known[:, 0], times_s, side="right") - 1, 1:].T
    return value, bound


def anytime(comparison: Comparison, trace_of: Callable[[Entry], Trace]) -> Chart | None:
    """Return value and bound over time, both against the best value that any run of the study
    found."""
    traces = _traces(comparison, trace_of)
    if not traces:
        return None
    last_s = max(FIRST_S, *(entry.result.wall_s for entry, _, _ in traces))
    told_s = [s for s in MARKS_S if s <= last_s]
    times_s = np.unique(np.concatenate([np.geomspace(FIRST_S, last_s, TIMES), told_s]))
    runs_of: dict[tuple[str, str], Runs] = defaultdict(list)
    for entry, trace, best in traces:
        runs_of[entry.case, entry.method].append((*at_times(trace, times_s), best))
    cases, methods = (
        tuple(name for name in names if any(key[k] == name for key in runs_of))
        for k, names in enumerate((comparison.cases, comparison.methods))
    )
    groups = {f"all {len(cases)} instances" if len(cases) > 1 else cases[0]: cases}
    if 1 < len(cases) < MOST_PANELS:
        groups |= {case: (case,) for case in cases}
    ticks = tuple(
        (s, f"{s:g} s") for s in (0.1, *MARKS_S, 300.0, 900.0, 3600.0) if s <= 1.01 * last_s
    )
    clock = Axis("wall clock", log=True, low=FIRST_S, high=last_s, ticks=ticks)
    panels, tables = [], []
    for title, members in groups.items():
        runs = {
            method: [run for case in members for run in runs_of.get((case, method), [])]
            for method in methods
        }
        panels.append(_over_time(title, clock, methods, runs, times_s))
        tables.append(
            [
                (method, str(len(own)), *(_quality(own, times_s, at_s) for at_s in told_s))
                for method, own in runs.items()
            ]
        )
    heads = ("method", "runs", *(f"{s:g} s: above best / gap" for s in told_s))
    return Chart(
        "anytime",
        "Value and bound over time",
        "Mean over the runs of a method of its value (solid) and of its bound (dashed) against the "
        "best value that any run of the study found; a curve begins where all of these runs have "
        "one." + others(methods),
        tuple(panels),
        table=(heads, *tables[0]),
    )


def _traces(
    comparison: Comparison, trace_of: Callable[[Entry], Trace]
) -> list[tuple[Entry, Trace, float]]:
    """Return the runs for one objective that wrote a trace, with the best value of their
    problem."""
    best: dict[tuple[str, object], float] = defaultdict(lambda: math.inf)
    for entry in comparison.entries:
        if (value := VALUE(entry.result)) is not None:
            best[entry.case, entry.seed] = min(value, best[entry.case, entry.seed])
    return [
        (entry, trace, best[entry.case, entry.seed])
        for entry in comparison.entries
        if entry.ok
        and len(entry.said.get("objective", {}).get("levels") or []) < 2
        and 0 < best[entry.case, entry.seed] < math.inf
        and (trace := trace_of(entry))
    ]


def _over_time(
    title: str, clock: Axis, methods: tuple[str, ...], runs_of: dict[str, Runs], times_s: Floats
) -> Panel:
    lines, highest, lowest = [], 0.0, 0.0
    for method, runs in reversed(runs_of.items()):
        if not runs:
            continue
        above = np.mean([100 * (value / best - 1) for value, _, best in runs], axis=0)
        below = np.mean([100 * (bound / best - 1) for _, bound, best in runs], axis=0)
        for values, dashed in ((above, False), (below, True)):
            there = ~np.isnan(values)
            if there.any():
                x, y = times_s[there].tolist(), values[there].tolist()
                lines.append(curve(methods, method, x, y, dashed=dashed))
                highest = max(highest, float(np.quantile(values[there], 0.9)))
                lowest = min(lowest, float(np.quantile(values[there], 0.1)))
    margin = 0.08 * max(1.0, highest - lowest)
    percent = Axis(
        "% above the best value known", low=max(-105.0, lowest - margin), high=highest + margin
    )
    return Panel(title, clock, percent, tuple(lines))


def _quality(runs: Runs, times_s: Floats, at_s: float) -> str:
    """Return mean distance from the best value, and mean gap, at an instant."""
    k = int(np.searchsorted(times_s, at_s))
    above = float(np.mean([value[k] / best - 1 for value, _, best in runs]))
    if math.isnan(above):
        return f"{sum(math.isnan(value[k]) for value, _, _ in runs)} without a plan"
    gap = float(
        np.mean([(value[k] - bound[k]) / value[k] if value[k] else 0.0 for value, bound, _ in runs])
    )
    return f"+{100 * above:.2f} % / " + ("-" if math.isnan(gap) else f"{100 * gap:.2f} %")


def too_few_seeds(comparison: Comparison) -> str | None:
    """Return the sentence that stands for the figure where no case has seeds enough, and several
    methods."""
    several = (~np.isnan(comparison.values)).sum(axis=0) > 1
    compared = Counter(
        case for (case, _), some in zip(comparison.problems, several, strict=True) if some
    )
    most = max(compared.values(), default=0)
    if not 0 < most < FEWEST_SEEDS:
        return None
    return (
        f"Not tested: that takes {FEWEST_SEEDS} seeds at least, and here no instance has more than "
        f"{most}. With so few, p cannot be below 2 / 2^{most} = {min(1.0, 2.0 ** (1 - most)):.2g}, "
        "whatever the runs say. Differences in the tables may be chance."
    )


def differences(comparison: Comparison) -> list[Pair]:
    """Return every two methods over every case with seeds enough, the second the better one of the
    ranking of the case."""
    pairs: list[tuple[str, str, str, Difference]] = []
    for case in comparison.cases:
        values = comparison.of_case(case)
        finite = np.isfinite(values)
        rows = [i for i in range(len(values)) if finite[i].sum() >= FEWEST_SEEDS]
        rows.sort(key=lambda i: float(values[i][finite[i]].mean()))
        for better, worse in combinations(rows, 2):
            both = finite[better] & finite[worse]
            if both.sum() >= FEWEST_SEEDS:
                difference = paired_bootstrap(values[worse][both], values[better][both])
                methods = comparison.methods[worse], comparison.methods[better]
                pairs.append((case, *methods, difference))
    chances = benjamini_hochberg([difference.p for *_, difference in pairs])
    return [Pair(*pair, q) for pair, q in zip(pairs, chances, strict=True)]


def significance(comparison: Comparison, pairs: list[Pair]) -> Chart | None:
    """Compare each method with the best one of its instance."""
    tested = {pair.case for pair in pairs}
    without = len({case for case, _ in comparison.problems}) - len(tested)
    untested = ""
    if without:
        untested = (
            f" {without} instances without {FEWEST_SEEDS} seeds on which two methods succeed are "
            "not tested."
        )
    panels, most = [], 0
    for case in filter(tested.__contains__, comparison.cases):
        best = next(pair.against for pair in pairs if pair.case == case)
        mine = [pair for pair in pairs if pair.case == case and pair.against == best]
        values = comparison.of_case(case)[comparison.methods.index(best)]
        base = float(np.mean(values[np.isfinite(values)])) or 1.0
        most = max(most, len(mine))
        marks = [_intervals(mine, base, clear) for clear in (True, False) if _clear(mine, clear)]
        measure = comparison.measure[case].removeprefix("mean ")
        names = Axis(names=tuple(pair.method for pair in mine))
        axis = _broken(f"difference of mean {measure}, %", marks)
        panels.append(Panel(f"{case}: against {best}", axis, names, tuple(marks)))
    return chart_of_cases(
        "significance",
        "Differences over seeds",
        "Mean difference to the best method of the instance, in percent of the best method's mean, "
        "with 95 % intervals of the paired bootstrap over seeds (10,000 resamples). Filled where "
        f"the share of false discoveries over all {len(pairs):,} pairs of methods can be held "
        f"below {SIGNIFICANT:.0%} (Benjamini-Hochberg; p is at least 2 / 2^n of n seeds). "
        "significance.csv has all pairs." + untested,
        panels,
        0.7 + 0.17 * most,
    )


def _broken(title: str, marks: Sequence[Intervals]) -> Axis:
    """Return an axis that ends where one method would press all others together, and says so."""
    ends = np.array([end for mark in marks for end in mark.high])
    starts = np.array([start for mark in marks for start in mark.low])
    usual = FAR * float(np.quantile(ends, 0.75))
    if usual <= 0 or ends.max() <= usual:
        return Axis(title)
    inside = float(ends[ends <= usual].max())
    beyond = ", ".join(
        f"{row} {mid:+,.0f} %"
        for mark in marks
        for row, mid, high in zip(mark.rows, mark.mid, mark.high, strict=True)
        if high > usual
    )
    low = min(0.0, float(starts.min()))
    return Axis(f"{title} (beyond: {beyond})", low=1.05 * low - 0.03 * inside, high=1.1 * inside)


def _clear(pairs: list[Pair], clear: bool) -> list[Pair]:
    return [pair for pair in pairs if (pair.q < SIGNIFICANT) == clear]


def _intervals(pairs: list[Pair], base: float, clear: bool) -> Intervals:
    """Return the differences that are clear, or those that are not, in percent of `base`."""
    chosen = _clear(pairs, clear)
    mid, low, high = (
        [100 * getattr(pair.difference, part) / base for pair in chosen]
        for part in ("mean", "low", "high")
    )
    name, colour = (f"q < {SIGNIFICANT}", CLEAR) if clear else ("not clear", UNCLEAR)
    return Intervals(name, [pair.method for pair in chosen], mid, low, high, colour, clear)


def significance_csv(pairs: list[Pair], comparison: Comparison) -> str:
    """Return one line a pair."""
    lines: list[Sequence[object]] = [
        ("instance", "measure", "method", "against", "seeds", "difference", "low", "high", "p", "q")
    ]
    for case, method, against, difference, q in pairs:
        unit = "mean JCT h" if comparison.measure[case] == "mean JCT" else "objective"
        numbers = (difference.mean, difference.low, difference.high, difference.p, q)
        lines.append(
            (
                case,
                unit,
                method,
                against,
                difference.pairs,
                *(f"{number:.6g}" for number in numbers),
            )
        )
    return csv_text(lines)
