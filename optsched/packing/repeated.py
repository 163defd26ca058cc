"""optsched's own rule: a job goes where least is lost if typical jobs keep coming.

Where FGD asks whether one typical job still fits on a node, this rule also asks what is left of its
GPUs once so many jobs of one kind have come that no further one fits, in the mean over the kinds of
typical jobs. So it sees that the cores of a node serve two more jobs but not the four that its free
GPUs promise, and that two jobs of 0.47 on a GPU leave 0.06. Jobs of different kinds share GPUs,
too: the rest of a GPU is worth what the best pattern of parts in it would bring, with the prices of
a linear program that packs all jobs with parts into the fewest GPUs, and what it is not worth is
lost as well. The three losses are added. Nodes that jobs of several GPUs are expected to need are
kept for them (`reserve`), unless another job fits nowhere else. None of this needs to know what
comes; it follows from the shares of kinds.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import OptschedError
from .certificate import GRID, room_worth
from .engine import Room
from .gradient import Gradient
from .problem import WHOLE, Array, Problem
from .reserve import Reserve

ENOUGH = 1e-7
ROUNDS = 500


class RepeatedJobs(Gradient):
    """Least loss when jobs of one kind keep coming, and when parts are packed as well as can be."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        asking = self.typical_each > 0
        self.each = np.maximum(self.typical_each, 1)
        self.units = self.typical_each * self.typical_gpus
        self.many = np.maximum(self.typical_gpus, 1)
        self.cores = np.maximum(self.typical_cpus, 1)
        self.weights = (
            self.typical_shares * asking / max(float((self.typical_shares * asking).sum()), 1e-12)
        )
        self.worth = np.array(worth_of_rooms(problem)) * WHOLE
        self.step = WHOLE // GRID

        self.reserve = Reserve(problem)

    def arrived(self, kind: int, room: Room) -> Iterable[int]:
        return self.reserve.changed(room)

    def scores(self, node: int, room: Room) -> Array:
        found: Array = super().scores(node, room) - self.reserve.lost(node, room)
        return found

    def loss(self, cpus: Array, left: Array, gpu_type: str | None) -> Array:
        jobs = (left[:, :, None] // self.each).sum(axis=1) // self.many
        jobs = np.minimum(jobs, cpus[:, None] // self.cores) * self.access[gpu_type]
        idle = (left.sum(axis=1)[:, None] - jobs * self.units) @ self.weights
        unused = (left - self.worth[left // self.step]).sum(axis=1)
        found: Array = idle + unused + self.fragments(cpus, left, gpu_type)
        return found

    def points(self, growth: Array) -> Array:
        found: Array = np.rint(-growth).astype(np.int64)
        return found


def worth_of_rooms(problem: Problem) -> list[float]:
    """What each thousandth of a GPU's room is worth to jobs with parts, in GPUs: 1 for a whole GPU.
    Raises OptschedError where the linear program is not solved."""
    shares: defaultdict[int, float] = defaultdict(float)
    for kind, share in enumerate(problem.shares):
        if problem.requests[kind].part:
            shares[problem.requests[kind].part] += float(share)
    program = _FewestGpus(dict(sorted(shares.items())))
    worth = [min(1.0, value) for value in program.worth]
    return [*worth[:GRID], 1.0]


class _FewestGpus:
    """Pack parts in the given shares into the fewest GPUs; patterns are found as they are
    needed."""

    def __init__(self, shares: dict[int, float]) -> None:
        self.shares = shares

    @cached_property
    def worth(self) -> list[float]:
        """The worth of each room at the prices of parts in the optimum."""
        from ortools.linear_solver import pywraplp

        if not self.shares:
            return [0.0] * (GRID + 1)
        solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        total = sum(self.shares.values())
        rows = {
            part: solver.Constraint(share / total, solver.infinity())
            for part, share in self.shares.items()
        }
        solver.Objective().SetMinimization()

        def add(pattern: dict[int, int]) -> None:
            column = solver.NumVar(0, solver.infinity(), "")
            solver.Objective().SetCoefficient(column, 1)
            for part, count in pattern.items():
                rows[part].SetCoefficient(column, count)

        for part in rows:
            add({part: WHOLE // part})
        for _ in range(ROUNDS):
            if solver.Solve() != pywraplp.Solver.OPTIMAL:
                raise OptschedError("the linear program that packs parts of GPUs was not solved")
            worth, pattern = room_worth(
                {part: max(0.0, row.dual_value()) for part, row in rows.items()}
            )
            if worth[GRID] <= 1 + ENOUGH:
                return worth
            add(pattern)
        return worth
