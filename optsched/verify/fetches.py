"""Which starts of a plan fetch their model, from the plan alone: a replay of every node's cache."""

import math
from itertools import groupby

from ..model.instance import Instance, Placement
from ..model.job import Job
from ..model.plan import JobPlan, Plan

Fetches = dict[tuple[str, float], float]
"""Seconds of fetching by job and start; starts without are left out."""


def fetches(instance: Instance, plan: Plan) -> Fetches:
    """Return the seconds that each start spends on its model, after the rules of
    `docs/concepts.md`.

    All starts in time order. Those of one instant see the caches as they were before it, then their
    models enter in the order of the jobs, the one used longest ago leaving first. A lost node loses
    its cache. O(starts) x models held.
    """
    from .progress import starts

    if not any(job.profile.fetch_s for job in instance.jobs):
        return {}
    index = {job.id: i for i, job in enumerate(instance.jobs)}
    held: dict[str, list[tuple[str, float]]] = {
        node.name: [] for node in instance.cluster.nodes
    }  # oldest first
    for entry in sorted(instance.running, key=lambda one: (one.started_s, index[one.job])):
        _enter(instance, held, instance.job[entry.job], entry.placement)
    events: list[tuple[float, int, JobPlan | str, Placement]] = [
        (segment.start_s, index[entry.id], entry, segment.placement)
        for entry in plan.jobs
        if instance.job[entry.id].profile.fetch_s
        for segment in starts(instance, entry)
    ]
    events += [(outage.start_s, -1, outage.node, ()) for outage in instance.outages]
    events.sort(key=lambda event: event[:2])
    found: Fetches = {}
    for start_s, together in groupby(events, key=lambda event: event[0]):
        now = list(together)
        for _, _, what, placement in now:
            if isinstance(what, JobPlan):
                profile = instance.job[what.id].profile
                lacks = [
                    profile.name not in [name for name, _ in held[slot.node]] for slot in placement
                ]
                if not placement or any(lacks):
                    found[what.id, start_s] = profile.fetch_s
        for _, _, what, placement in now:
            if isinstance(what, JobPlan):
                _enter(instance, held, instance.job[what.id], placement)
            else:
                held[what] = []
    return found


def _enter(
    instance: Instance, held: dict[str, list[tuple[str, float]]], job: Job, placement: Placement
) -> None:
    name, gib = job.profile.name, job.profile.model_gib
    if name is None or not job.profile.fetch_s:
        return
    for slot in placement:
        capacity = instance.cluster.node[slot.node].model_cache_gib
        if capacity is None or gib > capacity:
            continue
        kept = [one for one in held[slot.node] if one[0] != name] + [(name, gib)]
        while math.fsum(size for _, size in kept) > capacity:
            kept.pop(0)
        held[slot.node] = kept
