"""The bound by prices on GPU time of an objective: the search for it, and its certificate."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

import numpy as np

from ..errors import InputError
from ..files import InstanceRef, instance_hash
from ..files.certificate import Certificate, TypePrices
from ..model.instance import Instance
from ..objectives import TERMS, Objective, RankOfJobs, SumOfJobs, Usage
from . import Bound, lower_bounds
from .ascent import ascend
from .deadlines import Deadlines
from .fluid import fluid, resampled, thinned
from .market import Market, market
from .mode_table import Floats
from .priced import Prices
from .refutation import Refutation

STEPS = 120
INTERVALS = (24, 48, 96)
"""The grids of the search for sums, one after the other: on a coarse one a step is cheap and goes
far."""
SHARES = (0.4, 0.7, 1.0)
"""The share of all steps after which each of them is left."""
REFINED = 0.01
"""How much more, relative to the bound in hand, a finer grid is hoped to show."""
INSTANTS = 64
"""At most so many instants at which prices change in the search for largest costs."""
SOURCE = "prices on GPU time"


@dataclass(frozen=True, slots=True)
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
        case (((1.0, (SumOfJobs() | RankOfJobs()) as term),),) if term.is_priced:
            return term
        case _:
            known = ", ".join(
                name
                for name, term in TERMS.items()
                if not isinstance(term, Usage) and term.is_priced
            )
            raise InputError(f"prices bound {known}, each alone, not {objective.name}")


def searching(
    instance: Instance, objective: Objective, done: Stop, target: float | None = None
) -> Iterator[PricesFound]:
    """Yield the best prices so far, after each step, until `done` says 1: for "wct" from those of a
    fluid schedule, on finer and finer grids; `target` is the value of a plan, where one is known.
    Raises InputError as `check_objective` and `lower_bounds`."""
    term = check_objective(objective)
    made = market(instance)
    if not made.buyers:
        return
    [known] = lower_bounds(instance, objective)
    match term:
        case SumOfJobs():
            if any(buyer.weight > 0 for buyer in made.buyers):
                yield from _sum(made, done, known.value, target)
        case RankOfJobs():
            yield from _largest(instance, made, term, done, known.value)
        case _:
            assert_never(term)


def _sum(made: Market, done: Stop, known: float, target: float | None) -> Iterator[PricesFound]:
    first = fluid(made)
    if target is None:
        target = max(first.value, known + 0.05 * abs(known))
    step, best = 0, None
    for intervals, share in zip(INTERVALS, SHARES, strict=True):
        grid = first.grid(intervals)
        prices = first.on(grid) if best is None else resampled(best.prices, best.grid_s, grid)
        distance = None if best is None else REFINED * abs(best.value)
        evaluate = partial(_evaluated, made, grid)
        for value, at in ascend(evaluate, np.diff(grid), distance, target, prices):
            if best is None or value > best.value:
                best = PricesFound(step, value, grid, at)
            yield replace(best, step=step)
            if done(step) >= share:
                break
            step += 1
        if done(step) >= 1:
            return


def _evaluated(made: Market, grid_s: Floats, prices: Floats) -> tuple[float, Floats]:
    """Return the bound at prices of a grid, and its supergradient."""
    priced = Prices(made, grid_s.tolist(), prices.tolist())
    bought = np.zeros_like(prices).tolist()
    paid = sum(priced.least(buyer, bought) for buyer in made.buyers)
    there = np.array(made.capacity)[:, None] * np.diff(grid_s)
    return made.offset + paid - priced.worth(), np.array(bought).reshape(prices.shape) - there


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
    instance: Instance, objective: Objective, best: PricesFound | None
) -> tuple[Bound, Certificate]:
    """Return the result of a search, or of none, as `priced_bound` gives it: the certificate has
    the bound that its prices prove, or refute for a largest cost. Raises InputError as that."""
    term = check_objective(objective)
    types = instance.cluster.gpu_types if instance.jobs else ()
    grid = [0.0, 1.0] if best is None else best.grid_s.tolist()
    prices = [[0.0] * (len(grid) - 1) for _ in types] if best is None else best.prices.tolist()
    proved = 0.0
    if instance.jobs:
        made = market(instance)
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
            for gpu_type, own in zip(types, prices, strict=True)
        ),
    )
    [known] = lower_bounds(instance, objective)
    if proved > known.value:
        known = Bound(level=0, value=proved, source=SOURCE, preemptive=True)
    return known, certificate
