"""The least that jobs must pay for GPU time at given prices: the other half of the proof, as
arithmetic on arrays, many jobs at once.

In an interval of the grid a job spends each second in one alternative, or in a mix of them one
after the other. So what `v` units of work a second cost it at least is the lower convex hull of its
alternatives and of doing nothing for nothing. The edges of the hull are its offers there: so much
work in each second, at one price. A job takes the cheapest offers that make up its work. Whether
there is time for the work is never read off prices.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import fsum, inf, isfinite, nan

import numpy as np
import numpy.typing as npt

from .jobs import Task

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ROUNDING, PER_OFFER = 1e-12, 1e-15
"""More than sums of floats are off by, relative to their terms: in any case, and for each offer
they look at."""
NONE_LEFT, LATE = 1e-12, 5e-10
"""The share of a job's work that counts as none where it completes, and where it is due."""
MOST_CELLS = 1 << 20
"""Offers looked at at once; more are cut into batches of jobs."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """GPUs by type, and what a GPU-second of each type costs in each interval between two instants
    of `grid_s`, in seconds after now; after the last it is free. `quotas` has what tenants, None
    for all with a quota together, may hold at most, and what a GPU-second of that costs."""

    gpus: Floats
    grid_s: Floats
    prices: Floats
    quotas: dict[str | None, tuple[int, Floats]] = field(default_factory=dict)

    def worth(self) -> float:
        """Return what all GPU time of the grid, and that of all quotas, is worth."""
        limits = np.array([limit for limit, _ in self.quotas.values()], np.float64)
        each = [prices for _, prices in self.quotas.values()]
        there = np.concatenate([self.gpus, limits])
        prices = np.vstack([self.prices, *each]) if each else self.prices
        return exact_sum((there[:, None] * prices * np.diff(self.grid_s)).ravel().tolist())


class _Batch:
    """Tasks as arrays, with rows for each; those of fewer alternatives than others repeat one."""

    def __init__(self, tariff: Tariff, tasks: list[Task]) -> None:
        most = max(len(task.alternatives) for task in tasks)
        padded = [
            task.alternatives + task.alternatives[-1:] * (most - len(task.alternatives))
            for task in tasks
        ]

        def column(name: str) -> Floats:
            return np.array([[getattr(own, name) for own in ways] for ways in padded], np.float64)

        self._tariff = tariff
        self.weight, self.head_s, self.work = (
            np.array([getattr(task, name) for task in tasks], np.float64)
            for name in ("weight", "head_s", "work")
        )
        self._rate, gpus, held = column("rate"), column("gpus"), column("held")
        self.fastest, self.slowest = self._rate.max(axis=1), self._rate.min(axis=1)
        # Nothing is paid after the grid, and by who holds no GPU (-1).
        on_type = np.pad(tariff.prices, ((0, 1), (0, 1)))
        of_quotas = np.zeros((len(tasks), on_type.shape[1]))
        for j, task in enumerate(tasks):
            for name in task.quotas:
                if name in tariff.quotas:
                    of_quotas[j, :-1] += tariff.quotas[name][1]
        self._cost = gpus[:, :, None] * on_type[column("gpu_type").astype(np.int64)]
        self._cost += held[:, :, None] * of_quotas[:, None, :]

    def lengths_s(self, until_s: Floats) -> Floats:
        """Return the seconds from the head of each task to an instant in each interval and after
        the last, at most as many as its work takes."""
        grid_s = self._tariff.grid_s
        lengths_s = np.minimum(np.append(grid_s[1:], inf), until_s[:, None])
        lengths_s = lengths_s - np.maximum(grid_s, self.head_s[:, None])
        clipped_s: Floats = np.clip(lengths_s, 0.0, (self.work / self.slowest)[:, None])
        return clipped_s

    def offers(self, per_s: Floats) -> tuple[Floats, Floats]:
        """Return the edges of the hull of the alternatives of each task, in each interval and after
        the last, where it pays `per_s` for each second that it works: the price of a unit of work,
        and how much of it is done in a second."""
        rate, cost = self._rate[:, :, None], self._cost + per_s[:, None, None]
        at_rate, at_cost = np.zeros((2, len(cost), 1, cost.shape[2]))
        prices, amounts = [], []
        for _ in range(cost.shape[1]):
            ahead = rate > at_rate
            if not ahead.any():
                break
            slope = np.where(ahead, (cost - at_cost) / np.where(ahead, rate - at_rate, 1.0), inf)
            best = slope.argmin(axis=1, keepdims=True)
            goes_on = ahead.any(axis=1, keepdims=True)
            to_rate = np.take_along_axis(np.broadcast_to(rate, cost.shape), best, axis=1)
            prices.append(np.where(goes_on, np.take_along_axis(slope, best, axis=1), 0.0))
            amounts.append(np.where(goes_on, to_rate - at_rate, 0.0))
            at_rate = np.where(goes_on, to_rate, at_rate)
            at_cost = np.where(goes_on, np.take_along_axis(cost, best, axis=1), at_cost)
        return np.concatenate(prices, axis=1), np.concatenate(amounts, axis=1)


def _batches(tariff: Tariff, tasks: list[Task]) -> Iterator[tuple[_Batch, Ints]]:
    """Yield all tasks in batches, with their positions."""
    order = np.argsort([len(task.alternatives) for task in tasks], kind="stable")
    while len(order):
        cells = len(tasks[order[-1]].alternatives) * len(tariff.grid_s)
        count = max(1, MOST_CELLS // cells)
        yield _Batch(tariff, [tasks[j] for j in order[-count:]]), order[-count:]
        order = order[:-count]


def bound(tariff: Tariff, tasks: list[Task], offset: float) -> float:
    """Return the bound that no plan has a smaller sum of weighted completion times, counted from
    submission; `offset` is what they count from before now. Not a number where prices are beyond
    what floats hold."""
    paid = [0.0]
    for batch, _ in _batches(tariff, [task for task in tasks if task.weight > 0]):
        paid.extend(_least(tariff, batch).tolist())
    worth = tariff.worth()
    return exact_sum([offset, *paid, -worth]) - _rounding(tariff, tasks) * exact_sum(
        [abs(offset), *paid, worth]
    )


def refutes(tariff: Tariff, tasks: list[Task], due_s: list[float]) -> bool:
    """Return whether no plan completes every task by its due date, in seconds after now: there is
    no time for one of them, or all of them would pay more than all GPU time is worth."""
    paid = [0.0]
    for batch, own in _batches(tariff, tasks):
        by_s = np.array([due_s[j] for j in own], np.float64)
        room = batch.fastest * np.maximum(0.0, by_s - batch.head_s)
        if (batch.work - room > LATE * batch.work).any():
            return True
        price, amount = batch.offers(np.zeros(len(own)))
        amount = amount * batch.lengths_s(by_s)[:, None, :]
        paid.extend(_cheapest(_flat(price), _flat(amount), batch.work).tolist())
    worth, total = tariff.worth(), exact_sum(paid)
    if not (isfinite(worth) and isfinite(total)):
        return False
    return total - worth > _rounding(tariff, tasks) * (total + worth)


def _least(tariff: Tariff, batch: _Batch) -> Floats:
    """Return the least that each task pays for its work and its weighted completion.

    To complete in an interval costs at least its start and all work at the lowest price until then.
    The intervals are looked at in that order, until that is no less than the best so far.
    """
    grid_s, work = tariff.grid_s, batch.work
    price, amount = batch.offers(np.zeros(len(work)))
    last_price, last_amount = batch.offers(batch.weight)
    lengths = batch.lengths_s(np.full(len(work), inf))
    ends_s, head_s = np.append(grid_s[1:], inf), batch.head_s[:, None]
    is_in_time = (ends_s > head_s) & (
        batch.fastest[:, None] * np.maximum(ends_s - head_s, 0.0) >= work[:, None] * (1 - NONE_LEFT)
    )
    start = batch.weight[:, None] * np.maximum(grid_s, head_s)
    lowest = np.minimum.accumulate(np.where(lengths > 0, price[:, 0], inf), axis=1)
    at_least = np.where(is_in_time, start + work[:, None] * lowest, inf)
    least = np.full(len(work), inf)
    least[np.isnan(at_least).any(axis=1) | ~np.isfinite(at_least[:, -1])] = nan
    order = np.argsort(at_least, axis=1, kind="stable")
    supply, last_supply = amount * lengths[:, None, :], last_amount * lengths[:, None, :]
    tasks = np.arange(len(work))
    for turn in range(order.shape[1]):
        ends_in = order[:, turn]
        tasks = tasks[at_least[tasks, ends_in[tasks]] < least[tasks]]
        if not len(tasks):
            break
        k = ends_in[tasks]
        before = np.arange(len(grid_s))[None, None, : k.max()] < k[:, None, None]
        own = np.where(before, supply[tasks, :, : k.max()], 0.0)
        paid = _cheapest(
            np.hstack([_flat(price[tasks, :, : k.max()]), last_price[tasks, :, k]]),
            np.hstack([_flat(own), last_supply[tasks, :, k]]),
            work[tasks],
        )
        least[tasks] = np.fmin(least[tasks], start[tasks, k] + paid)
        least[tasks[~np.isfinite(paid)]] = nan
    return least


def _flat(offers: Floats) -> Floats:
    return offers.reshape(len(offers), -1)


def _cheapest(price: Floats, amount: Floats, need: Floats) -> Floats:
    """Return what the cheapest of the offers of each row cost that make up what it needs."""
    order = np.argsort(price, axis=1, kind="stable")
    there = np.minimum(np.take_along_axis(amount, order, axis=1), need[:, None])
    before = np.cumsum(there, axis=1) - there
    taken = np.clip(need[:, None] - before, 0.0, there)
    cost: Floats = (taken * np.take_along_axis(price, order, axis=1)).sum(axis=1)
    return cost


def _rounding(tariff: Tariff, tasks: list[Task]) -> float:
    most = max((len(task.alternatives) for task in tasks), default=0)
    return ROUNDING + PER_OFFER * most * len(tariff.grid_s)


def exact_sum(terms: list[float]) -> float:
    """Return a sum without rounding; not a number where a term is none, or it is too large."""
    if not all(map(isfinite, terms)):
        return nan
    try:
        return fsum(terms)
    except OverflowError:
        return nan
