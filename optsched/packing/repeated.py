"""optsched's own rule: a job goes where least is lost if typical jobs keep coming.

Where FGD asks whether one typical job still fits on a node, this rule also asks what is left of its
GPUs once so many jobs of one kind have come that no further one fits, in the mean over the kinds of
typical jobs. So it sees that the cores of a node serve two more jobs but not the four that its free
GPUs promise, and that two jobs of 0.47 on a GPU leave 0.06. Jobs of different kinds share GPUs,
too: the rest of a GPU is worth what the best pattern of parts in it would bring, with the prices of
a linear program that packs all jobs with parts into the fewest GPUs, and what it is not worth is
lost as well. The three losses are added, FGD's with the largest weight and the first with the
smallest: many jobs of one kind in a row are rare. Nodes that jobs of several
GPUs, and GPU types that jobs bound to them, may need are kept for them (`reserve`), unless another
job fits nowhere else. None of this needs to know what comes; it follows from the shares of kinds.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import OptschedError
from .certificate import GRID, room_worth
from .engine import Room
from .gradient import Gradient
from .problem import WHOLE, Array, Problem
from .reserve import Reserve, TypeReserve

ENOUGH = 1e-7
ROUNDS = 500
PARTS, FRAGMENTS = 2, 8
"""Weights of what the rest of a GPU is not worth and of FGD's loss, what a typical job cannot use
now, beside what many jobs of one kind leave."""
EVERY = 20
"""After so many arrivals the reserves are looked at again."""


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
        self.type_reserve = TypeReserve(problem)
        self.came = 0

    def arrived(self, kind: int, room: Room) -> Iterable[int]:
        self.came += 1
        if self.came % EVERY != 1:
            return ()
        return sorted(self.reserve.changed(room) | self.type_reserve.changed(room))

    def scores(self, node: int, room: Room) -> Array:
        kept: Array = self.reserve.lost(node, room) + self.type_reserve.lost[node]
        scores: Array = super().scores(node, room) - kept
        return scores

    def loss(self, cpus: Array, left: Array, gpu_type: str | None) -> Array:
        jobs = (left[:, :, None] // self.each).sum(axis=1) // self.many
        jobs = np.minimum(jobs, cpus[:, None] // self.cores) * self.access[gpu_type]
        idle = ((left.sum(axis=1)[:, None] - jobs * self.units) * self.weights).sum(axis=1)
        unused = (left - self.worth[left // self.step]).sum(axis=1)
        lost: Array = idle + PARTS * unused + FRAGMENTS * self.fragments(cpus, left, gpu_type)
        return lost

    def points(self, growth: Array) -> Array:
        scores: Array = np.rint(-growth).astype(np.int64)
        return scores


def worth_of_rooms(problem: Problem) -> list[float]:
    """Return what each thousandth of a GPU's room is worth to jobs with parts, in GPUs: 1 for a
    whole GPU. Raises OptschedError where the linear program is not solved."""
    shares: defaultdict[int, float] = defaultdict(float)
    for request, share in zip(problem.requests, problem.shares, strict=True):
        if request.part:
            shares[request.part] += float(share)
    worth = _prices_of_rooms(dict(sorted(shares.items()))) if shares else [0.0] * GRID
    return [*(min(1.0, value) for value in worth[:GRID]), 1.0]


def _prices_of_rooms(shares: dict[int, float]) -> list[float]:
    """Return the worth of each room at the prices of parts when they are packed, in these shares,
    into the fewest GPUs; patterns are found as they are needed."""
    from ortools.linear_solver import pywraplp

    solver: Any = pywraplp.Solver.CreateSolver("GLOP")
    total = sum(shares.values())
    rows = {
        part: solver.Constraint(share / total, solver.infinity()) for part, share in shares.items()
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
        prices = {part: max(0.0, row.dual_value()) for part, row in rows.items()}
        worth, pattern = room_worth(prices)
        if worth[GRID] <= 1 + ENOUGH:
            break
        add(pattern)
    return worth
