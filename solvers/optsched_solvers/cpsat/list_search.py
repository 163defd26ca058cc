"""Local search over priority lists: each list is decoded to real nodes by serial schedule
generation.

Every neighbour shifts all that follows, which fixing jobs in place (as `neighbourhood` does)
cannot. Accepted by simulated annealing (Kirkpatrick et al., Science 220, 1983) with a temperature
that falls with the budget.
"""

import math
import random

from ..scheduling.problem import Activity, Choice, Problem, Schedule
from ..scheduling.schedule_generation import generate
from .clock import Budget
from .direct import Incumbent

WORK_PER_JOB = 1e-5
"""What decoding one job counts for, in CP-SAT's unit of work."""
TEMPERATURE = 2e-4
"""First temperature, relative to what can be changed of the value."""

Ways = dict[int, tuple[int, ...]]


def by_type(activity: Activity, gpu_type: str | None) -> tuple[int, ...]:
    """The alternatives of an activity on one GPU type."""
    return tuple(
        i
        for i, a in enumerate(activity.alternatives)
        if a.fixed is None and a.mode.gpu_type == gpu_type
    )


class ListSearch:
    """Improves a priority list and the GPU types jobs are kept to."""

    def __init__(
        self,
        problem: Problem,
        incumbent: Incumbent,
        budget: Budget,
        priority: list[float],
        ways: Ways,
        preempted: frozenset[int],
    ) -> None:
        self.problem, self.incumbent, self.budget = problem, incumbent, budget
        self.priority, self.ways, self.preempted = priority, ways, preempted
        self.rng = random.Random(budget.seed + 1)
        self.value = math.inf
        self._decode_and_keep(priority, ways, preempted, 0.0)

    def run(self, until: float, rounds: int | None = None) -> None:
        """Search until `until` of the budget is left, or for so many neighbours."""
        begun = self.budget.fraction_left()
        certain = self.incumbent.evaluator.yardsticks[0].certain
        done = 0
        while (left := self.budget.fraction_left()) > until and (rounds is None or done < rounds):
            done += 1
            cool = max(0.0, (left - until) / max(begun - until, 1e-9)) ** 2
            self._step(max(0.0, self.value - certain) * TEMPERATURE * cool)

    def _step(self, temperature: float) -> None:
        priority, ways, preempted = self.priority, self.ways, self.preempted
        draw = self.rng.random()
        if draw < 0.5:
            priority = self._moved()
        elif draw < 0.8:
            priority = self._swapped()
        else:
            ways, preempted = self._other_way()
        self._decode_and_keep(priority, ways, preempted, temperature)

    def _decode_and_keep(
        self, priority: list[float], ways: Ways, preempted: frozenset[int], temperature: float
    ) -> None:
        self.budget.spend(WORK_PER_JOB * len(priority))
        schedule = generate(self.problem, priority, preempted, ways)
        if schedule is None:
            return
        values = self.incumbent.evaluator.values(schedule)
        worse = values[0] - self.value
        if worse <= 0 or (temperature > 0 and self.rng.random() < math.exp(-worse / temperature)):
            self.priority, self.ways, self.preempted, self.value = (
                priority,
                ways,
                preempted,
                values[0],
            )
        self.incumbent.offer(schedule)

    def _moved(self) -> list[float]:
        """One job just before or after another."""
        priority = list(self.priority)
        i, j = self.rng.randrange(len(priority)), self.rng.randrange(len(priority))
        priority[i] = priority[j] + self.rng.choice((-1, 1)) * self.rng.random() * 1e-3
        return priority

    def _swapped(self) -> list[float]:
        """Two jobs near each other in the list trade places."""
        priority = list(self.priority)
        i = self.rng.randrange(len(priority))
        near = sorted(range(len(priority)), key=lambda k: (abs(priority[k] - priority[i]), k))[1:12]
        if near:
            j = self.rng.choice(near)
            priority[i], priority[j] = priority[j], priority[i]
        return priority

    def _other_way(self) -> tuple[Ways, frozenset[int]]:
        """One job kept to another GPU type, to none, or a running one preempted or left to
        continue."""
        activity = self.problem.activities[self.rng.randrange(len(self.priority))]
        j = activity.index
        if activity.hold is not None and self.rng.random() < 0.5:
            return self.ways, self.preempted ^ {j}
        types = sorted(
            {
                a.mode.gpu_type or ""
                for a in activity.alternatives
                if a.fixed is None and a.mode.gpus
            }
        )
        ways = dict(self.ways)
        if len(types) < 2 or self.rng.random() < 0.3:
            ways.pop(j, None)
        else:
            ways[j] = by_type(activity, self.rng.choice(types) or None)
        return ways, self.preempted


def preempted_in(problem: Problem, schedule: Schedule) -> frozenset[int]:
    """Running jobs that a schedule preempts."""
    return frozenset(
        a.index
        for a in problem.activities
        if a.hold is not None and schedule[a.index].alternative > 0
    )


def list_of(problem: Problem, schedule: Schedule) -> tuple[list[float], Ways]:
    """Priorities and GPU types that rebuild a schedule, or one near it."""

    def way(activity: Activity, choice: Choice) -> tuple[int, ...]:
        return by_type(activity, activity.alternatives[choice.alternative].mode.gpu_type)

    ways = {a.index: found for a in problem.activities if (found := way(a, schedule[a.index]))}
    return [float(choice.start) for choice in schedule], ways
