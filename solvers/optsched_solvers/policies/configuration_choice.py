"""One configuration for each job at the least total cost: the multiple-choice knapsack, to the optimum."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EFFORT = 0.5
"""Deterministic time (of CP-SAT, about seconds) after which the best choice found so far is taken."""
DIGITS = 1e7
"""What the largest cost is scaled to."""
LARGEST_COURSE = 4096
"""Room up to which a single row is solved by dynamic programming."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A way to treat a job: its cost, and what it takes, as (row, whole amount)."""

    cost: float
    use: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The position of the configuration chosen for each job, and whether it is proven that no choice is cheaper."""

    chosen: tuple[int, ...]
    proven: bool


def choose(jobs: Sequence[Sequence[Configuration]], room: Sequence[int]) -> Choice:
    """The cheapest choice within the room of each row. Every job needs a configuration that takes nothing.

    Where all jobs can have their cheapest one they get it; a single row is solved by dynamic programming, several by
    CP-SAT, whose costs are whole numbers of seven digits.
    """
    wanted = tuple(min(range(len(ways)), key=lambda i: ways[i].cost) for ways in jobs)
    used = [0] * len(room)
    for ways, i in zip(jobs, wanted, strict=True):
        for row, amount in ways[i].use:
            used[row] += amount
    if all(amount <= most for amount, most in zip(used, room, strict=True)):
        return Choice(wanted, True)
    if len(room) == 1 and room[0] <= LARGEST_COURSE:
        return Choice(_by_course(jobs, room[0]), True)
    return _by_model(jobs, room)


def _by_course(jobs: Sequence[Sequence[Configuration]], room: int) -> tuple[int, ...]:
    least: NDArray[np.float64] = np.zeros(room + 1)
    picks: list[NDArray[np.int32]] = []
    for ways in jobs:
        after = np.full(room + 1, math.inf)
        pick = np.zeros(room + 1, np.int32)
        for i, way in enumerate(ways):
            amount = sum(amount for _, amount in way.use)
            if amount <= room:
                with_it = least[:room + 1 - amount] + way.cost
                better = with_it < after[amount:]
                after[amount:][better] = with_it[better]
                pick[amount:][better] = i
        picks.append(pick)
        least = after
    left = room
    found = []
    for ways, pick in zip(jobs[::-1], picks[::-1], strict=True):
        i = int(pick[left])
        found.append(i)
        left -= sum(amount for _, amount in ways[i].use)
    return tuple(found[::-1])


def _by_model(jobs: Sequence[Sequence[Configuration]], room: Sequence[int]) -> Choice:
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    scale = DIGITS / max(1e-12, max(abs(way.cost) for ways in jobs for way in ways))
    rows: list[list[tuple[int, Any]]] = [[] for _ in room]
    picks = []
    cost = []
    for ways in jobs:
        pick = [model.NewBoolVar("") for _ in ways]
        model.AddExactlyOne(pick)
        picks.append(pick)
        for way, chosen in zip(ways, pick, strict=True):
            cost.append(round(way.cost * scale) * chosen)
            for row, amount in way.use:
                rows[row].append((amount, chosen))
    for terms, most in zip(rows, room, strict=True):
        if terms:
            model.Add(sum(amount * chosen for amount, chosen in terms) <= most)
    model.Minimize(sum(cost))
    nothing = [min((i for i, way in enumerate(ways) if not way.use)) for ways in jobs]
    for pick, i in zip(picks, nothing, strict=True):
        for k, chosen in enumerate(pick):
            model.AddHint(chosen, k == i)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    status = solver.Solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Choice(tuple(nothing), False)
    chosen = tuple(next(i for i, one in enumerate(pick) if solver.Value(one)) for pick in picks)
    return Choice(chosen, status == cp_model.OPTIMAL)
