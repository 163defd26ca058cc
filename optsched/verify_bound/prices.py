"""The least that jobs must pay for GPU time at given prices: the other half of the proof, as
arithmetic on arrays.

In an interval of the grid a job spends each second in one alternative, or in a mix of them one
after the other. So what `v` units of work a second cost it at least is the lower convex hull of its
alternatives and of doing nothing for nothing. The edges of the hull are its offers there: so much
work in each second, at one price. A job takes the cheapest offers that make up its work. Whether
there is time for the work is never read off prices.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import fsum, inf, isfinite, nan

import numpy as np
import numpy.typing as npt

from .jobs import Alternative, Task

Floats = npt.NDArray[np.float64]
ROUNDING, PER_OFFER = 1e-12, 1e-15
"""More than sums of floats are off by, relative to their terms: in any case, and for each offer
they look at."""
NONE_LEFT, LATE = 1e-12, 5e-10
"""The share of a job's work that counts as none where it completes, and where it is due."""
MOST_CELLS = 1 << 20
"""Offers looked at at once; more are cut into blocks of intervals."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """GPUs by type, and what a GPU-second of each type costs in each interval between two instants
    of `grid_s`, in seconds after now; after the last it is free."""

    gpus: Floats
    grid_s: Floats
    prices: Floats

    def worth(self) -> float:
        """Return what all GPU time of the grid is worth."""
        return _sum((self.gpus[:, None] * self.prices * np.diff(self.grid_s)).ravel().tolist())

    def lengths_s(self, head_s: float, until_s: float, most_s: float) -> Floats:
        """Return the seconds from `head_s` to `until_s` in each interval and after the last, at
        most `most_s` in each."""
        ends_s = np.append(self.grid_s[1:], inf)
        lengths_s = np.minimum(ends_s, until_s) - np.maximum(self.grid_s, head_s)
        clipped_s: Floats = np.clip(lengths_s, 0.0, most_s)
        return clipped_s

    def offers(self, alternatives: tuple[Alternative, ...], per_s: float) -> tuple[Floats, Floats]:
        """Return the edges of the hull of `alternatives`, one row for each, in each interval and
        after the last, for a job that pays `per_s` for each second that it works: the price of a
        unit of work, and how much of it is done in a second."""
        padded = np.pad(
            self.prices, ((0, 1), (0, 1))
        )  # nothing is paid after the grid, and by who holds no GPU (-1)
        rate = np.array([[own.rate] for own in alternatives])
        cost = (
            per_s
            + np.array([[own.gpus] for own in alternatives])
            * padded[[own.gpu_type for own in alternatives]]
        )
        columns = np.arange(cost.shape[1])
        at_rate, at_cost = np.zeros(len(columns)), np.zeros(len(columns))
        prices, amounts = [], []
        for _ in alternatives:
            ahead = rate > at_rate
            slope = np.where(ahead, (cost - at_cost) / np.where(ahead, rate - at_rate, 1.0), inf)
            best = slope.argmin(axis=0)
            goes_on = ahead.any(axis=0)
            prices.append(np.where(goes_on, slope[best, columns], 0.0))
            amounts.append(np.where(goes_on, rate[best, 0] - at_rate, 0.0))
            at_rate = np.where(goes_on, rate[best, 0], at_rate)
            at_cost = np.where(goes_on, cost[best, columns], at_cost)
        return np.array(prices), np.array(amounts)


def bound(tariff: Tariff, tasks: list[Task], offset: float) -> float:
    """Return the bound that no plan has a smaller sum of weighted completion times, counted from
    submission; `offset` is what they count from before now. Not a number where prices are beyond
    what floats hold."""
    paid = [0.0]
    groups: dict[tuple[tuple[Alternative, ...], float], list[Task]] = defaultdict(list)
    for task in tasks:
        groups[task.alternatives, task.weight].append(task)
    for (alternatives, weight), alike in groups.items():
        if weight > 0:
            paid.extend(map(_Completions(tariff, alternatives, weight).least, alike))
    worth = tariff.worth()
    return _sum([offset, *paid, -worth]) - _rounding(tariff, tasks) * _sum(
        [abs(offset), *paid, worth]
    )


def refutes(tariff: Tariff, tasks: list[Task], due_s: list[float]) -> bool:
    """Return whether no plan completes every task by its due date, in seconds after now: there is
    no time for one of them, or all of them would pay more than all GPU time is worth."""
    groups: dict[tuple[Alternative, ...], list[tuple[Task, float]]] = defaultdict(list)
    for task, by_s in zip(tasks, due_s, strict=True):
        groups[task.alternatives].append((task, by_s))
    paid = [0.0]
    for alternatives, alike in groups.items():
        fastest = max(own.rate for own in alternatives)
        slowest = min(own.rate for own in alternatives)
        price, amount = (column.ravel() for column in tariff.offers(alternatives, 0.0))
        order = np.argsort(price, kind="stable")
        for task, by_s in alike:
            if task.work - fastest * max(0.0, by_s - task.head_s) > LATE * task.work:
                return True
            lengths = np.tile(
                tariff.lengths_s(task.head_s, by_s, task.work / slowest), len(alternatives)
            )
            paid.append(float(_cheapest(price[order], (amount * lengths)[order], task.work)))
    worth, total = tariff.worth(), _sum(paid)
    if not (isfinite(worth) and isfinite(total)):
        return False
    return total - worth > _rounding(tariff, tasks) * (total + worth)


class _Completions:
    """Tasks of the same alternatives and weight: for each interval in which they may complete, what
    they can buy up to it, the cheapest first."""

    def __init__(
        self, tariff: Tariff, alternatives: tuple[Alternative, ...], weight: float
    ) -> None:
        self._tariff, self._weight = tariff, weight
        self._fastest = max(own.rate for own in alternatives)
        self._slowest = min(own.rate for own in alternatives)
        price, amount = tariff.offers(alternatives, 0.0)
        last_price, last_amount = tariff.offers(alternatives, weight)
        count = len(tariff.grid_s)
        interval = np.tile(np.arange(count), len(alternatives))
        size = max(1, MOST_CELLS // len(interval))
        self._blocks = []
        for first in range(0, count, size):
            rows = np.arange(first, min(first + size, count))
            own = np.broadcast_to(rows[:, None], (len(rows), len(alternatives)))
            prices = np.hstack([np.tile(price.ravel(), (len(rows), 1)), last_price.T[rows]])
            before = np.where(interval < rows[:, None], amount.ravel(), 0.0)
            amounts = np.hstack([before, last_amount.T[rows]])
            intervals = np.hstack([np.tile(interval, (len(rows), 1)), own])
            used = amounts.any(axis=0)
            order = np.argsort(prices[:, used], axis=1, kind="stable")
            self._blocks.append(
                (
                    rows,
                    *(
                        np.take_along_axis(column[:, used], order, axis=1)
                        for column in (prices, amounts, intervals)
                    ),
                )
            )

    def least(self, task: Task) -> float:
        """Return the least that a task pays for its work and its weighted completion."""
        tariff = self._tariff
        lengths = tariff.lengths_s(task.head_s, inf, task.work / self._slowest)
        ends_s = np.append(tariff.grid_s[1:], inf)
        in_time = self._fastest * np.maximum(ends_s - task.head_s, 0.0) >= task.work * (
            1 - NONE_LEFT
        )
        in_time &= ends_s > task.head_s
        start = self._weight * np.maximum(tariff.grid_s, task.head_s)
        costs = [inf]
        for rows, prices, amounts, intervals in self._blocks:
            some = in_time[rows]
            if some.any():
                paid = _cheapest(prices[some], amounts[some] * lengths[intervals[some]], task.work)
                costs.append(float((start[rows][some] + paid).min()))
        return min(costs) if all(map(isfinite, costs[1:])) else nan


def _cheapest(price: Floats, amount: Floats, need: float) -> Floats:
    """Return what the first of offers in order of price cost that make up `need`, along the last
    axis."""
    there = np.minimum(amount, need)
    before = np.cumsum(there, axis=-1) - there
    cost: Floats = (np.clip(need - before, 0.0, there) * price).sum(axis=-1)
    return cost


def _rounding(tariff: Tariff, tasks: list[Task]) -> float:
    most = max((len(task.alternatives) for task in tasks), default=0)
    return ROUNDING + PER_OFFER * most * len(tariff.grid_s)


def _sum(terms: list[float]) -> float:
    """Return a sum without rounding; not a number where a term is none, or it is too large."""
    if not all(map(isfinite, terms)):
        return nan
    try:
        return fsum(terms)
    except OverflowError:
        return nan
