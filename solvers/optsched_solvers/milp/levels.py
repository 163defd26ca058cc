"""Objectives over the time-indexed variables: a job's cost is a coefficient of its start."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import assert_never

from optsched.frozen import record
from optsched.objectives import JobCost, Level, RankOfJobs, SumOfJobs, Term, Usage

from ..native.highs import NOTHING
from .grid import Start
from .model import Expression, Model

LARGEST = 1e5
"""Coefficients that are not whole numbers are scaled to at most this, far above a solver's
tolerances."""


@record
class LevelModel:
    """`expression` is minimised; value of the level = `constant` + expression / `scale`.

    `whole` says that the expression takes only whole values at its optimum.
    """

    level: Level
    expression: Expression
    constant: float
    scale: float
    whole: bool

    def value(self, expression_value: float) -> float:
        """Return the level's value where the expression has this one."""
        return self.constant + expression_value / self.scale


def scale_of(coefficients: list[float]) -> float:
    """Return 1 where all are whole and not too large, else what makes the largest `LARGEST`."""
    largest = max((abs(c) for c in coefficients), default=0.0)
    if largest == 0.0 or (largest <= 1e7 and all(c == int(c) for c in coefficients)):
        return 1.0
    return LARGEST / max(largest, NOTHING)


def build_level(model: Model, level: Level, number: int) -> LevelModel:
    """Return the expression of a weighted sum of terms, with the rows that maxima and quantiles
    need."""
    parts: list[tuple[float, Expression]] = []
    constant = 0.0
    for i, (weight, term) in enumerate(level):
        least, expression, scale = _term(model, term, f"{number}_{i}")
        constant += weight * least
        parts.append((weight / scale, expression))
    total: Expression = {}
    for factor, expression in parts:
        for var, coefficient in expression.items():
            total[var] = total.get(var, 0.0) + factor * coefficient
    total = {var: coefficient for var, coefficient in total.items() if coefficient}
    if not total:
        # PuLP cannot change an empty objective later; one job's starts, which add up to 1, stand
        # in.
        total = dict.fromkeys((var for _, var in model.starts[0]), 1.0)
        constant -= 1.0
    scale = scale_of(list(total.values()))
    whole = scale == 1.0 and all(factor == int(factor) for factor, _ in parts)
    scaled = {var: coefficient * scale for var, coefficient in total.items()}
    return LevelModel(level, scaled, constant, scale, whole)


def _term(model: Model, term: Term, name: str) -> tuple[float, Expression, float]:
    """Return (least value, expression, scale): value of the term = least + expression / scale."""
    costs = _costs(model, term)
    if not costs:
        return 0.0, {}, 1.0
    least = [min(job_costs) for job_costs in costs.values()]
    match term:
        case SumOfJobs() | Usage():
            expression = {
                var: cost - low
                for (j, job_costs), low in zip(costs.items(), least, strict=True)
                for (_, var), cost in zip(model.starts[j], job_costs, strict=True)
            }
            return math.fsum(least), expression, 1.0
        case RankOfJobs():
            return _rank(model, term, name, costs, term.combine(least))
        case _:
            assert_never(term)


def _rank(
    model: Model, term: RankOfJobs, name: str, costs: dict[int, list[float]], low: float
) -> tuple[float, Expression, float]:
    """Return the same for a maximum or a quantile, which is at least `low`."""
    above = {j: [max(0.0, cost - low) for cost in job_costs] for j, job_costs in costs.items()}
    scale = scale_of([cost for job_costs in above.values() for cost in job_costs])
    top = model.continuous(f"top_{name}")
    spared: Expression = {}
    may_exceed = len(costs) - term.rank(len(costs))
    for j, job_costs in above.items():
        row = {
            var: cost * scale
            for (_, var), cost in zip(model.starts[j], job_costs, strict=True)
            if cost
        }
        if not row:
            continue
        largest = max(row.values())
        row[top] = -1.0
        if may_exceed:
            spared[exceeds := model.binary(f"exceeds_{name}_{len(spared)}")] = 1.0
            row[exceeds] = -largest
        model.add(row, "<=", 0.0)
    if spared:
        model.add(spared, "<=", may_exceed)
    return low, {top: 1.0}, scale


def _costs(model: Model, term: Term) -> dict[int, list[float]]:
    """Return the cost of each start of each job that counts, by index."""
    return {
        j: [cost(start) for start, _ in model.starts[j]] for j, cost in _by_job(model, term).items()
    }


def _by_job(model: Model, term: Term) -> dict[int, Callable[[Start], float]]:
    """Return what a start costs each job that counts, by index."""
    if isinstance(term, Usage):
        used = cache(partial(model.ways.usage, term))
        return dict.fromkeys(range(len(model.starts)), lambda start: used(start.way))

    def of_cost(cost: JobCost) -> Callable[[Start], float]:
        return lambda start: cost.at(start.completion_s)

    instance = model.ways.problem.instance
    costs = ((j, term.cost(instance, job)) for j, job in enumerate(instance.jobs))
    return {j: of_cost(cost) for j, cost in costs if cost is not None}


def level_of(model: Model, level: Level, chosen: Sequence[Start]) -> float:
    """Return the value of a level where each job takes the start chosen for it, without the
    solver's rounding."""
    return sum(
        weight * term.combine([cost(chosen[j]) for j, cost in _by_job(model, term).items()])
        for weight, term in level
    )
