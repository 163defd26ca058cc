"""The objective of a schedule, from arrays: for searches that compare thousands of them."""

import math

import numpy as np
import numpy.typing as npt

from optsched.bounds.yardstick import yardsticks
from optsched.objectives import Usage

from .problem import Problem, Schedule

Floats = npt.NDArray[np.float64]


class Evaluator:
    """Values of every level of a problem's objective, as `objectives.values` computes them from a
    plan."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        instance = problem.instance
        self.yardsticks = yardsticks(instance, problem.objective, any_plan=False)
        self._usage = [
            [(weight, term) for weight, term in level if isinstance(term, Usage)]
            for level in problem.objective.levels
        ]
        self._of_jobs = [
            [
                (weight, term, *term.costs(instance, instance.jobs))
                for weight, term in level
                if not isinstance(term, Usage)
            ]
            for level in problem.objective.levels
        ]

    def ends_s(self, schedule: Schedule) -> Floats:
        """Return the completion of every activity in seconds."""
        return np.array(list(map(self.problem.end_s, self.problem.activities, schedule)))

    def values(self, schedule: Schedule) -> tuple[float, ...]:
        """Return the value of each level."""
        return self._values(self.ends_s(schedule), schedule)

    def values_at(self, ends_s: Floats) -> tuple[float, ...]:
        """Return the value of each level by completions alone: of no use of anything."""
        assert not any(self._usage)
        return self._values(ends_s, [])

    def _values(self, ends_s: Floats, schedule: Schedule) -> tuple[float, ...]:
        return tuple(
            math.fsum(
                [
                    *(weight * self._used(term, schedule) for weight, term in usage),
                    *(
                        weight * term.combine(cost.at(ends_s[which]).tolist())
                        for weight, term, which, cost in of_jobs
                    ),
                ]
            )
            for usage, of_jobs in zip(self._usage, self._of_jobs, strict=True)
        )

    def _used(self, term: Usage, schedule: Schedule) -> float:
        return math.fsum(
            self.problem.usage(
                term,
                activity,
                choice.alternative,
                choice.start * self.problem.tick.length_s,
                choice.split,
            )
            for activity, choice in zip(self.problem.activities, schedule, strict=True)
        )
