"""Objectives as integer expressions of CP-SAT.

Each level becomes an integer expression I with a map to the objective's value such that value(I) is never above the
true value of the schedule: coefficients are exact where a common unit exists, else rounded so that a bound on I gives
a valid bound on the value. Nothing is lost silently: `exact` says which of the two it is.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ortools.sat.python import cp_model

from optsched.objectives import LATE_TOLERANCE_S, JobCost, Term, fastest_s, job_cost, quantile_rank

from .model import Model

LARGEST = 2**50
"""Objective values stay below this, so that sums and products fit CP-SAT's 64 bits and a double is exact."""

ROUNDED = 2**58
"""Largest objective value where coefficients have no common unit: far finer than the variables they multiply."""

INVERSE_STEPS = 10**7
"""Resolution of a normalised rate."""


@dataclass(frozen=True, slots=True)
class LevelExpression:
    """`expression` is minimised; `value` maps an integer bound on it to a bound on the objective's value."""

    expression: Any
    value: Callable[[float], float]
    exact: bool


def build(model: Model, level: Sequence[tuple[float, Term]]) -> LevelExpression:
    """One level of the objective over the variables of `model`."""
    problem = model.problem
    builder = _Builder(model)
    if len(level) == 1 and level[0][1].name == "maxmin":
        stretches = [(JobCost(1.0 / fastest_s(problem.instance, a.job), a.job.submit_s), a.index)
                     for a in problem.activities]
        builder.maximum(stretches, 1.0, len(stretches))
        inner, weight = builder.finish(), level[0][0]
        return LevelExpression(
            inner.expression,
            lambda bound: -weight / inner.value(bound) if inner.value(bound) > 0 else -math.inf,
            inner.exact,
        )
    for weight, term in level:
        builder.add(weight, term)
    return builder.finish()


class _Builder:
    """Collects (coefficient, variable) pairs of a level in the objective's own unit, then scales them to integers."""

    def __init__(self, model: Model) -> None:
        self.model, self.problem, self.horizon = model.cp, model.problem, model.horizon
        self.ends, self.chosen, self.on_node = model.end, model.chosen, model.on_node()
        self.tick_s = self.problem.tick.length_s
        self.offset = 0.0
        self.parts: list[tuple[float, Any, int]] = []
        self.exact = self.problem.tick.exact

    def add(self, weight: float, term: Term) -> None:
        """Add `weight` times a term."""
        if term.over == "segments":
            for activity in self.problem.activities:
                for i, literal in enumerate(self.chosen[activity.index]):
                    held = weight * self.problem.segment_cost(term, activity, i)
                    if held:
                        self.parts.append((held, literal, 1))
            self._add_dearer_nodes(weight, term)
            return
        costs: list[tuple[JobCost, int]] = []
        for activity in self.problem.activities:
            cost = job_cost(term, self.problem.instance, activity.job)
            if cost is not None and cost.scale:
                costs.append((cost, activity.index))
        if term.over == "sum":
            for cost, index in costs:
                self._sum(weight, cost, index)
        elif costs:
            rank = quantile_rank(term, len(costs)) if term.over == "quantile" else len(costs)
            self.maximum(costs, weight, rank)

    def _add_dearer_nodes(self, weight: float, term: Term) -> None:
        """What a choice of nodes costs above the cheapest."""
        for (j, a, n), (variable, gpus) in self.on_node.items():
            activity = self.problem.activities[j]
            chosen = activity.alternatives[a]
            cheapest = min(self.problem.gpu_cost_per_s(term, activity, chosen.mode, m) for m, _ in chosen.rooms)
            more = self.problem.gpu_cost_per_s(term, activity, chosen.mode, n) - cheapest
            if more > 0:
                self.parts.append((weight * more * chosen.seconds * gpus, variable, chosen.mode.gpus))

    def _late_ticks(self, cost: JobCost) -> int:
        """First tick that is not before the cost's origin."""
        return self.problem.tick.ceil(cost.origin_s - self.problem.instance.now_s)

    def _sum(self, weight: float, cost: JobCost, index: int) -> None:
        end, scale = self.ends[index], weight * cost.scale
        since = cost.origin_s - self.problem.instance.now_s
        if cost.shape == "linear":
            self.offset -= scale * since
            self.parts.append((scale * self.tick_s, end, self.horizon))
        elif cost.shape == "positive":
            late = self.model.new_int_var(0, self.horizon, "")
            self.model.add(late >= end - self._late_ticks(cost))
            self.exact = self.exact and self._on_grid(since)
            self.parts.append((scale * self.tick_s, late, self.horizon))
        elif cost.shape == "late":
            missed = self.model.new_bool_var("")
            in_time = self.problem.tick.floor(since + LATE_TOLERANCE_S)
            self.model.add(end <= in_time).only_enforce_if(~missed)
            self.parts.append((scale, missed, 1))
        else:
            length = self.model.new_int_var(1, self.horizon + self.problem.tick.ceil(abs(since)) + 1, "")
            self.model.add(length >= end - self.problem.tick.ceil(since))
            most = math.ceil(INVERSE_STEPS * abs(scale) / self.tick_s)
            rate = self.model.new_int_var(0, most, "")
            self.model.add_division_equality(rate, most, length)
            self.offset -= 1 / INVERSE_STEPS
            self.parts.append((-1 / INVERSE_STEPS, rate, most))
            self.exact = False

    def _on_grid(self, seconds: float) -> bool:
        return self.problem.tick.floor(seconds) == self.problem.tick.ceil(seconds)

    def maximum(self, costs: Sequence[tuple[JobCost, int]], weight: float, rank: int) -> None:
        """weight x the rank-th smallest job cost (the maximum where rank is the number of jobs)."""
        model, now_s = self.model, self.problem.instance.now_s
        scales = {cost.scale for cost, _ in costs}
        if len(scales) == 1 and all(self._on_grid(cost.origin_s - now_s) for cost, _ in costs):
            unit = scales.pop() * self.tick_s
            rows = [(1, -self._late_ticks(cost), index) for cost, index in costs]
        else:
            largest = max(
                abs(cost.scale) * (self.horizon * self.tick_s + abs(now_s - cost.origin_s)) for cost, _ in costs
            )
            unit = max(min(scales) * self.tick_s / 2**24, largest / 2**52)
            rows = [
                (math.floor(cost.scale * self.tick_s / unit), math.floor(cost.scale * (now_s - cost.origin_s) / unit),
                 index)
                for cost, index in costs
            ]
            self.exact = False
        low = min(shift for _, shift, _ in rows)
        high = max(slope * self.horizon + shift for slope, shift, _ in rows)
        top = model.new_int_var(min(low, 0), max(high, 1), "")
        keeps = []
        for slope, shift, index in rows:
            row = model.add(top >= slope * self.ends[index] + shift)
            if rank < len(rows):
                keep = model.new_bool_var("")
                row.only_enforce_if(keep)
                keeps.append(keep)
        if keeps:
            model.add(sum(keeps) >= rank)
        self.parts.append((weight * unit, top, max(abs(low), abs(high), 1)))

    def finish(self) -> LevelExpression:
        """Scale to integers: by the common unit of the coefficients where there is one, else rounding."""
        parts = [part for part in self.parts if part[0]]
        if not parts:
            return LevelExpression(0, lambda bound: self.offset, True)
        total = math.fsum(abs(coefficient) * largest for coefficient, _, largest in parts) or 1.0
        alike = len({abs(coefficient) for coefficient, _, _ in parts}) == 1
        unit = Fraction(abs(parts[0][0])) if alike else _common_unit([abs(c) for c, _, _ in parts])
        exact = self.exact
        if unit is None or total / unit > (ROUNDED if alike else LARGEST):
            unit, exact = Fraction(total / ROUNDED), False
        unit_value = float(unit)
        scaled = [math.floor((Fraction(c) if alike else Fraction(repr(c))) / unit) for c, _, _ in parts]
        expression: Any = cp_model.LinearExpr.weighted_sum([variable for _, variable, _ in parts], scaled)
        offset = self.offset
        return LevelExpression(expression, lambda bound: offset + unit_value * bound, exact)


def _common_unit(coefficients: Sequence[float]) -> Fraction | None:
    """Greatest common divisor of decimal numbers; None where it is too fine to be of use."""
    unit = Fraction(0)
    for coefficient in coefficients:
        if coefficient:
            unit = _gcd(unit, Fraction(repr(coefficient)))
            if unit.denominator > 10**15:
                return None
    return unit or None


def _gcd(a: Fraction, b: Fraction) -> Fraction:
    common = a.denominator * b.denominator // math.gcd(a.denominator, b.denominator)
    return Fraction(
        math.gcd(a.numerator * (common // a.denominator), b.numerator * (common // b.denominator)), common
    )
