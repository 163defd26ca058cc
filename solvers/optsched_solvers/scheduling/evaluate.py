"""The objective of a schedule, from arrays: for searches that compare thousands of them."""

import math

import numpy as np
import numpy.typing as npt

from optsched.bounds.yardstick import yardsticks
from optsched.objectives import LATE_TOLERANCE_S, Shape, Term, job_cost, quantile_rank

from .problem import Problem, Schedule

Floats = npt.NDArray[np.float64]


class Evaluator:
    """Values of every level of a problem's objective, as `objectives.values` computes them from a
    plan."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.yardsticks = yardsticks(problem.instance, problem.objective, any_plan=False)
        self._levels = [
            [
                (weight, term, None if term.over == "segments" else _Costs(problem, term))
                for weight, term in level
            ]
            for level in problem.objective.levels
        ]

    def ends_s(self, schedule: Schedule) -> Floats:
        """Completion of every activity in seconds."""
        problem = self.problem
        return np.array(
            [
                problem.end_s(activity, choice)
                for activity, choice in zip(problem.activities, schedule, strict=True)
            ]
        )

    def values(self, schedule: Schedule) -> tuple[float, ...]:
        """Value of each level."""
        ends_s = self.ends_s(schedule)
        return tuple(
            math.fsum(
                weight * (self._segments(term, schedule) if costs is None else costs.total(ends_s))
                for weight, term, costs in level
            )
            for level in self._levels
        )

    def job_costs(self, schedule: Schedule) -> Floats:
        """What each activity adds to the first level's sums, or costs under its maxima: who is
        worth moving."""
        ends_s = self.ends_s(schedule)
        total = np.zeros(len(schedule))
        for weight, _, costs in self._levels[0]:
            if costs is not None:
                total[costs.which] += weight * costs.each(ends_s)
        return total

    def _segments(self, term: Term, schedule: Schedule) -> float:
        return math.fsum(
            self.problem.segment_cost(term, activity, choice.alternative, choice.split)
            for activity, choice in zip(self.problem.activities, schedule, strict=True)
        )


class _Costs:
    """Job costs of one term as arrays over the activities that count."""

    def __init__(self, problem: Problem, term: Term) -> None:
        self.term = term
        found = [
            (a.index, cost)
            for a in problem.activities
            if (cost := job_cost(term, problem.instance, a.job)) is not None
        ]
        self.which = np.array([index for index, _ in found], dtype=np.int64)
        self.scale = np.array([cost.scale for _, cost in found])
        self.origin_s = np.array([cost.origin_s for _, cost in found])
        self.shape: Shape = found[0][1].shape if found else "linear"

    def each(self, ends_s: Floats) -> Floats:
        late_s: Floats = ends_s[self.which] - self.origin_s
        if self.shape == "positive":
            late_s = np.maximum(late_s, 0.0)
        elif self.shape == "late":
            late_s = (late_s > LATE_TOLERANCE_S).astype(np.float64)
        elif self.shape == "inverse":
            late_s = -1.0 / late_s
        costs: Floats = self.scale * late_s
        return costs

    def total(self, ends_s: Floats) -> float:
        if not len(self.which):
            return 0.0
        costs = self.each(ends_s)
        if self.term.over == "sum":
            return math.fsum(costs.tolist())
        if self.term.over == "max":
            return float(costs.max())
        return float(np.sort(costs)[quantile_rank(self.term, len(costs)) - 1])
