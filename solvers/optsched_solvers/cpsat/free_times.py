"""Quick decoding of priority lists, where nothing but GPUs can run short.

What is known of a node is when each of its GPUs becomes free, and the gaps that gangs leave before
them. A gang on one node does not combine gaps; but for that, and ties, jobs are placed as by
`schedule_generation`, in a fraction of its time: by compiled code (`placing`), for which all ways
of all jobs are laid out as numbers here.
"""

from math import ceil, inf
from typing import TYPE_CHECKING

import numpy as np

from optsched.objectives import Usage

from ..scheduling.evaluate import Evaluator
from ..scheduling.problem import Activity, Choice, Problem, Schedule
from ..scheduling.schedule_generation import canonical
from .clock import Budget
from .lists import List, Ways

if TYPE_CHECKING:
    from .layout import Chart
    from .placing import Coded, Ints, Walk

WORK_PER_JOB = 4e-7
"""Work of decoding one job, in CP-SAT's unit of work."""
STOPS = 64
"""States that are remembered of each list."""
MOST_GAPS = 64
"""Gaps for which there is room at first; there may be any number."""
MOST_TICKS = 2**60
"""All that is to run, one after the other, must end before: sums of ticks are 64-bit integers."""


def applies(problem: Problem) -> bool:
    """Return whether nothing but GPUs can run short, and no job gains by waiting."""
    return not (
        problem.partner
        or problem.windows
        or problem.changes_s
        or problem.instance.cluster.budgets
        or any(row is not None for row in (*problem.table.cores, *problem.table.memory))
        or any(isinstance(term, Usage) for term in problem.objective.terms)
    ) and (
        sum(_longest(activity) for activity in problem.activities) < MOST_TICKS
        and all(_is_known(problem, activity) for activity in problem.activities)
    )


def _longest(activity: Activity) -> int:
    """Return the most ticks that a job may take, its release and a checkpoint before it."""
    held = 0 if activity.hold is None else activity.hold.up
    return activity.release_up + held + max(a.up for a in activity.alternatives)


def _is_known(problem: Problem, activity: Activity) -> bool:
    """Return whether each alternative takes GPUs of whole sets of nodes and nothing else."""
    nodes = problem.instance.cluster.nodes
    return not activity.before and all(
        a.mode.gpus > 0
        and not a.shared
        and (a.fixed or all(most >= min(a.mode.gpus, nodes[n].gpus) for n, most in a.rooms))
        for a in activity.alternatives
    )


class Decoded:
    """A list with its schedule. `parts` are by GPU type where all jobs are kept to one, else one of
    them has all; `ends_s` are the completions."""

    def __init__(self, problem: Problem, code: List, chart: "Chart", made: "Coded") -> None:
        self._problem, self.code = problem, code
        types = (*chart.types, None)
        self.parts = [types[part] for part in np.flatnonzero(made.parts[:, 0])]
        self.ends_s = made.ends_s.copy()
        self._which, self._jobs = chart.which, made.jobs.copy()
        self._split_at, self._splits = chart.layout.jobs[:, -1], made.splits.copy()

    def values(self, evaluator: Evaluator) -> tuple[float, ...]:
        """Return the value of each level."""
        return evaluator.values_at(self.ends_s)

    @property
    def schedule(self) -> Schedule:
        """Return the schedule."""
        activities = self._problem.activities
        return [canonical(self._problem, a, self._choice(a)) for a in activities]

    def _choice(self, activity: Activity) -> Choice:
        start, way, pieces = self._jobs[activity.index, -3:].tolist()
        if way < 0:
            return activity.stays(alone=False)
        at = self._split_at[activity.index]
        split = self._splits[at : at + 2 * pieces].tolist()
        return Choice(self._which[way], start, tuple(zip(split[::2], split[1::2], strict=True)))


class FreeTimes:
    """Decodes lists that differ little from one that is kept, from where they differ."""

    def __init__(self, problem: Problem, budget: Budget, work_per_job: float) -> None:
        from . import placing  # with what compiles it, which takes time to load
        from .layout import Chart, value_of

        self._problem, self._budget, self._placing = problem, budget, placing
        self._evaluator = Evaluator(problem)
        self._chart, self._value = Chart(problem), value_of(problem)
        self._lists = self._chart.lists(STOPS, work_per_job)
        self._free, self._stops = self._chart.free(MOST_GAPS, STOPS)
        self._every = max(1, ceil(len(problem.activities) / STOPS))
        self._kinds: tuple[Ways | None, Ints] = None, self._chart.kinds
        self._placed: tuple[frozenset[int] | None, Ints, Ints] = None, *2 * (self._chart.kinds,)
        self._latest: Decoded | None = None
        self._walk: Walk
        self.kept: Decoded | None = None

    @property
    def was_compiled(self) -> bool:
        """Return whether what decodes was compiled in this process, and not read."""
        from .compiled import was_compiled

        return was_compiled(self._placing.decode, self._placing.walk_on)

    def decode(self, code: List, limit: float = inf) -> Decoded | None:
        """Return a list with its schedule; None if it has none.

        None too, mostly, where the value of its last level would be above `limit`: as soon as that
        is so with the jobs that are not placed yet where the list kept has them.
        """
        placing, budget, work = self._placing, self._budget, self._lists.work
        self._write(code)
        done = placing.FULL
        while done == placing.FULL:
            work[0] = budget.work or 0.0
            known = self._chart.layout, self._value, self._free, self._stops, self._lists
            if (done := placing.decode(*known, self._every, limit)) == placing.FULL:
                self._free, self._stops = self._chart.with_more_gaps(self._free, self._stops)
        if budget.work is not None:
            budget.work = float(work[0])
        self._latest = None
        if done == placing.DONE:
            self._latest = Decoded(self._problem, code, self._chart, self._lists.made)
        return self._latest

    def keep(self) -> None:
        """Keep the list that was decoded last."""
        kept, made = self._lists.kept, self._lists.made
        self._placing.release(self._stops, kept, made, kept)
        self._lists = self._lists._replace(kept=made, made=kept)
        self.kept = self._latest

    def set_out(
        self,
        choices: list[list[tuple[int, ...]]],
        often: list[float],
        movable: list[int],
        shares: tuple[float, float, float],
        best: float,
        seed: int,
    ) -> None:
        """Begin a walk from the list kept on, in which jobs may be kept to some of their
        `choices`; of all lists before, `best` is the least value; see `placing.Walk`."""
        assert self.kept is not None
        self._write(self.kept.code)  # for the jobs that are listed, in their order
        listed, jobs = self._lists.listed, len(often)
        order = np.zeros((2, jobs), np.int64)
        order[0, : len(listed)] = listed
        value = self.kept.values(self._evaluator)[-1]
        self._kept_to = self._chart.kept_to()
        self._walk = self._placing.Walk(
            order,
            np.array((len(listed), 0)),
            np.argsort(np.argsort(np.array(self.kept.code.priority), kind="stable")),
            *self._chart.kinds_to_choose(choices),
            np.array(often),
            np.array(movable, np.int64),
            np.array(shares),
            np.array((value, best)),
            np.array((seed,), np.uint64),
        )

    def walk_on(self, steps: int, least_work: float, certain: float, cool: float) -> bool:
        """Go on for so many steps, at most until a list is kept that is better than all before;
        return whether one is; see `placing.walk_on`."""
        placing, budget, work = self._placing, self._budget, self._lists.work
        work[0] = inf if budget.work is None else budget.work
        known = self._chart.layout, self._value, self._free, self._stops, self._lists
        limits = steps, least_work, certain, cool
        done, turned = placing.walk_on(*known, self._every, self._walk, *limits)
        if budget.work is not None:
            budget.work = float(work[0])
        if turned:
            kept, made = self._lists.kept, self._lists.made
            self._lists = self._lists._replace(kept=made, made=kept)
        if done == placing.FULL:
            self._free, self._stops = self._chart.with_more_gaps(self._free, self._stops)
        return bool(done == placing.DONE)

    def arrive(self) -> Decoded:
        """Return the list that is kept after a walk, with its schedule."""
        assert self.kept is not None
        walk, jobs, placing = self._walk, self._lists.kept.jobs, self._placing
        priority = walk.places.astype(np.float64)
        listed = walk.order[0, : walk.counts[0]]
        priority[listed] = np.arange(len(listed))
        kept_to = self._kept_to
        kinds = enumerate(jobs[:, placing.KIND].tolist())
        code = List(
            priority.tolist(),
            {j: kept_to[kind] for j, kind in kinds if kind in kept_to},
            frozenset(np.flatnonzero(jobs[:, placing.LEAVES]).tolist()),
            self.kept.code.waits,
        )
        self.kept = Decoded(self._problem, code, self._chart, self._lists.kept)
        return self.kept

    def _write(self, code: List) -> None:
        """Write a list that is to be decoded; what it shares with the one before is known."""
        placing, chart, jobs = self._placing, self._chart, self._lists.made.jobs
        ways, kinds = self._kinds
        if ways is not code.ways:
            kinds = chart.kinds.copy()
            kinds[list(code.ways)] = chart.kinds_of(code.ways)
            self._kinds = code.ways, kinds
        jobs[:, placing.KIND] = kinds
        jobs[:, placing.WAIT] = 0
        for j, wait in code.waits.items():
            jobs[j, placing.WAIT] = wait
        preempted, leaves, listed = self._placed
        if preempted is not code.preempted:
            leaves = np.zeros(len(jobs), dtype=np.int64)
            leaves[list(code.preempted)] = 1
            listed = np.flatnonzero((chart.layout.jobs[:, placing.STAYS] < 0) | (leaves == 1))
            self._placed = code.preempted, leaves, listed
        jobs[:, placing.LEAVES] = leaves
        order = np.argsort(np.array(code.priority)[listed], kind="stable")
        self._lists = self._lists._replace(listed=listed[order])
