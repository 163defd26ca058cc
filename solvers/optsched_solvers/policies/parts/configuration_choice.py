"""One configuration for each job at the least total cost: the multiple-choice knapsack, to the
optimum."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EFFORT = 0.5
"""Deterministic time (of CP-SAT, about seconds) after which the best solution found so far
is taken."""
DIGITS = 1e7
"""What the largest cost is scaled to, unless it is to be more."""
ROUNDING = 1e-9
STEPS = 160
PATIENCE = 4
WORTH_PRICING = 400
"""Configurations from which on prices cost less time than they save."""
LARGEST_COURSE = 4096
"""Room up to which a single row is solved by dynamic programming."""


def solved(model: Any) -> tuple[Any | None, bool]:
    """Return the solver with the best solution found within `EFFORT`, None without one, and whether
    that is proven optimal."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    status = solver.solve(model)
    solution = solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return solution, status == cp_model.OPTIMAL


class Configuration(NamedTuple):
    """A way to treat a job: its cost, and what it takes, as (row, whole amount)."""

    cost: float
    use: tuple[tuple[int, int], ...] = ()


class Choice(NamedTuple):
    """The position of the configuration chosen for each job, and whether it is proven that no
    choice is cheaper."""

    chosen: tuple[int, ...]
    proven: bool


def choose(
    jobs: Sequence[Sequence[Configuration]], room: Sequence[int], digits: float = DIGITS
) -> Choice:
    """Return the cheapest choice within the room of each row. Every job needs a configuration that
    takes nothing.

    Where all jobs can have their cheapest one they get it; a single row is solved by dynamic
    programming. With several rows prices on them (Lagrangian multipliers) bound the cost, and rule
    out what no better choice than the best one found has; CP-SAT chooses among the rest, with the
    costs rounded to whole parts of the largest, of which it has `digits`.
    """
    wanted = tuple(min(range(len(ways)), key=lambda i: ways[i].cost) for ways in jobs)
    used = [0] * len(room)
    for ways, i in zip(jobs, wanted, strict=True):
        for row, amount in ways[i].use:
            used[row] += amount
    if all(amount <= most for amount, most in zip(used, room, strict=True)):
        return Choice(wanted, True)
    if len(room) == 1 and room[0] <= LARGEST_COURSE:
        return Choice(by_course(jobs, room[0]), True)
    core = Core(jobs, room)
    return core.chosen() if core.is_closed else _by_model(core, jobs, room, digits)


def by_course(
    jobs: Sequence[Sequence[Configuration]], room: int, margin: float = 0.0
) -> tuple[int, ...]:
    """Return the cheapest choice within one row by dynamic programming; of costs within `margin`
    the first."""
    least: NDArray[np.float64] = np.zeros(room + 1)
    picks: list[NDArray[np.int32]] = []
    for ways in jobs:
        after = np.full(room + 1, math.inf)
        pick = np.zeros(room + 1, np.int32)
        for i, way in enumerate(ways):
            amount = sum(amount for _, amount in way.use)
            if amount <= room:
                with_it = least[: room + 1 - amount] + way.cost
                better = with_it < after[amount:] - margin
                after[amount:][better] = with_it[better]
                pick[amount:][better] = i
        picks.append(pick)
        least = after
    left = room
    choice = []
    for ways, pick in zip(jobs[::-1], picks[::-1], strict=True):
        i = int(pick[left])
        choice.append(i)
        left -= sum(amount for _, amount in ways[i].use)
    return tuple(choice[::-1])


class Core:
    """The configurations among which the cheapest choice is still open, and the best choice found.

    Prices on the rows are raised and lowered by subgradient steps (Held, Wolfe, Crowder,
    Mathematical Programming 6, 1974); a configuration whose reduced cost lies further above its
    job's least than the value is above the bound is in no better choice.
    """

    def __init__(self, jobs: Sequence[Sequence[Configuration]], room: Sequence[int]) -> None:
        self.sizes = [len(ways) for ways in jobs]
        self.first = np.cumsum([0, *self.sizes[:-1]])
        self.job = np.repeat(np.arange(len(jobs)), self.sizes)
        self.cost = np.array([way.cost for ways in jobs for way in ways])
        self.use = np.zeros((len(room), len(self.cost)))
        for k, way in enumerate(way for ways in jobs for way in ways):
            for row, amount in way.use:
                self.use[row, k] += amount
        self.room = np.array(room, np.float64)
        scale = 1 / np.maximum(self.room, 1)
        self.share, self.all = self.use * scale[:, None], self.room * scale
        self.best = self._placed(self.cost)
        self.value = float(self.cost[self.best].sum())
        self.bound, self.reduced = -math.inf, self.cost
        if len(self.cost) >= WORTH_PRICING:
            self._price()
        least = np.minimum.reduceat(self.reduced, self.first)
        slack = self.value - self.bound + ROUNDING * max(1.0, abs(self.value))
        self.open = self.reduced - least[self.job] <= slack
        self.open[self.best] = True
        self.is_closed = self.value - self.bound <= ROUNDING * max(1.0, abs(self.value))

    def _price(self) -> None:
        price = np.zeros(len(self.room))
        step, since = 1.0, 0
        for k in range(STEPS):
            reduced = self.cost + (price[:, None] * self.share).sum(axis=0)
            least = np.minimum.reduceat(reduced, self.first)
            bound = float(least.sum() - np.sum(price * self.all))
            since += 1
            if bound > self.bound:
                self.bound, self.reduced, since = bound, reduced, 0
            elif since >= PATIENCE:
                step, since = step / 2, 0
            if k % 5 == 4:
                self._improve(self._placed(self.reduced))
            at = np.flatnonzero(reduced <= least[self.job])
            pick = at[np.unique(self.job[at], return_index=True)[1]]
            over = self.share[:, pick].sum(axis=1) - self.all
            length = float(np.sum(over * over))
            if length == 0 or self.value - self.bound <= 0:
                break
            price = np.maximum(0.0, price + step * (self.value - bound) / length * over)
        self._improve(self._placed(self.reduced))

    def _improve(self, chosen: Ints) -> None:
        value = float(self.cost[chosen].sum())
        if value < self.value:
            self.best, self.value = chosen, value

    def _placed(self, value: Floats) -> Ints:
        """Return a choice with room: the jobs that lose most by their second choice first, then
        whoever gains by what is left."""
        left = self.room.copy()
        chosen = np.zeros(len(self.sizes), np.int64)
        ways = [
            np.argsort(value[a : a + n], kind="stable") + a
            for a, n in zip(self.first, self.sizes, strict=True)
        ]
        regret = [
            float(value[own[1]] - value[own[0]]) if len(own) > 1 else math.inf for own in ways
        ]
        for j in sorted(range(len(ways)), key=lambda j: -regret[j]):
            fits = (self.use[:, ways[j]] <= left[:, None]).all(axis=0)
            chosen[j] = ways[j][int(fits.argmax())]
            left -= self.use[:, chosen[j]]
        for j, (a, n) in enumerate(zip(self.first.tolist(), self.sizes, strict=True)):
            room = left + self.use[:, chosen[j]]
            fits = (self.use[:, a : a + n] <= room[:, None]).all(axis=0)
            k = a + int(np.where(fits, self.cost[a : a + n], math.inf).argmin())
            if self.cost[k] < self.cost[chosen[j]]:
                chosen[j] = k
                left = room - self.use[:, k]
        return chosen

    def chosen(self, proven: bool = True) -> Choice:
        """Return the best choice found."""
        return Choice(tuple((self.best - self.first).tolist()), proven)


def _by_model(
    core: Core, jobs: Sequence[Sequence[Configuration]], room: Sequence[int], digits: float
) -> Choice:
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    scale = digits / max(1e-12, float(np.abs(core.cost).max()))
    rows: list[list[tuple[int, Any]]] = [[] for _ in room]
    picks: list[dict[int, Any]] = []
    cost = []
    for j, ways in enumerate(jobs):
        start = int(core.first[j])
        pick = {i: model.NewBoolVar("") for i in range(len(ways)) if core.open[start + i]}
        model.AddExactlyOne(pick.values())
        picks.append(pick)
        for i, chosen in pick.items():
            cost.append(round(ways[i].cost * scale) * chosen)
            model.AddHint(chosen, start + i == core.best[j])
            for row, amount in ways[i].use:
                rows[row].append((amount, chosen))
    for terms, most in zip(rows, room, strict=True):
        if terms:
            model.Add(sum(amount * chosen for amount, chosen in terms) <= most)
    model.Minimize(sum(cost))
    solver, optimal = solved(model)
    if solver is None:
        return core.chosen(proven=False)
    return Choice(
        tuple(next(i for i, chosen in pick.items() if solver.value(chosen)) for pick in picks),
        optimal,
    )
