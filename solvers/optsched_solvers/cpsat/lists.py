"""Schedules in the code of local search: priority lists, decoded by serial schedule generation."""

from optsched.frozen import record

from ..scheduling.evaluate import Evaluator
from ..scheduling.problem import Activity, Choice, Problem, Schedule
from ..scheduling.schedule_generation import Partial, generate, preempted_in, starts_that_matter
from .clock import Budget

WORK_PER_JOB = 1e-5
"""Work of decoding one job, in CP-SAT's unit of work."""
STOPS = 16
"""So often a schedule in the making is remembered, and given up if it is too bad."""

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

    def schedule(self, problem: Problem) -> Schedule | None:
        return generate(problem, self.priority, self.preempted, self.ways, not_before=self.waits)


def by_type(activity: Activity, gpu_type: str | None) -> tuple[int, ...]:
    """Return the alternatives of an activity on one GPU type."""
    return tuple(
        i
        for i, a in enumerate(activity.alternatives)
        if not a.fixed and a.mode.gpu_type == gpu_type
    )


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
    of `order` that it has taken."""

    code: List
    order: list[int]
    stops: list[tuple[int, Partial]]
    schedule: Schedule

    def agrees_until(self, code: List, order: list[int]) -> int:
        """Return how many of the first jobs of another list are decoded as in this one."""
        if code.preempted != self.code.preempted:
            return 0
        own = self.code
        for k, (i, j) in enumerate(zip(self.order, order, strict=True)):
            if i != j or (
                own.ways.get(j) != code.ways.get(j) or own.waits.get(j) != code.waits.get(j)
            ):
                return k
        return len(order)


class Decoder:
    """Decodes lists that differ little from one that is kept, from where they differ."""

    def __init__(self, problem: Problem, evaluator: Evaluator, budget: Budget) -> None:
        self._problem, self._evaluator, self._budget = problem, evaluator, budget
        self._has_precedence = any(activity.before for activity in problem.activities)
        self.kept: Decoded | None = None

    def decode(self, code: List, limit: float) -> Decoded | None:
        """Return a list with its schedule; None if there is none, or if its jobs so far together
        with the others as in the list kept cost more than `limit`."""
        if self._has_precedence:
            self._budget.spend(WORK_PER_JOB * len(code.priority))
            schedule = code.schedule(self._problem)
            return None if schedule is None else Decoded(code, [], [], schedule)
        order = sorted(range(len(code.priority)), key=code.priority.__getitem__)
        agrees = 0 if self.kept is None else self.kept.agrees_until(code, order)
        stops = [] if self.kept is None else [s for s in self.kept.stops if s[0] <= agrees]
        if agrees == 0 or not stops:
            stops = [(0, Partial(self._problem, code.preempted))]
        first, partial = stops[-1][0], stops[-1][1].copy()
        every = max(1, len(order) // STOPS)
        for k in range(first, len(order)):
            if k % every == 0 and k > first:
                if self._costs(partial) > limit:
                    self._budget.spend(WORK_PER_JOB * (k - first))
                    return None
                stops.append((k, partial.copy()))
            if not self._place(partial, code, order[k]):
                return None
        self._budget.spend(WORK_PER_JOB * (len(order) - first))
        schedule = partial.schedule()
        return None if schedule is None else Decoded(code, order, stops, schedule)

    def _place(self, partial: Partial, code: List, j: int) -> bool:
        activity = self._problem.activities[j]
        if j in partial.found:
            return True
        ways = code.ways.get(j, range(len(activity.alternatives)))
        choice = partial.first_to_complete(activity, ways, None, code.waits.get(j, 0))
        if choice is not None:
            partial.place(activity, choice)
        return choice is not None

    def _costs(self, partial: Partial) -> float:
        """Return the value with the jobs that are not placed yet as in the list kept."""
        if self.kept is None:
            return 0.0
        choices = [partial.found.get(j, choice) for j, choice in enumerate(self.kept.schedule)]
        return self._evaluator.values(choices)[0]
