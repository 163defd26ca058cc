"""Search for the least makespan by orders of jobs that are bred and justified, where all jobs draw
on one pool of each GPU type and on resources.

Each job is kept to the alternative that it has in the best schedule so far. What is found is put on
real nodes by serial schedule generation, in exact amounts.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from optsched.plugins.solver import SILENT

from ..scheduling.problem import Alternative, Problem
from ..scheduling.schedule_generation import generate
from . import beside
from .progress import Progress

if TYPE_CHECKING:
    from .placing import Ints

WORK_PER_JOB = 1.6e-8
"""Work of placing one job, in CP-SAT's unit of work: so much that counted work ends well before
the time limit on a slow machine."""
JOBS_IN_ORDERS, MOST_ORDERS, FEWEST_ORDERS = 60_000, 1_000, 40
"""How many jobs all orders have together, and how many orders there are."""
MOST_JOBS = 3_000
"""Of more jobs too few orders are bred."""
STEPS = 64
"""Most orders that are bred between looks at the budget."""
MOST_TICKS = 2**48
"""All that is to run, one after the other, must end before: ticks x jobs are 64-bit integers."""


def applies(problem: Problem) -> bool:
    """Return whether only the last end counts, no job runs now or gains by waiting, and nodes of a
    GPU type need not be told apart."""
    activities = problem.activities
    pools: dict[str | None, set[int]] = {}
    for n, gpu_type in enumerate(problem.node_types):
        pools.setdefault(gpu_type, set()).add(n)
    return (
        problem.objective.name == "makespan"
        and len(problem.objective.levels) == 1
        and 1 < len(activities) <= MOST_JOBS
        and not (problem.windows or problem.changes_s)
        and all(activity.running is None for activity in activities)
        and sum(a.release_up + max(o.up for o in a.alternatives) for a in activities) < MOST_TICKS
        and all(len(pool) == 1 or problem.is_one_pool(pool) for pool in pools.values())
    )


class Evolution:
    """Orders of the jobs of a search that has a schedule, and what they are bred from."""

    def __init__(self, progress: Progress) -> None:
        from . import justified  # with what compiles it, which takes time to load

        assert progress.schedule is not None
        self._justified, self._progress = justified, progress
        problem = progress.problem
        self._ways = {j: (choice.alternative,) for j, choice in enumerate(progress.schedule)}
        chosen = [
            activity.alternatives[choice.alternative]
            for activity, choice in zip(problem.activities, progress.schedule, strict=True)
        ]
        before = [activity.before for activity in problem.activities]
        after: list[list[int]] = [[] for _ in before]
        for j, own in enumerate(before):
            for i in own:
                after[i].append(j)
        self._project = justified.Project(
            np.array([alternative.up for alternative in chosen]),
            np.array([activity.release_up for activity in problem.activities]),
            *self._amounts(problem, chosen),
            *_linked(before),
            *_linked(after),
        )
        starts = [choice.start for choice in progress.schedule]
        position = {a.index: k for k, a in enumerate(problem.in_order)}
        self._first = np.array(sorted(position, key=lambda j: (starts[j], position[j])))
        self._set_out(0)

    @property
    def was_compiled(self) -> bool:
        """Return whether what breeds was compiled in this process, and not read."""
        from .compiled import was_compiled

        return was_compiled(self._justified.begin, self._justified.evolve)

    def run(self) -> None:
        """Breed until the budget is used up or the best schedule is proved: here and, with other
        random numbers, in a copy of this process for each other worker."""
        progress = self._progress

        def apart(number: int) -> tuple[float, ...]:
            progress.report = SILENT
            self._set_out(number)
            self._breed([])
            return tuple(self._population.best.tolist())

        with ExitStack() as on_end:
            copies = [
                on_end.enter_context(beside.Beside(partial(apart, number + 1)))
                for number in range(beside.most(progress.budget.workers))
            ]
            self._breed(copies)
            while copies and not self._is_closed():
                self._take(copies.pop())

    def _set_out(self, number: int) -> None:
        """Begin with the order of the best schedule so far, each copy in its own way."""
        justified, project = self._justified, self._project
        jobs, rows = project.needs.shape
        orders = max(FEWEST_ORDERS, min(MOST_ORDERS, JOBS_IN_ORDERS // jobs))
        seed = (self._progress.budget.seed + number) % 2**64
        self._profile, self._population = justified.room(jobs, rows, orders, seed, number)
        justified.begin(project, self._profile, self._population, self._first.copy())
        justified.evolve(project, self._profile, self._population, 0)  # compiles it

    def _take(self, copy: beside.Beside) -> None:
        """Offer what a copy has found; nothing if it failed."""
        if (order := copy.result()) is not None:
            self._offer(order)

    def _breed(self, copies: list[beside.Beside]) -> None:
        """Breed until the budget is used up or the best schedule is proved; take what `copies` have
        found that are done."""
        justified, progress, population = self._justified, self._progress, self._population
        self._offer(population.best.tolist())
        placed = population.counts[justified.PLACED]
        budget = progress.budget
        while budget.left_s() > 0 and not self._is_closed():
            for copy in [copy for copy in copies if copy.is_done]:
                copies.remove(copy)
                self._take(copy)
            if justified.evolve(self._project, self._profile, population, STEPS):
                self._offer(population.best.tolist())
            now = population.counts[justified.PLACED]
            budget.spend(WORK_PER_JOB * float(now - placed))
            placed = now

    def _offer(self, order: tuple[int, ...] | list[int]) -> None:
        priority = [0.0] * len(order)
        for place, j in enumerate(order):
            priority[j] = float(place)
        self._progress.offer(generate(self._progress.problem, priority, ways=self._ways))

    def _is_closed(self) -> bool:
        progress = self._progress
        yardstick = progress.evaluator.yardsticks[0]
        return yardstick.is_closed(progress.values[0], progress.proved.get(0))

    def _amounts(self, problem: Problem, chosen: list[Alternative]) -> tuple["Ints", "Ints"]:
        """Return what each job needs of what there is, as packed numbers, and what there is.

        Amounts that are no small whole numbers are shares of what there is, rounded down.
        """
        most, needs = _pooled(problem, chosen)
        largest = self._justified.MOST_AMOUNT
        whole = (most <= largest) & (most % 1 == 0) & (needs % 1 == 0).all(axis=0)
        scale = np.where(whole, 1.0, largest / np.maximum(most, 1e-300))
        fields = self._justified.FIELDS
        return (
            self._packed(np.minimum(needs * scale + 1e-9, largest), fields),
            self._packed(np.minimum(most * scale + 1e-9, largest)[None], fields)[0]
            | self._justified.ENOUGH,
        )

    def _packed(self, amounts: np.ndarray, fields: int) -> "Ints":
        """Pack whole numbers, some columns in one."""
        columns = amounts.shape[1]
        packed = np.zeros((len(amounts), -(-columns // fields)), np.int64)
        for column in range(columns):
            shift = self._justified.FIELD * (column % fields)
            packed[:, column // fields] |= amounts[:, column].astype(np.int64) << shift
        return packed


def _pooled(problem: Problem, chosen: list[Alternative]) -> tuple[np.ndarray, np.ndarray]:
    """Return how much there is of resources, quotas and, by GPU type, of what nodes have, and how
    much of each every job needs (jobs x rows)."""
    table = problem.table
    pool_of: dict[int, object] = {row: row for row in range(table.shared)}
    for kind, rows in (("GPUs", table.gpus), ("cores", table.cores), ("memory", table.memory)):
        for row, gpu_type in zip(rows, problem.node_types, strict=True):
            if row is not None:
                pool_of[row] = kind, gpu_type
    pools = {pool: k for k, pool in enumerate(dict.fromkeys(pool_of.values()))}
    most = np.zeros(max(1, len(pools)))
    for row, pool in pool_of.items():
        most[pools[pool]] += problem.rows[row].capacity
    needs = np.zeros((len(chosen), len(most)))
    for activity, alternative in zip(problem.activities, chosen, strict=True):
        on_one = tuple((node, alternative.mode.gpus) for node, _ in alternative.rooms[:1])
        for row, amount in problem.demands(activity, alternative, on_one):
            needs[activity.index, pools[pool_of[row]]] += amount
    return most, np.minimum(needs, most)


def _linked(links: list[tuple[int, ...]] | list[list[int]]) -> Iterator["Ints"]:
    """Yield where the links of each job begin, and those of all jobs."""
    yield np.array([*accumulate(map(len, links), initial=0)], np.int64)
    yield np.array([*chain.from_iterable(links)], np.int64)
