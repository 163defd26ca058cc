"""Objectives as integer expressions of CP-SAT.

Each level becomes an integer expression I with a map to the objective's value such that value(I) is
never above the true value of the schedule: coefficients are exact where a common unit exists, else
rounded so that a bound on I gives a valid bound on the value. Nothing is lost silently: `exact`
says which of the two it is.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, assert_never

import numpy as np
from ortools.sat.python import cp_model

from optsched.frozen import record
from optsched.objectives import (
    AT_ONCE_S,
    LATE_TOLERANCE_S,
    Hinge,
    Inverse,
    JobCost,
    Level,
    Linear,
    RankOfJobs,
    Square,
    Step,
    SumOfJobs,
    Term,
    Usage,
)

from ..scheduling.problem import Activity, Problem
from .model import Model

ROUNDED = 2**58
"""Largest value of an integer objective, so that sums and products fit CP-SAT's 64 bits. Where
coefficients have no common unit they are rounded to it: far finer than the variables they
multiply."""

INVERSE_STEPS = 10**7
"""Resolution of a normalised rate."""
LARGEST_RATE = 2**52
"""Largest number that is divided by a length to get a rate."""
STEPS = 2**28
"""Resolution of what use costs by its start."""
SQUARED = 2**20
"""Largest number that is squared."""

Stretches = tuple[Any, list[int], list[float]]
"""The literal of an alternative, instants at which it may start, what it then uses."""
Row = tuple[int, int, int]
"""A cost is at least the first x the end of the third, an activity, plus the second."""


@record
class LevelExpression:
    """`expression` is minimised; the objective's value is at least `offset` + `unit` times it, or
    of `maxmin` -`inverse` divided by that. What is certain is in the offset and takes no digits of
    the integers. A plan that starts jobs off the grid, with starts rounded down, may be above its
    own value by `off_grid`: no more is it where the value is a least one (`_is_snug`)."""

    expression: Any
    offset: float
    unit: float
    exact: bool
    inverse: float | None = None
    off_grid: float = 0.0

    def value(self, bound: float) -> float:
        """Return the bound on the value that follows from one on the expression."""
        value = self.offset + self.unit * bound
        if self.inverse is None:
            return value
        return -self.inverse / value if value > 0 else -math.inf

    def least(self, value: float) -> int | None:
        """Return the least of the expression where the value is, rounding of floats aside; None
        where it says nothing."""
        steps, rounding = self._steps(value)
        return math.ceil(steps - rounding) if abs(steps) < ROUNDED else None

    def most(self, value: float) -> int | None:
        """Return the most of the expression where the value is, rounding of floats aside; None
        where it says nothing."""
        steps, rounding = self._steps(value)
        return math.floor(steps + rounding) if abs(steps) < ROUNDED else None

    def _steps(self, value: float) -> tuple[float, float]:
        if self.inverse is not None:
            value = -self.inverse / value if value < 0 else math.inf
        if not math.isfinite(value):
            return math.inf, 0.0
        steps = (value - self.offset) / self.unit
        rounding = 4 * (math.ulp(value) + math.ulp(self.offset)) / self.unit
        return steps, 1e-6 + 1e-15 * abs(steps) + rounding


def build(model: Model, level: Level, is_least: bool = True) -> LevelExpression:
    """Return one level of the objective over the variables of `model` (`unsupported` says which it
    cannot be); `is_least` says that each earlier level keeps its least value."""
    builder = _Builder(model, is_least and _is_snug(model.problem))
    match level:
        case ((factor, RankOfJobs(shape=shape) as largest),) if shape is Inverse and (
            counted := builder.costs(largest)
        ):
            # The largest -scale / d is where d / scale is the largest.
            costs = [(Linear(1.0 / cost.scale, cost.origin_s), j) for cost, j in counted]
            builder.rank(costs, 1.0, len(costs))
            return replace(builder.finish(), inverse=factor)
        case _:
            for weight, term in level:
                builder.add(weight, term)
            return builder.finish()


def _is_snug(problem: Problem) -> bool:
    """Return whether some plan that is best in each level has all starts on the grid.

    With the order of jobs on each resource given, starts differ by constants that lie on the grid,
    so vertices of the polyhedron of starts and of its faces do. A level that is linear between
    instants of the grid has an optimum there, if earlier levels keep their least values.
    """
    return problem.tick.exact and all(
        isinstance(term, Usage) or (term.shape in (Linear, Hinge, Step) and not term.relative)
        for term in problem.objective.terms
    )


class _Builder:
    """Collects (coefficient, variable) pairs of a level in the objective's own unit, then scales
    them to integers."""

    def __init__(self, model: Model, snug: bool) -> None:
        self.model, self.problem, self.horizon = model.cp, model.problem, model.horizon
        self.ends, self.chosen, self.on_node = model.end, model.chosen, model.placing
        self.start, self.snug = model.start, snug
        self.tick_s = self.problem.tick.length_s
        self.certain: list[float] = []
        self.model_ticks = model.ticks
        self.parts: list[tuple[float, Any, int]] = []
        self.exact = self.problem.tick.exact
        self.off_grid = 0.0

    def costs(self, term: SumOfJobs | RankOfJobs) -> list[tuple[JobCost, int]]:
        """Return the costs of the jobs that count, with the indices of their activities."""
        pairs = (
            (term.cost(self.problem.instance, activity.job), activity.index)
            for activity in self.problem.activities
        )
        return [(cost, index) for cost, index in pairs if cost is not None]

    def add(self, weight: float, term: Term) -> None:
        """Add `weight` times a term."""
        match term:
            case Usage():
                self._usage(weight, term)
            case SumOfJobs():
                for cost, index in self.costs(term):
                    self._sum(weight, cost, index)
            case RankOfJobs():
                costs = self.costs(term)
                if costs:
                    self.rank(costs, weight, term.rank(len(costs)))
            case _:
                assert_never(term)

    def _usage(self, weight: float, term: Usage) -> None:
        problem = self.problem
        is_constant = term.tariff(problem.instance.cluster).is_constant
        for activity in problem.activities:
            j = activity.index
            timed = []
            for i, literal in enumerate(self.chosen[j]):
                if is_constant or activity.alternatives[i].fixed:
                    used = weight * problem.usage(term, activity, i, 0.0)
                    if used:
                        self.parts.append((used, literal, 1))
                else:
                    timed.append(self._stretches(weight, term, activity, i))
            if timed:
                self._by_start(activity, timed)
        self._add_dearer_nodes(weight, term)

    def _stretches(self, weight: float, term: Usage, activity: Activity, i: int) -> Stretches:
        """Return where an alternative may start, cut where what it uses has kinks, and what it uses
        from each cut on at the least.

        Where the plan may leave the grid, as much less as that can matter: a start and a kink move
        by less than a tick each.
        """
        problem = self.problem
        tariff = term.tariff(problem.instance.cluster)
        seconds = activity.alternatives[i].seconds
        kinks_s = [at_s - ahead_s for at_s in problem.changes_s for ahead_s in (0.0, seconds)]
        kinks = (problem.tick.floor(kink_s) for kink_s in kinks_s)
        cuts = sorted({0, self.horizon, *(kink for kink in kinks if 0 < kink < self.horizon)})
        used = weight * problem.usage(term, activity, i, self.tick_s * np.array(cuts))
        steepest = problem.usage_per_s(term, activity, i) * (max(tariff.rates) - min(tariff.rates))
        off_grid = 3.0 * weight * steepest * self.tick_s
        if self.snug:
            self.off_grid += off_grid
        else:
            used = used - off_grid
        return self.chosen[activity.index][i], cuts, used.tolist()

    def _by_start(self, activity: Activity, timed: list[Stretches]) -> None:
        """Add what an activity uses, which depends on its start: a line in each stretch."""
        model, start = self.model, self.start[activity.index]
        unit = max(abs(b - a) for _, _, used in timed for a, b in pairwise(used)) / STEPS
        above = model.new_int_var(0, STEPS, "")
        for literal, cuts, used in timed:
            inside = [model.new_bool_var("") for _ in cuts[1:]]
            model.add(sum(inside) == literal)
            for here, span, ends in zip(inside, pairwise(cuts), pairwise(used), strict=True):
                (low, high), least = span, min(ends)
                model.add_linear_constraint(start, low, high).only_enforce_if(here)
                self.parts.append((least, here, 1))
                if unit:
                    first, last = (math.floor((end - least) / unit) for end in ends)
                    line = (high - low) * first + (last - first) * (start - low)
                    model.add((high - low) * above >= line).only_enforce_if(here)
        self.parts.append((unit, above, STEPS))
        self.exact = False

    def _add_dearer_nodes(self, weight: float, term: Usage) -> None:
        """Add what a choice of nodes costs above the cheapest, whenever that is."""
        lowest = min(term.tariff(self.problem.instance.cluster).rates)
        for (j, a, n), (variable, gpus) in self.on_node.items():
            activity = self.problem.activities[j]
            chosen = activity.alternatives[a]
            cheapest = min(
                self.problem.gpu_cost_per_s(term, activity, chosen.mode, m) for m, _ in chosen.rooms
            )
            more = self.problem.gpu_cost_per_s(term, activity, chosen.mode, n) - cheapest
            if more > 0:
                self.parts.append(
                    (weight * more * lowest * chosen.seconds * gpus, variable, chosen.mode.gpus)
                )

    def _late_ticks(self, cost: JobCost) -> int:
        """Return the first tick that is not before the cost's origin."""
        return self.problem.tick.ceil(cost.origin_s - self.problem.instance.now_s)

    def _least_end(self, index: int) -> int:
        """Return a tick before which no schedule ends an activity."""
        activity = self.problem.activities[index]
        return activity.release_down + min(map(self.model_ticks, activity.alternatives))

    def _sum(self, weight: float, cost: JobCost, index: int) -> None:
        end, scale = self.ends[index], weight * cost.scale
        since = cost.origin_s - self.problem.instance.now_s
        match cost:
            case Linear():
                self._line(scale, since, end)
            case Hinge() if self._late_ticks(cost) <= self._least_end(index):
                self._line(scale, since, end)
            case Hinge():
                self.parts.append((scale * self.tick_s, self._late(cost, end), self.horizon))
            case Step():
                missed = self.model.new_bool_var("")
                in_time = self.problem.tick.floor(since + LATE_TOLERANCE_S)
                self.model.add(end <= in_time).only_enforce_if(~missed)
                self.parts.append((scale, missed, 1))
            case Square() if self._late_ticks(cost) <= (least := self._least_end(index)):
                # (late + more)^2, where only `more` is open: a long past takes no digits.
                late_s = least * self.tick_s - since
                self.certain.append(scale * late_s * (late_s - 2.0 * least * self.tick_s))
                self.parts.append((2.0 * scale * late_s * self.tick_s, end, self.horizon))
                self._square(scale, end - least)
            case Square():
                self._square(scale, self._late(cost, end))
            case Inverse():
                self.exact = False
                least, origin = self._least_end(index), self.problem.tick.ceil(since)
                if least > origin:
                    self._rate(scale / self.tick_s, end, least, origin)
                    return
                # Rounded down it may take no time at all: nothing but its true length limits it.
                activity = self.problem.activities[index]
                least_s = activity.done_s(self.problem.earliest_s[index]) - since
                self.certain.append(-scale / max(least_s, AT_ONCE_S))
            case _:
                assert_never(cost)

    def _line(self, scale: float, since_s: float, end: Any) -> None:
        self.certain.append(-scale * since_s)
        self.parts.append((scale * self.tick_s, end, self.horizon))

    def _late(self, cost: JobCost, end: Any) -> Any:
        """Return a variable of at least the ticks of `end` after the cost's origin."""
        late = self.model.new_int_var(0, self.horizon, "")
        self.model.add(late >= end - self._late_ticks(cost))
        on_grid = self._on_grid(cost.origin_s - self.problem.instance.now_s)
        self.exact = self.exact and on_grid
        return late

    def _square(self, scale: float, late: Any) -> None:
        """Add the square of a lateness, counted in units of which there are at most `SQUARED`."""
        unit = math.ceil(self.horizon / SQUARED)
        most = self.horizon // unit
        units = self.model.new_int_var(0, most, "")
        self.model.add(unit * units + unit - 1 >= late)
        square = self.model.new_int_var(0, most**2, "")
        self.model.add_multiplication_equality(square, [units, units])
        self.parts.append((scale * (unit * self.tick_s) ** 2, square, most**2))
        self.exact = self.exact and unit == 1

    def _rate(self, amount: float, end: Any, least_end: int, since: int) -> None:
        """Add at most minus `amount` / (end - since), `least_end` being after `since`: by division,
        or by the chord where its ends differ so little, after a long past, that it is the finer of
        the two (it lies below, as the curve is concave)."""
        shortest = least_end - since
        longest = max(shortest + 1, self.horizon - since)
        step = max(1 / INVERSE_STEPS, amount / LARGEST_RATE)
        if amount * (1 / math.sqrt(shortest) - 1 / math.sqrt(longest)) ** 2 < step:
            slope = amount / shortest / longest
            self.certain.append(-amount / shortest - slope * (shortest + since))
            self.parts.append((slope, end, self.horizon))
            return
        most = math.ceil(amount / step)
        length = self.model.new_int_var(shortest, longest, "")
        self.model.add(length >= end - since)
        rate = self.model.new_int_var(most // longest, most // shortest, "")
        self.model.add_division_equality(rate, most, length)
        self.certain.append(-step)
        self.parts.append((-step, rate, most // shortest))

    def _on_grid(self, seconds: float) -> bool:
        return self.problem.tick.floor(seconds) == self.problem.tick.ceil(seconds)

    def rank(self, costs: Sequence[tuple[JobCost, int]], weight: float, rank: int) -> None:
        """Add weight x the rank-th smallest of linear job costs (the maximum where rank is the
        number of jobs).

        Costs count from `base`, which the rank-th smallest is at least, so that a long past takes
        no digits; who never costs more is left out.
        """
        scales = {cost.scale for cost, _ in costs}
        now_s = self.problem.instance.now_s
        if len(scales) == 1 and all(self._on_grid(cost.origin_s - now_s) for cost, _ in costs):
            base, unit, rows = self._alike_rows(costs, scales.pop(), rank)
        else:
            base, unit, rows = self._scaled_rows(costs, rank)
            self.exact = False
        horizon = self.horizon
        above = [row for row in rows if row[0] * horizon + row[1] > 0]
        rank -= len(rows) - len(above)
        high = max((slope * horizon + shift for slope, shift, _ in above), default=0)
        top = self.model.new_int_var(0, max(high, 1), "")
        keeps = []
        for slope, shift, index in above:
            row = self.model.add(top >= slope * self.ends[index] + shift)
            if rank < len(above):
                keep = self.model.new_bool_var("")
                row.only_enforce_if(keep)
                keeps.append(keep)
        if keeps:
            self.model.add(sum(keeps) >= rank)
        self.certain.append(weight * base)
        self.parts.append((weight * unit, top, max(high, 1)))

    def _alike_rows(
        self, costs: Sequence[tuple[JobCost, int]], scale: float, rank: int
    ) -> tuple[float, float, list[Row]]:
        """Return base, unit and rows of costs of one scale that count from instants of the grid."""
        late = [self._late_ticks(cost) for cost, _ in costs]
        ends = [self._least_end(index) - due for due, (_, index) in zip(late, costs, strict=True)]
        first = sorted(ends)[rank - 1]
        unit = scale * self.tick_s
        rows = [(1, -due - first, index) for due, (_, index) in zip(late, costs, strict=True)]
        return unit * first, unit, rows

    def _scaled_rows(
        self, costs: Sequence[tuple[JobCost, int]], rank: int
    ) -> tuple[float, float, list[Row]]:
        """Return base, unit and rows of any linear costs, rounded down."""
        past = [cost.scale * (self.problem.instance.now_s - cost.origin_s) for cost, _ in costs]
        slopes = [cost.scale * self.tick_s for cost, _ in costs]
        lines = list(zip(past, slopes, (index for _, index in costs), strict=True))
        base = sorted(p + s * self._least_end(index) for p, s, index in lines)[rank - 1]
        largest = max(
            abs(p - base) + s * self.horizon for p, s, _ in lines if p - base + s * self.horizon > 0
        )
        unit = max(min(slopes) / 2**24, largest / 2**52)
        rows = [
            (math.floor(s / unit), math.floor((p - base) / unit), index) for p, s, index in lines
        ]
        return base, unit, rows

    def finish(self) -> LevelExpression:
        """Scale to integers: by the common unit of the coefficients where there is one, else
        rounding."""
        parts = [part for part in self.parts if part[0]]
        offset = math.fsum(self.certain)
        if not parts:
            return LevelExpression(0, offset, 1.0, True)
        total = math.fsum(abs(coefficient) * largest for coefficient, _, largest in parts) or 1.0
        alike = len({abs(coefficient) for coefficient, _, _ in parts}) == 1
        unit = Fraction(abs(parts[0][0])) if alike else _common_unit([abs(c) for c, _, _ in parts])
        exact = self.exact
        if unit is None or total / unit > ROUNDED:
            unit, exact = Fraction(total / ROUNDED), False
        scaled = [
            math.floor((Fraction(c) if alike else Fraction(repr(c))) / unit) for c, _, _ in parts
        ]
        expression: Any = cp_model.LinearExpr.weighted_sum(
            [variable for _, variable, _ in parts], scaled
        )
        return LevelExpression(expression, offset, float(unit), exact, off_grid=self.off_grid)


def _common_unit(coefficients: Sequence[float]) -> Fraction | None:
    """Return the greatest common divisor of decimal numbers; None where it is too fine to be of
    use."""
    unit = Fraction(0)
    for coefficient in filter(None, coefficients):
        c = Fraction(repr(coefficient))
        unit = Fraction(
            math.gcd(unit.numerator * c.denominator, c.numerator * unit.denominator),
            unit.denominator * c.denominator,
        )
        if unit.denominator > 10**15:
            return None
    return unit or None
