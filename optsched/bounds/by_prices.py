"""The bound by prices on GPU time of an objective: the search for it, and its certificate."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import assert_never

import numpy as np

from ..errors import InputError
from ..files import InstanceRef, instance_hash
from ..files.certificate import Certificate, QuotaPrices, TypePrices
from ..frozen import record
from ..model import Instance
from ..objectives import TERMS, Objective, RankOfJobs, SumOfJobs, Usage
from . import Bound, lower_bounds
from .deadlines import Deadlines
from .fluid import fluid, resampled, thinned
from .market import Buyer, Market, market
from .master import Master
from .mode_table import Floats
from .priced import Prices
from .refutation import Refutation

STEPS = 60
GRIDS = ((24, 0.2), (48, 0.4), (96, 0.6), (192, 0.8), (384, 1.0))
"""The grids of the search for sums, finer and finer, with the share of all steps after which each
is left: a step is cheap on a coarse one."""
CLOSED = 5e-4
"""A grid is left, too, once no prices on it prove so much more, relative to the bound in hand."""
GROUPS = 512
"""At most so many groups of jobs, whose schedules are mixed each by itself."""
RADIUS, FLOOR, NEAREST = 0.5, 0.25, 0.1
"""Prices are tried this far from the best of the grid at first, relative to each, and beside that
so much of the mean worth of an interval; twice as far after a step that brought half of what the
program promised, half as far after one that brought nothing (Marsten, Hogan and Blankenship,
Operations Research 23, 1975)."""
INSTANTS = 64
"""At most so many instants at which prices change in the search for largest costs."""
SOURCE = "prices on GPU time"


@record
class PricesFound:
    """The bound after so many steps of a search, and its prices by GPU type and interval."""

    step: int
    value: float
    grid_s: Floats
    prices: Floats


Stop = Callable[[int], float]
"""How much of the search is done after so many steps, from 0 to 1."""


def check_objective(objective: Objective) -> SumOfJobs | RankOfJobs:
    """Return the one term of an objective that prices bound. Raises InputError for any other."""
    match objective.levels:
        case (((1.0, (SumOfJobs() | RankOfJobs()) as term),),) if (
            term.is_priced and term.priority is None
        ):
            return term
        case _:
            known = ", ".join(
                name
                for name, term in TERMS.items()
                if not isinstance(term, Usage) and term.is_priced
            )
            raise InputError(f"prices bound {known}, each alone, not {objective.name}")


def searching(
    instance: Instance, objective: Objective, done: Stop, replay: bool = False
) -> Iterator[PricesFound]:
    """Yield the best prices so far, after each step, until `done` says 1 or no step leads on; with
    `replay` for schedules in which the attempts of the instance fail. Raises InputError as
    `check_objective` and `lower_bounds`."""
    term = check_objective(objective)
    made = market(instance, replay)
    if not made.buyers:
        return
    match term:
        case SumOfJobs():
            if any(buyer.weight > 0 for buyer in made.buyers):
                yield from _sum(made, done)
        case RankOfJobs():
            [known] = lower_bounds(instance, objective, replay)
            yield from _largest(instance, made, term, done, known.value)
        case _:
            assert_never(term)


def _sum(made: Market, done: Stop) -> Iterator[PricesFound]:
    """Yield the best prices after each step of column generation, from those of a fluid schedule
    on."""
    first = fluid(made)
    buyers = [buyer for buyer in made.buyers if buyer.weight > 0]
    count = min(len(buyers), GROUPS)
    groups = [
        buyers[len(buyers) * g // count : len(buyers) * (g + 1) // count] for g in range(count)
    ]
    step, best = 0, PricesFound(0, -math.inf, np.array([0.0, 1.0]), np.zeros((0, 1)))
    for intervals, share in GRIDS:
        grid = first.grid(intervals)
        center = first.on(grid) if not step else resampled(best.prices, best.grid_s, grid)
        there = np.array(made.capacity)[:, None] * np.diff(grid)
        region = _Region(center)
        master = Master(there, count, first.value)
        while True:
            value, columns = _columns(made, groups, grid, region.tried)
            region.tried_at(value)
            if value > best.value:
                best = PricesFound(step, value, grid, region.tried)
            yield replace(best, step=step)
            if done(step) >= share or not there.size:
                break
            step += 1
            for g, (cost, bought) in enumerate(columns):
                master.add(g, cost, bought)
            if not region.move(master, there, made.offset):
                break
        if done(step) >= 1:
            return


class _Region:
    """The prices that are tried on a grid: never far from the best so far."""

    def __init__(self, first: Floats) -> None:
        self.tried = self._center = first
        self._value, self._promised, self._radius = -math.inf, -math.inf, RADIUS

    def tried_at(self, value: float) -> None:
        """Note the bound at the prices that were tried."""
        if value <= self._value:
            self._radius = max(self._radius / 2, NEAREST)
            return
        if value - self._value > (self._promised - self._value) / 2:
            self._radius *= 2
        self._value, self._center = value, self.tried

    def move(self, master: Master, there: Floats, offset: float) -> bool:
        """Try the prices next that the program proposes; False where they promise too little."""
        mean = float((self._center * there).sum()) / there.shape[1]
        far = self._radius * (self._center + FLOOR * mean / there)
        proposed = master.solve(np.maximum(self._center - far, 0.0), self._center + far)
        if proposed is None:
            return False
        self._promised, self.tried = offset + proposed[0], proposed[1]
        return self._promised - self._value > CLOSED * abs(self._value)


def _columns(
    made: Market, groups: list[list[Buyer]], grid_s: Floats, prices: Floats
) -> tuple[float, list[tuple[float, Floats]]]:
    """Return the bound at prices of a grid, and what each group buys, with what it pays besides."""
    priced = Prices(made, grid_s.tolist(), prices.tolist())
    total, columns = made.offset - priced.worth(), []
    for group in groups:
        bought = np.zeros_like(prices).tolist()
        paid = sum(priced.least(buyer, bought) for buyer in group)
        amounts = np.array(bought).reshape(prices.shape)
        columns.append((paid - float((amounts * prices).sum()), amounts))
        total += paid
    return total, columns


def _largest(
    instance: Instance, made: Market, term: RankOfJobs, done: Stop, known: float
) -> Iterator[PricesFound]:
    deadlines = Deadlines(instance, made, term)
    due_s = deadlines.at(known)
    points = np.array([0.0, *(buyer.head_s for buyer in made.buyers), *due_s])
    points = np.unique(points[(points == 0) | ((points > 0) & (points < max(due_s) * (1 - 1e-9)))])
    search = Refutation(made, deadlines, thinned(points, INSTANTS))
    for step, (value, prices) in enumerate(search.ascend(known)):
        grid = search.grid(value)
        yield PricesFound(step, value, grid, search.cells(prices, grid))
        if done(step) >= 1:
            return


def counted(steps: int) -> Stop:
    """Return a search that is done after so many steps: the same on every machine."""
    return lambda step: step / steps if steps else 1.0


def timed(time_limit_s: float) -> Stop:
    """Return a search that is done after so much time from now on."""
    started_s = time.monotonic()
    return lambda step: (time.monotonic() - started_s) / time_limit_s


def concluded(
    instance: Instance, objective: Objective, best: PricesFound | None, replay: bool = False
) -> tuple[Bound, Certificate]:
    """Return the result of a search, or of none, as `priced_bound` gives it: the certificate has
    the bound that its prices prove, or refute for a largest cost. Raises InputError as that."""
    term = check_objective(objective)
    made = market(instance, replay)
    types = instance.cluster.gpu_types if instance.jobs else ()
    grid = [0.0, 1.0] if best is None else best.grid_s.tolist()
    prices = (
        [[0.0] * (len(grid) - 1) for _ in made.capacity] if best is None else best.prices.tolist()
    )
    proved = 0.0
    if instance.jobs:
        tariff = Prices(made, grid, prices)
        match term:
            case SumOfJobs():
                proved = tariff.bound()
            case RankOfJobs():
                if best and tariff.refutes(Deadlines(instance, made, term).at(best.value)):
                    proved = best.value
            case _:
                assert_never(term)
    certificate = Certificate(
        format="optsched-bound/1",
        instance=InstanceRef(name=instance.name, hash=instance_hash(instance)),
        objective=term.name,  # type: ignore[arg-type]
        value=proved,
        grid_s=tuple(grid),
        prices=tuple(
            TypePrices(gpu_type=gpu_type, per_gpu_s=tuple(own))
            for gpu_type, own in zip(types, prices[: made.types], strict=True)
        ),
        quotas=tuple(
            QuotaPrices(tenant=tenant, per_gpu_s=tuple(own))
            for tenant, own in zip(made.tenants, prices[made.types :], strict=True)
            if any(own)
        ),
        replay=replay,
    )
    [known] = lower_bounds(instance, objective, replay)
    if proved > known.value:
        known = Bound(level=0, value=proved, source=SOURCE, preemptive=True)
    return known, certificate
