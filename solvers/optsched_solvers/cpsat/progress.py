"""The best schedule of a search so far."""

from dataclasses import dataclass, field

from optsched.engine.incumbent import is_better
from optsched.plugins.solver import Report

from ..scheduling.evaluate import Evaluator
from ..scheduling.plans import plan_of
from ..scheduling.problem import Problem, Schedule
from .clock import Budget


@dataclass(slots=True)
class Progress:
    """The results of one solve so far: the best schedule so far and its values, and the bounds that
    are `proved` of levels; `offer` reports what improves it. With `certify` certificates of bounds
    are reported too."""

    problem: Problem
    evaluator: Evaluator
    report: Report
    budget: Budget
    schedule: Schedule | None = None
    values: tuple[float, ...] = ()
    proved: dict[int, float] = field(default_factory=dict)
    certify: bool = False

    def offer(self, schedule: Schedule | None, values: tuple[float, ...] | None = None) -> bool:
        """Keep and report `schedule`, of these `values` if they are known, if it is better."""
        if schedule is None:
            return False
        values = values or self.evaluator.values(schedule)
        if not self.is_improved_by(values):
            return False
        self.schedule, self.values = schedule, values
        self.report.plan(plan_of(self.problem, schedule))
        return True

    def is_improved_by(self, values: tuple[float, ...]) -> bool:
        """Return whether a schedule of these values is better than the best so far."""
        return self.schedule is None or is_better(values, self.values, self.evaluator.yardsticks)
