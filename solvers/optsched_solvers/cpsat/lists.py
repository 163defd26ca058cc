"""Schedules in the code of local search: priority lists, decoded by serial schedule generation."""

import math
from itertools import compress, count
from operator import ne

from optsched.frozen import record

from ..scheduling.evaluate import Evaluator
from ..scheduling.problem import Activity, Choice, Problem, Schedule
from ..scheduling.schedule_generation import (
    Partial,
    generate,
    preempted_in,
    serial_order,
    starts_that_matter,
)
from .clock import Budget

WORK_PER_JOB = 1e-5
"""Work of decoding one job, in CP-SAT's unit of work."""
STOPS = 16
"""Schedules in the making that are remembered of each list."""
JOBS_PER_STOP = 0.015
"""Work of remembering one, for each job of the problem, relative to that of decoding it."""

Ways = dict[int, tuple[int, ...]]
"""The alternatives that some jobs are kept to."""


@record
class List:
    """The code of a schedule: priorities, GPU types, running jobs that are preempted, and
    ticks before which jobs do not start."""

    priority: list[float]
    ways: Ways
    preempted: frozenset[int]
    waits: dict[int, int]

    def alike(self, other: "List", order: list[int], others: list[int]) -> int:
        """Return how many of the first jobs of `order` stand so in the order of another list, too,
        kept to the same alternatives and waiting as long."""
        same = next(compress(count(), map(ne, order, others)), len(order))
        if self.ways is other.ways and self.waits is other.waits:
            return same
        for k, j in enumerate(order[:same]):
            if self.ways.get(j) != other.ways.get(j) or self.waits.get(j) != other.waits.get(j):
                return k
        return same

    def schedule(self, problem: Problem) -> Schedule | None:
        return generate(problem, self.priority, self.preempted, self.ways, not_before=self.waits)


def by_type(activity: Activity, gpu_type: str | None) -> tuple[int, ...]:
    """Return the alternatives of an activity on one GPU type."""
    return tuple(
        i
        for i, a in enumerate(activity.alternatives)
        if not a.fixed and a.mode.gpu_type == gpu_type
    )


def tiers(problem: Problem) -> list[int]:
    """Return the tier of the objective that each job is of, 0 the highest, or a higher one of those
    that wait for it."""
    tier = [problem.objective.tier(activity.job.priority) for activity in problem.activities]
    for activity in reversed(problem.in_order):
        for i in activity.before:
            tier[i] = min(tier[i], tier[activity.index])
    return tier


def by_tier(problem: Problem, order: list[float]) -> list[float]:
    """Return priorities in a list by which each tier comes after those above it; within one as
    `order` says."""
    tier = tiers(problem)
    if not any(tier):
        return order
    listed = sorted(range(len(order)), key=lambda j: (tier[j], order[j]))
    return [float(place) for _, place in sorted((j, k) for k, j in enumerate(listed))]


def list_of(problem: Problem, schedule: Schedule) -> List:
    """Return the list that rebuilds a schedule, or one near it."""

    def way(activity: Activity, choice: Choice) -> tuple[int, ...]:
        return by_type(activity, activity.alternatives[choice.alternative].mode.gpu_type)

    ways = {a.index: pick for a in problem.activities if (pick := way(a, schedule[a.index]))}
    return List(
        [float(choice.start) for choice in schedule],
        ways,
        preempted_in(problem, schedule),
        starts_that_matter(problem, schedule),
    )


@record
class Decoded:
    """A list with its schedule: `stops` are schedules in the making, each with the number of jobs
    of `order` that it has placed."""

    code: List
    order: list[int]
    stops: list[tuple[int, Partial]]
    schedule: Schedule

    def values(self, evaluator: Evaluator) -> tuple[float, ...]:
        """Return the value of each level."""
        return evaluator.values(self.schedule)


class Decoder:
    """Decodes lists that differ little from one that is kept, from where they differ."""

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self._problem, self._budget = problem, budget
        self._every = max(1, math.ceil(len(problem.activities) / STOPS))
        self.kept: Decoded | None = None
        self._latest: Decoded | None = None

    def decode(self, code: List, limit: float = math.inf) -> Decoded | None:
        """Return a list with its schedule; None if it has none. Values above `limit` are found
        out too."""
        self._count_stop()
        stops, order = self._shared_with_kept(code)
        first, partial = stops[-1][0], stops[-1][1].copy()
        for k in range(first, len(order)):
            if k % self._every == 0 and k > first:
                self._count_stop()
                stops.append((k, partial.copy()))
            self._budget.spend(WORK_PER_JOB)
            j = order[k]
            if not partial.place_first(j, code.ways.get(j), None, code.waits.get(j, 0)):
                return None
        schedule = partial.schedule()
        self._latest = None if schedule is None else Decoded(code, order, stops, schedule)
        return self._latest

    def keep(self) -> None:
        """Keep the list that was decoded last."""
        self.kept = self._latest

    def _shared_with_kept(self, code: List) -> tuple[list[tuple[int, Partial]], list[int]]:
        """Return the stops of the list kept that a list passes too, and its order."""
        kept = self.kept
        if kept is None or kept.code.preempted != code.preempted:
            start = Partial(self._problem, code.preempted)
            return [(0, start)], serial_order(self._problem, code.priority, start.found)
        order = serial_order(self._problem, code.priority, kept.stops[0][1].found)
        agrees = kept.code.alike(code, kept.order, order)
        return [stop for stop in kept.stops if stop[0] <= agrees], order

    def _count_stop(self) -> None:
        self._budget.spend(WORK_PER_JOB * JOBS_PER_STOP * len(self._problem.activities))
