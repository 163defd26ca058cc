"""From a round to the order in which Kueue is to look at Workloads, and why each stands where it
does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..model.instance import Instance
from ..objectives import Objective
from ..round.build import build
from ..round.plan import RoundSolution
from .boosts import Place, boosts
from .instance import Site, View
from .objects import Workload

GOES_ON, NEXT, LATER = 0, 1, 2
"""What runs and stays is above what is to be admitted next, as nobody may be preempted for that;
the rest is below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A Workload, where it stands in its pool and why, and the boost that puts it there. `worth` is
    that of a GPU."""

    workload: Workload
    pool: str
    tier: int
    worth: float
    gpus: int
    why: str
    boost: int = 0

    @property
    def changed(self) -> bool:
        return self.boost != self.workload.boost or (self.boost == 0 and self.workload.boosted)


def ranked(
    site: Site, seen: View, decided: RoundSolution, objective: Objective, round_s: float
) -> list[Ranked]:
    """Return all Workloads that were decided on, pool by pool from the top down, with their new
    boosts."""
    by_id = {one.id: one for one in site.workloads}
    worth = worths(seen.instance, objective, round_s)
    tiers = _tiers(by_id, decided)
    pools: dict[str, list[Ranked]] = {}
    for entry in decided.jobs:
        one = by_id[entry.id]
        pool = site.queues[one.queue].pool
        gpus = round(
            sum(amount for (_, what), amount in one.held.items() if what == site.gpu)
            if one.held is not None
            else one.asks.get(site.gpu, 0)
        )
        pools.setdefault(pool, []).append(
            Ranked(
                workload=one,
                pool=pool,
                tier=tiers[one.id],
                worth=worth.get(one.id, 0.0),
                gpus=gpus,
                why=entry.decision,
            )
        )
    found: list[Ranked] = []
    for pool in sorted(pools):
        equal = any(queue.preempts_equal for queue in site.queues.values() if queue.pool == pool)
        found += _boosted(pools[pool], equal)
    return found


def worths(instance: Instance, objective: Objective, round_s: float) -> dict[str, float]:
    """Return what each job is worth per GPU in its best option, as rounds value it."""
    model = build(instance, objective, round_s)
    found = {}
    for j, job in enumerate(model.jobs):
        options = model.options.of(j)
        gpus = np.maximum(1.0, model.patterns.gpus[model.options.pattern[options]])
        found[job.id] = float((model.options.value[options] / gpus).max(initial=0.0))
    return found


def _tiers(by_id: Mapping[str, Workload], decided: RoundSolution) -> dict[str, int]:
    """Return the tiers. A running Workload gives way only to one of its own queue: Kueue preempts
    across queues by rules of its own."""
    starts = {
        by_id[entry.id].queue for entry in decided.jobs if entry.decision in ("start", "resume")
    }
    tiers = {}
    for entry in decided.jobs:
        one = by_id[entry.id]
        if one.held is not None:
            tiers[one.id] = (
                LATER if entry.decision == "preempt" and one.queue in starts else GOES_ON
            )
        else:
            tiers[one.id] = LATER if entry.decision == "wait" else NEXT
    return tiers


def _boosted(pool: Sequence[Ranked], equal: bool) -> list[Ranked]:
    """Return the pool in its order, boosted; `equal` says that somebody of it may preempt newer
    ones of the same priority."""

    def effective(one: Ranked) -> int:
        return one.workload.priority + one.workload.boost

    order = sorted(
        pool,
        key=lambda one: (
            one.tier,
            -effective(one) if one.tier == GOES_ON else -one.worth,
            one.workload.created_s,
            one.workload.id,
        ),
    )
    places = [
        Place(
            base=one.workload.priority,
            boost=one.workload.boost,
            below=before is None or _below(before, one, equal),
        )
        for before, one in zip([None, *order], order, strict=False)
    ]
    wanted = boosts(places)
    waiting = sum(one.workload.held is None for one in order)
    found, number = [], 0
    for one, boost in zip(order, wanted, strict=True):
        number += one.workload.held is None
        found.append(replace(one, boost=boost, why=_why(one, number, waiting)))
    return found


def _below(before: Ranked, one: Ranked, equal: bool) -> bool:
    """Return whether its priority must be less than that of the one before it. Kueue preempts
    those of lower priority, and of equals admits the one that was created first."""
    if before.tier == GOES_ON:
        return equal and one.tier != GOES_ON
    return one.workload.held is not None or not before.workload.created_s < one.workload.created_s


def _why(one: Ranked, number: int, waiting: int) -> str:
    if one.workload.held is not None:
        if one.tier == LATER:
            return "gives way: what starts in its place is worth more, its lost work counted"
        return "goes on"
    if one.tier == NEXT:
        return "is to be admitted now"
    return f"waits: number {number} of {waiting} in line"
