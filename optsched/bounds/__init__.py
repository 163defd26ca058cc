"""Lower bounds that need no solver run: arithmetic on arrays, O(n log n) for n jobs.

Each holds for every plan that the verifier accepts, up to its tolerance of rounding, with any
number of preemptions, migrations and resizings; those with `preemptive` false hold for the plan
class only. What they relax: node boundaries, and all but one resource at a time.

GPUs that two jobs share are held once. A job that may share its GPUs therefore counts half on them
while it does, at the highest rate that it could have beside another.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from ..frozen import frozen
from ..model import Instance
from ..objectives import Objective, Term
from .mode_table import ModeTable, tabulate
from .terms import Outlook, look, term_bounds

if TYPE_CHECKING:
    from ..files.certificate import Certificate
    from .by_prices import PricesFound


@frozen
class Bound:
    """The proof of `source` that no plan has a smaller `value` in level `level` of the objective.

    `preemptive` true: holds for any preemptive schedule. False: where a waiting job runs in one
    piece and a running job continues or is preempted now and resumed in one piece.
    """

    level: int
    value: float
    source: str
    preemptive: bool


def lower_bounds(
    instance: Instance, objective: Objective, replay: bool = False
) -> tuple[Bound, ...]:
    """Return the best bound on each level of `objective` that holds for every plan the verifier
    accepts; with `replay` for those in which the attempts of the instance fail.

    `instance` is taken to be sound (`faults.find_faults`). Raises InputError for a job that fits
    nowhere.
    """
    return _best(all_bounds(instance, objective, plan_class=False, replay=replay))


def best_bounds(instance: Instance, objective: Objective) -> tuple[Bound, ...]:
    """Return the best bound on each level among plans of the plan class. Raises InputError as
    `lower_bounds`."""
    return _best(all_bounds(instance, objective))


def last(steps: "Iterator[PricesFound]") -> "PricesFound | None":
    """Return what the last step of a search finds, None where it has none."""
    return next(iter(deque(steps, maxlen=1)), None)


Follow = Callable[["Iterator[PricesFound]"], "PricesFound | None"]
"""Takes the steps of a search for prices and returns what its last one finds, as `last`."""


def priced_bound(
    instance: Instance,
    objective: Objective,
    steps: int | None = None,
    replay: bool = False,
    *,
    time_limit_s: float | None = None,
    follow: Follow = last,
) -> "tuple[Bound, Certificate]":
    """Return the bound by the prices on GPU time that so many steps of a search find, and its
    certificate; where `lower_bounds` knows a better one, that one, which the certificate falls
    short of. Seconds to minutes, the same on every machine unless a time limit takes the place of
    the steps.

    `objective` is "wct", "makespan" or "ftf" alone; `replay` as in `lower_bounds`. Raises
    InputError for other objectives and as `lower_bounds`.
    """
    from .by_prices import STEPS, concluded, counted, searching, timed

    done = timed(time_limit_s) if time_limit_s else counted(STEPS if steps is None else steps)
    best = follow(searching(instance, objective, done, replay))
    return concluded(instance, objective, best, replay)


def all_bounds(
    instance: Instance, objective: Objective, plan_class: bool = True, replay: bool = False
) -> list[Bound]:
    """Return every bound, level by level; those of the plan class only where they say more.

    `replay` as in `lower_bounds`. Raises InputError as that.
    """
    if not instance.jobs:
        return [
            Bound(level=number, value=0.0, source="no jobs", preemptive=True)
            for number in range(len(objective.levels))
        ]
    any_plan = tabulate(instance, preemptive=True, replay=replay)
    bounds = _every(instance, objective, any_plan)
    if plan_class:
        modes = tabulate(instance, preemptive=False, replay=replay)
        if instance.running or any_plan.mixes or _may_differ(modes):
            known = {(bound.level, bound.source): bound.value for bound in bounds}
            for bound in _every(instance, objective, modes):
                value = known.get((bound.level, bound.source), -math.inf)
                if bound.value > value + 1e-12 * abs(bound.value):
                    bounds.append(bound)
            bounds.sort(key=lambda bound: bound.level)
    return bounds


def _may_differ(modes: ModeTable) -> bool:
    elastic = any((held.most != held.starting).any() for held in (modes.gpus, modes.cores))
    return elastic or len(modes.job) > len(modes.first)


def _best(bounds: list[Bound]) -> tuple[Bound, ...]:
    by_level = groupby(bounds, key=attrgetter("level"))
    return tuple(max(level, key=attrgetter("value")) for _, level in by_level)


def _every(instance: Instance, objective: Objective, modes: ModeTable) -> list[Bound]:
    outlook = look(instance, modes)
    return [
        Bound(level=number, value=value, source=source, preemptive=modes.preemptive)
        for number, level in enumerate(objective.levels)
        for source, value in _level(instance, level, outlook).items()
    ]


def _level(
    instance: Instance, level: tuple[tuple[float, Term], ...], outlook: Outlook
) -> dict[str, float]:
    """Return bounds on one level by source. A weighted sum of terms is at least the weighted sum of
    their bounds."""
    if len(level) == 1:
        [(weight, term)] = level
        values: dict[str, float] = {}
        for value, source in term_bounds(term, instance, outlook):
            values[source] = max(weight * value, values.get(source, -math.inf))
        return values
    total, sources = 0.0, []
    for weight, term in level:
        value, source = max(term_bounds(term, instance, outlook), key=lambda bound: bound[0])
        total += weight * value
        sources.append(f"{term.name}: {source}")
    return {"; ".join(sources): total}
