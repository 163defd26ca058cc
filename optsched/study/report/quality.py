"""Figures of how good methods are: gaps, performance profile, value over time, differences over
seeds."""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np

from .compare import GAP, VALUE, Comparison, Entry
from .model import (
    MOST_PANELS,
    Axis,
    Chart,
    Heat,
    Intervals,
    Line,
    Panel,
    chart_of_cases,
    curve,
    others,
)
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

Trace = list[tuple[float, float | None, float | None]]
"""Seconds, value and bound."""


def gaps(found: Comparison) -> Chart | None:
    """Return the gap of each method over each instance, the mean over the seeds."""
    by_group = len(found.cases) > MOST_CASES
    told: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in found.entries:
        gap = GAP(entry.result) if entry.ok else None
        if gap is not None:
            told[entry.method][entry.group if by_group else entry.case].append(gap)
            told[entry.method][ALL].append(gap)
    rows = [method for method in found.methods if method in told]
    if not rows:
        return None
    columns = dict.fromkeys(entry.group if by_group else entry.case for entry in found.entries)
    known = [name for name in columns if any(name in told[method] for method in rows)]
    names = [ALL, *known[:MOST_CASES]] if len(known) > 1 else known
    values = [[_mean(told[method].get(name, [])) for name in names] for method in rows]
    more = ""
    if len(known) > MOST_CASES:
        more = f" The first {MOST_CASES} of {len(known)} instances; all are in the first column."
    return Chart(
        "gaps",
        "Distance from the proved bound",
        "(value - bound) / |value| in percent, mean over seeds. The best method of the study is on "
        "top; - stands for a run without a bound or without an answer." + more,
        (
            Panel(
                "",
                Axis(names=tuple(names)),
                Axis(names=tuple(rows)),
                (
                    Heat(
                        "gap, %",
                        [
                            [None if value is None else 100 * value for value in row]
                            for row in values
                        ],
                        [
                            ["-" if value is None else _percent(value) for value in row]
                            for row in values
                        ],
                    ),
                ),
            ),
        ),
        panel_in=0.7 + 0.19 * len(rows),
    )


def _percent(value: float) -> str:
    """Three digits."""
    return f"{100 * value:.2f}" if abs(value) < 0.1 else f"{100 * value:.1f}"


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def profiles(found: Comparison) -> Chart | None:
    """Return the performance profile."""
    table = found.ratios
    useful = [k for k in range(table.shape[1]) if (~np.isnan(table[:, k])).sum() > 1]
    table = table[:, useful]
    drawn = [i for i in range(len(found.methods)) if (~np.isnan(table[i])).any()]
    if len(drawn) < 2:
        return None
    methods = tuple(found.methods[i] for i in drawn)
    finite = table[np.isfinite(table)]
    last = max(1.05, float(np.quantile(finite, 0.99)) * 1.02)
    lines = []
    for k, i in reversed(list(enumerate(drawn))):
        factors, shares = profile(table[i])
        count = int((~np.isnan(table[i])).sum())
        x = [1.0, *factors.tolist(), max(last, float(factors[-1]) if len(factors) else last)]
        y = [
            float(shares[0]) if len(factors) and factors[0] == 1.0 else 0.0,
            *shares.tolist(),
            float(shares[-1]) if len(factors) else 0.0,
        ]
        name = methods[k] if count == len(useful) else f"{methods[k]} ({count} problems)"
        lines.append(curve(methods, methods[k], x, y, name=name))
    measures = " or ".join(dict.fromkeys(found.measure[found.problems[k][0]] for k in useful))
    return Chart(
        "profile",
        "Performance profile",
        f"Share of the {len(useful)} problems (an instance with a seed) on which a method is "
        "within a factor of the "
        f"best {measures} of all (Dolan and Moré, 2002). A failed run is never within any."
        + others(methods),
        (
            Panel(
                "",
                Axis(
                    "factor of the best value",
                    last > 3,
                    low=1.0,
                    high=last,
                    ticks=FACTORS if last > 3 else (),
                ),
                Axis("share of problems", percent=True, low=0.0, high=1.02),
                tuple(lines),
            ),
        ),
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
    starts = np.array([row[0] for row in trace])
    rank = np.searchsorted(starts, times_s, side="right") - 1
    found = []
    for part in (1, 2):
        values = np.array(
            [np.nan if row[part] is None else row[part] for row in trace] + [np.nan], dtype=float
        )
        found.append(values[np.where(rank < 0, len(trace), rank)])
    return found[0], found[1]


def anytime(found: Comparison, trace_of: Callable[[Entry], Trace]) -> Chart | None:
    """Return value and bound over time, both against the best value that any run of the study
    found."""
    curves: dict[tuple[str, str], list[tuple[Trace, float]]] = defaultdict(list)
    best: dict[tuple[str, object], float] = {}
    last_s = FIRST_S
    for entry in found.entries:
        value = VALUE(entry.result) if entry.ok else None
        if value is not None:
            best[entry.case, entry.seed] = min(value, best.get((entry.case, entry.seed), math.inf))
    for entry in found.entries:
        single = (
            entry.ok
            and len((entry.result.answer or {}).get("objective", {}).get("levels") or []) < 2
        )
        trace = trace_of(entry) if single else []
        if trace and best.get((entry.case, entry.seed), 0.0) > 0:
            curves[entry.case, entry.method].append((trace, best[entry.case, entry.seed]))
            last_s = max(last_s, entry.result.wall_s)
    if not curves:
        return None
    times_s = np.unique(
        np.concatenate([np.geomspace(FIRST_S, last_s, TIMES), [s for s in MARKS_S if s <= last_s]])
    )
    methods = tuple(method for method in found.methods if any(key[1] == method for key in curves))
    cases = tuple(case for case in found.cases if any(key[0] == case for key in curves))
    shown = cases if 1 < len(cases) < MOST_PANELS else ()
    drawn: dict[str, list[Line]] = {}
    reach: dict[str, tuple[float, float]] = {}
    table: list[tuple[str, ...]] = [
        ("method", "runs", *(f"{s:g} s: above best / gap" for s in MARKS_S if s <= last_s))
    ]
    for title, members in [
        (f"all {len(cases)} instances" if len(cases) > 1 else cases[0], cases),
        *((case, (case,)) for case in shown),
    ]:
        drawn[title], highest, lowest = [], 0.0, 0.0
        for method in reversed(methods):
            mine = [pair for case in members for pair in curves.get((case, method), [])]
            if not mine:
                continue
            pairs = [(*at_times(trace, times_s), value) for trace, value in mine]
            above = np.mean([100 * (value / base - 1) for value, _, base in pairs], axis=0)
            below = np.mean([100 * (bound / base - 1) for _, bound, base in pairs], axis=0)
            for values, dashed in ((above, False), (below, True)):
                there = ~np.isnan(values)
                if there.any():
                    x, y = times_s[there].tolist(), values[there].tolist()
                    drawn[title].append(curve(methods, method, x, y, dashed=dashed))
                    highest = max(highest, float(np.quantile(values[there], 0.9)))
                    lowest = min(lowest, float(np.quantile(values[there], 0.1)))
            if members == cases:
                told = (_quality(pairs, times_s, s) for s in MARKS_S if s <= last_s)
                table.insert(1, (method, str(len(mine)), *told))
        span = max(1.0, highest - lowest)
        reach[title] = max(-105.0, lowest - 0.08 * span), highest + 0.08 * span
    ticks = tuple(
        (s, f"{s:g} s") for s in (0.1, *MARKS_S, 300.0, 900.0, 3600.0) if s <= 1.01 * last_s
    )
    panels = [
        Panel(
            title,
            Axis("wall clock", log=True, low=FIRST_S, high=last_s, ticks=ticks),
            Axis("% above the best value known", low=reach[title][0], high=reach[title][1]),
            tuple(lines),
        )
        for title, lines in drawn.items()
    ]
    return Chart(
        "anytime",
        "Value and bound over time",
        "Mean over the runs of a method of its value (solid) and of its bound (dashed) against "
        "the best value that any "
        "run of the study found; a curve begins where all of these runs have one."
        + others(methods),
        tuple(panels),
        table=tuple(table),
    )


def _quality(pairs: list[tuple[Floats, Floats, float]], times_s: Floats, at_s: float) -> str:
    """Return mean distance from the best value, and mean gap, at an instant."""
    k = int(np.searchsorted(times_s, at_s))
    above = float(np.mean([value[k] / base - 1 for value, _, base in pairs]))
    gap = float(
        np.mean(
            [(value[k] - bound[k]) / value[k] if value[k] else 0.0 for value, bound, _ in pairs]
        )
    )
    if math.isnan(above):
        missing = sum(math.isnan(value[k]) for value, _, _ in pairs)
        return f"{missing} without a plan"
    return f"+{100 * above:.2f} % / " + ("-" if math.isnan(gap) else f"{100 * gap:.2f} %")


Pair = tuple[str, str, str, Difference, float]
"""Case, two methods, the difference of the first minus the second in the unit of the measure, and
its q-value."""


def too_few_seeds(found: Comparison) -> str | None:
    """Return the sentence that stands for the figure where no case has seeds enough, and several
    methods."""
    compared = [
        problem[0]
        for k, problem in enumerate(found.problems)
        if (~np.isnan(found.values[:, k])).sum() > 1
    ]
    most = max((compared.count(case) for case in found.cases), default=0)
    if not 0 < most < FEWEST_SEEDS:
        return None
    return (
        f"Not tested: that takes {FEWEST_SEEDS} seeds at least, and here no instance has more than "
        f"{most}. With so few, p cannot be below 2 / 2^{most} = {min(1.0, 2.0 ** (1 - most)):.2g}, "
        "whatever the runs say. Differences in the tables may be chance."
    )


def differences(found: Comparison) -> list[Pair]:
    """Return every two methods over every case with seeds enough, the second the better one of the
    ranking of the case."""
    pairs: list[tuple[str, str, str, Difference]] = []
    for case in found.cases:
        columns = [k for k, problem in enumerate(found.problems) if problem[0] == case]
        values = found.values[:, columns]
        rows = [
            i for i in range(len(found.methods)) if np.isfinite(values[i]).sum() >= FEWEST_SEEDS
        ]
        rows.sort(key=lambda i: float(values[i][np.isfinite(values[i])].mean()))
        for better, worse in combinations(rows, 2):
            both = np.isfinite(values[better]) & np.isfinite(values[worse])
            if both.sum() >= FEWEST_SEEDS:
                difference = paired_bootstrap(values[worse][both], values[better][both])
                pairs.append((case, found.methods[worse], found.methods[better], difference))
    chances = benjamini_hochberg([pair[3].p for pair in pairs])
    return [(*pair, q) for pair, q in zip(pairs, chances, strict=True)]


def significance(found: Comparison, pairs: list[Pair]) -> Chart | None:
    """Compare each method with the best one of its instance."""
    cases = tuple(case for case in found.cases if any(pair[0] == case for pair in pairs))
    without = len({case for case, _ in found.problems}) - len(cases)
    untested = ""
    if without:
        untested = f" {without} instances without {FEWEST_SEEDS} seeds on which two methods succeed are not tested."  # noqa: E501
    panels, most = [], 0
    for case in cases:
        best = next(pair[2] for pair in pairs if pair[0] == case)
        mine = [pair for pair in pairs if pair[0] == case and pair[2] == best]
        seeds = found.values[
            found.methods.index(best), [k for k, one in enumerate(found.problems) if one[0] == case]
        ]
        base = float(np.mean(seeds[np.isfinite(seeds)])) or 1.0
        most = max(most, len(mine))
        marks = []
        for name, chosen, colour, filled in (
            (f"q < {SIGNIFICANT}", [pair for pair in mine if pair[4] < SIGNIFICANT], CLEAR, True),
            ("not clear", [pair for pair in mine if pair[4] >= SIGNIFICANT], UNCLEAR, False),
        ):
            if chosen:
                mid, low, high = (
                    [100 * part / base for part in parts]
                    for parts in zip(
                        *((pair[3].mean, pair[3].low, pair[3].high) for pair in chosen), strict=True
                    )
                )
                marks.append(
                    Intervals(name, [pair[1] for pair in chosen], mid, low, high, colour, filled)
                )
        panels.append(
            Panel(
                f"{case}: against {best}",
                Axis(f"difference of mean {found.measure[case].removeprefix('mean ')}, %"),
                Axis(names=tuple(pair[1] for pair in mine)),
                tuple(marks),
            )
        )
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


def significance_csv(pairs: list[Pair], found: Comparison) -> str:
    """Return one line a pair."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["instance", "measure", "method", "against", "seeds", "difference", "low", "high", "p", "q"]
    )
    for case, first, second, one, q in pairs:
        unit = "mean JCT h" if found.measure[case] == "mean JCT" else "objective"
        numbers = (one.mean, one.low, one.high, one.p, q)
        writer.writerow(
            [case, unit, first, second, one.pairs, *(f"{number:.6g}" for number in numbers)]
        )
    return out.getvalue()
