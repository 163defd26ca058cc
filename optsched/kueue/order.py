"""From a round to the order in which Kueue is to look at Workloads, and why each stands where it
does."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..frozen import frozen
from ..model import Instance
from ..objectives import Objective
from ..round.build import build
from ..round.plan import RoundSolution
from .boosts import Place, boosts
from .instance import Site, View
from .objects import Workload

GOES_ON, NEXT, LATER = 0, 1, 2
"""What runs and stays is above what is to be admitted next, as nobody may be preempted for that;
the rest is below."""


@frozen
class Ranked:
    """A Workload, where it stands in its pool and why, and the boost that puts it there. `worth` is
    that of a GPU, and `priority` goes before it; it is 0 where priorities are weights."""

    workload: Workload
    tier: int
    priority: int
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
    by_id = {workload.id: workload for workload in site.workloads}
    worth = worths(seen.instance, objective, round_s)
    tiers = _tiers(by_id, decided)
    pools: dict[str, list[Ranked]] = {}
    for entry in decided.jobs:
        workload = by_id[entry.id]
        pool = site.queues[workload.queue].pool
        gpus = round(
            sum(amount for (_, what), amount in workload.held.items() if what == site.gpu)
            if workload.held is not None
            else workload.asks.get(site.gpu, 0)
        )
        pools.setdefault(pool, []).append(
            Ranked(
                workload=workload,
                tier=tiers[workload.id],
                priority=seen.instance.job[workload.id].priority,
                worth=worth.get(workload.id, 0.0),
                gpus=gpus,
                why=entry.decision,
            )
        )
    ordered: list[Ranked] = []
    for pool in sorted(pools):
        equal = any(queue.preempts_equal for queue in site.queues.values() if queue.pool == pool)
        ordered += _boosted(pools[pool], equal)
    return ordered


def worths(instance: Instance, objective: Objective, round_s: float) -> dict[str, float]:
    """Return what each job is worth per GPU in its best option, as rounds value it."""
    model = build(instance, objective, round_s)
    values = {}
    for j, job in enumerate(model.jobs):
        options = model.options.of(j)
        gpus = np.maximum(1.0, model.patterns.gpus[model.options.pattern[options]])
        values[job.id] = float((model.options.value[options] / gpus).max(initial=0.0))
    return values


def _tiers(by_id: Mapping[str, Workload], decided: RoundSolution) -> dict[str, int]:
    """Return the tiers. A running Workload gives way only to one of its own queue: Kueue preempts
    across queues by rules of its own."""
    starts = {
        by_id[entry.id].queue for entry in decided.jobs if entry.decision in ("start", "resume")
    }
    tiers = {}
    for entry in decided.jobs:
        workload = by_id[entry.id]
        if workload.held is not None:
            tiers[workload.id] = (
                LATER if entry.decision == "preempt" and workload.queue in starts else GOES_ON
            )
        else:
            tiers[workload.id] = LATER if entry.decision == "wait" else NEXT
    return tiers


def _boosted(pool: Sequence[Ranked], equal: bool) -> list[Ranked]:
    """Return the pool in its order, boosted; `equal` says that somebody of it may preempt newer
    ones of the same priority."""

    def effective(entry: Ranked) -> int:
        return entry.workload.priority + entry.workload.boost

    order = sorted(
        pool,
        key=lambda entry: (
            entry.tier,
            (-effective(entry),) if entry.tier == GOES_ON else (-entry.priority, -entry.worth),
            entry.workload.created_s,
            entry.workload.id,
        ),
    )
    places = [
        Place(
            base=entry.workload.priority,
            boost=entry.workload.boost,
            below=before is None or _below(before, entry, equal),
        )
        for before, entry in zip([None, *order], order, strict=False)
    ]
    wanted = boosts(places)
    waiting = sum(entry.workload.held is None for entry in order)
    starts = max((entry.priority for entry in order if entry.tier == NEXT), default=0)
    boosted, number = [], 0
    for entry, boost in zip(order, wanted, strict=True):
        number += entry.workload.held is None
        boosted.append(replace(entry, boost=boost, why=_why(entry, number, waiting, starts)))
    return boosted


def _below(before: Ranked, entry: Ranked, equal: bool) -> bool:
    """Return whether its priority must be less than that of the one before it. Kueue preempts
    those of lower priority, and of equals admits the one that was created first."""
    if before.tier == GOES_ON:
        return equal and entry.tier != GOES_ON
    return (
        entry.workload.held is not None or not before.workload.created_s < entry.workload.created_s
    )


def _why(entry: Ranked, number: int, waiting: int, starts: int) -> str:
    """Return why it stands where it does, `number` of those that wait; `starts` is the highest
    priority of those that are to be admitted."""
    if entry.workload.held is not None:
        if entry.tier == LATER:
            if starts > entry.priority:
                return "gives way: what starts in its place is of a higher priority"
            return "gives way: what starts in its place is worth more, its lost work counted"
        return "goes on"
    if entry.tier == NEXT:
        return "is to be admitted now"
    return f"waits: number {number} of {waiting} in line"
