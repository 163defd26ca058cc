"""Large-neighbourhood search: free some jobs, keep the rest, plan the free ones anew with CP-SAT,
repeat.

Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", CP
1998. The free jobs are near each other in time, so that they can trade places on real nodes.
"""

import random
import threading
from dataclasses import dataclass

from ortools.sat.python import cp_model

from ..scheduling.free_capacity import FreeCapacity
from ..scheduling.problem import Choice, Schedule
from ..scheduling.schedule_generation import canonical, replay
from .direct import Progress
from .model import Fixed, Model
from .objective import build

WORK = 0.03
"""Deterministic time for one neighbourhood; models of intervals take ten times as many seconds."""
WALL_S = 0.5
"""Most seconds for one neighbourhood where the result need not be reproducible."""
OVERHEAD = 0.002
"""What building one model counts for, in the same unit."""
FEWEST, MOST = 6, 60
NODES_SHOWN = 12
"""Nodes of a type that a free job may choose from."""


@dataclass(slots=True)
class _Neighbourhood:
    free: list[int]
    fixed: Fixed
    version: int


class Search:
    """Improves the incumbent's schedule until the budget is used up; `threads` neighbourhoods at a
    time."""

    def __init__(self, progress: Progress, threads: int) -> None:
        assert progress.schedule is not None
        self.problem, self.progress, self.budget = progress.problem, progress, progress.budget
        self.threads = threads
        self.schedule: Schedule = list(progress.schedule)
        self.values = progress.values
        self.rng = random.Random(self.budget.seed)
        self.size = 10.0
        self._version = 0
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def run(self, until: float = 0.0) -> None:
        """Search until `until` of the budget is left."""
        if len(self.problem.activities) < 2:
            return
        if self.threads == 1:
            self._work(until)
            return
        workers = [
            threading.Thread(target=self._guarded, args=(until,), daemon=True)
            for _ in range(self.threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self._failure is not None:
            raise self._failure

    def _guarded(self, until: float) -> None:
        try:
            self._work(until)
        except BaseException as error:
            self._failure = error

    def _work(self, until: float) -> None:
        while self._failure is None and self.budget.fraction_left() > until:
            with self._lock:
                neighbourhood = self._neighbourhood()
                seed = self.rng.randrange(2**31)
            self._improve(neighbourhood, seed)

    # ------------------------------------------------------------------------------------------
    # neighbourhoods

    def _neighbourhood(self) -> _Neighbourhood:
        free = sorted(self._choose())
        capacity = FreeCapacity(self.problem)
        chosen = set(free)
        for activity, choice in zip(self.problem.activities, self.schedule, strict=True):
            if activity.index not in chosen:
                capacity.place(activity, choice)
        fixed = Fixed(
            list(self.schedule),
            frozenset(free),
            capacity,
            {j: self._nodes(j) for j in free},
            {j: self._ways(j) for j in free},
        )
        return _Neighbourhood(free, fixed, self._version)

    def _choose(self) -> list[int]:
        """A centre, drawn by lot or by what it costs, and the jobs that start or end nearest to its
        start."""
        activities, count = self.problem.activities, len(self.problem.activities)
        size = min(count, int(self.size))
        if self.rng.random() < 0.5:
            costs = self.progress.evaluator.job_costs(self.schedule)
            costs = costs - costs.min() + 1e-9
            centre = self.rng.choices(range(count), weights=costs.tolist())[0]
        else:
            centre = self.rng.randrange(count)
        at = self.schedule[centre].start
        kinds = self._type_of(centre)
        same_type = self.rng.random() < 0.3

        def distance(j: int) -> float:
            choice = self.schedule[j]
            end = self.problem.end(j, choice)
            apart = abs(choice.start - at) if self.rng.random() < 0.7 else abs(end - at)
            other = 3.0 if same_type and self._type_of(j) != kinds else 1.0
            return (apart + 1) * other * self.rng.uniform(0.5, 1.5)

        ranked = sorted((j for j in range(count) if j != centre), key=distance)
        related = {*activities[centre].before} if activities[centre].before else set()
        return [centre, *list(dict.fromkeys([*sorted(related), *ranked]))[: size - 1]]

    def _type_of(self, j: int) -> str | None:
        split = self.schedule[j].split
        return self.problem.node_types[split[0][0]] if split else None

    def _nodes(self, j: int) -> frozenset[int]:
        """All nodes on small clusters; on large ones its own and a draw of each type."""
        activity = self.problem.activities[j]
        by_type: dict[str | None, list[int]] = {}
        for alternative in activity.alternatives:
            for n, _ in alternative.rooms:
                members = by_type.setdefault(self.problem.node_types[n], [])
                if n not in members:
                    members.append(n)
        shown = {n for n, _ in self.schedule[j].split}
        for members in by_type.values():
            need = max(
                (a.mode.gpus for a in activity.alternatives if a.rooms and a.spread != "node"),
                default=0,
            )
            most = max(NODES_SHOWN, 2 * need)
            shown.update(members if len(members) <= most else self.rng.sample(members, most))
        return frozenset(shown)

    def _ways(self, j: int) -> frozenset[int]:
        """Its alternatives; spreading a gang that fits one node only now and then."""
        activity = self.problem.activities[j]
        spread_too = self.rng.random() < 0.1
        whole = {
            a.mode.gpu_type for a in activity.alternatives if not a.fixed and a.spread == "node"
        }
        return frozenset(
            i
            for i, a in enumerate(activity.alternatives)
            if i == self.schedule[j].alternative
            or spread_too
            or a.fixed
            or a.spread == "node"
            or a.mode.gpu_type not in whole
        )

    # ------------------------------------------------------------------------------------------
    # moves

    def _improve(self, neighbourhood: _Neighbourhood, seed: int) -> None:
        problem = self.problem
        model = Model(problem, "up", True, neighbourhood.fixed)
        status, value = cp_model.UNKNOWN, None
        for level in problem.objective.levels:
            expression = build(model, level)
            model.cp.minimize(expression.expression)
            model.hint(neighbourhood.fixed.schedule)
            solver = cp_model.CpSolver()
            self.budget.configure(solver, work=WORK, workers=1)
            solver.parameters.random_seed = seed
            if self.budget.work is None:
                solver.parameters.max_time_in_seconds = min(
                    WALL_S, solver.parameters.max_time_in_seconds
                )
            now = solver.solve(model.cp)
            self.budget.used(solver)
            if now not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                break
            status, value = now, solver.value
            model.cp.add(expression.expression <= int(solver.value(expression.expression)))
        with self._lock:
            self.budget.spend(OVERHEAD)
            if status == cp_model.OPTIMAL:
                self.size = min(self.size * 1.05, MOST)
            else:
                self.size = max(self.size * 0.97, FEWEST)
            if value is not None:
                choices, complete = model.read(value)
                self._accept(neighbourhood, choices, complete)

    def _accept(
        self, neighbourhood: _Neighbourhood, choices: dict[int, Choice], complete: bool
    ) -> None:
        """Keep the new places if they are no worse, and still free where another thread was
        faster."""
        if all(self.schedule[j] == choice for j, choice in choices.items()):
            return
        candidate = list(self.schedule)
        for j, choice in choices.items():
            candidate[j] = canonical(self.problem, self.problem.activities[j], choice)
        if not complete:
            candidate = self._on_nodes(candidate, choices)
        elif neighbourhood.version != self._version and not self._fits(
            candidate, neighbourhood.free
        ):
            return
        values = self.progress.evaluator.values(candidate)
        if values <= self.values:
            self.schedule, self.values = candidate, values
            self._version += 1
            self.progress.offer(candidate)

    def _on_nodes(self, candidate: Schedule, choices: dict[int, Choice]) -> Schedule:
        """Put a schedule on nodes that were not told apart, in the order of its starts."""
        activities = self.problem.activities
        pools = {j for j, choice in choices.items() if not choice.split}
        pool_types = {a.mode.gpu_type for j in pools for a in activities[j].alternatives}
        anywhere = {
            j
            for j, choice in enumerate(candidate)
            if j in choices
            or activities[j].alternatives[choice.alternative].mode.gpu_type in pool_types
        }
        found = replay(self.problem, dict(enumerate(candidate)), anywhere)
        return found if found is not None else self.schedule

    def _fits(self, candidate: Schedule, free: list[int]) -> bool:
        capacity = FreeCapacity(self.problem)
        moved = set(free)
        for activity, choice in zip(self.problem.activities, candidate, strict=True):
            capacity.place(activity, choice)
        return all(free >= -1e-6 for row in capacity.rows for free in row.free) and self._in_order(
            candidate, moved
        )

    def _in_order(self, candidate: Schedule, moved: set[int]) -> bool:
        return all(
            self.problem.end(i, candidate[i]) <= candidate[a.index].start
            for a in self.problem.activities
            for i in a.before
            if i in moved or a.index in moved
        )
