"""The starts of a plan that fetch their model, from the plan alone: a replay of every node's
cache."""

import math
from itertools import groupby
from operator import itemgetter

from ..model import Instance, Job, Placement, Plan

Held = dict[str, list[tuple[str, float]]]
"""The models in the cache of each node, with their GiB, the one used longest ago first."""
LOST = -1
"""The loss of a node, in place of the number of a job."""
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
    index = instance.position
    held: Held = {node.name: [] for node in instance.cluster.nodes}
    for entry in sorted(instance.running, key=lambda entry: (entry.started_s, index[entry.job])):
        _enter(instance, held, instance.job[entry.job], entry.placement)
    events: list[tuple[float, int, str, Placement]] = [
        (segment.start_s, index[entry.id], entry.id, segment.placement)
        for entry in plan.jobs
        if instance.job[entry.id].profile.fetch_s
        for segment in starts(instance, entry)
    ]
    events += [(outage.start_s, LOST, outage.node, ()) for outage in instance.outages]
    events.sort(key=itemgetter(0, 1))
    fetched: Fetches = {}
    for start_s, together in groupby(events, key=itemgetter(0)):
        now = list(together)
        for _, number, name, placement in now:
            if number != LOST and not _is_held(held, instance.job[name], placement):
                fetched[name, start_s] = instance.job[name].profile.fetch_s
        for _, number, name, placement in now:
            if number == LOST:
                held[name] = []
            else:
                _enter(instance, held, instance.job[name], placement)
    return fetched


def _is_held(held: Held, job: Job, placement: Placement) -> bool:
    """Return whether every node of a placement, and there is one, has the model of a job."""
    model = job.profile.name
    return bool(placement) and all(
        any(model == name for name, _ in held[slot.node]) for slot in placement
    )


def _enter(instance: Instance, held: Held, job: Job, placement: Placement) -> None:
    name, gib = job.profile.name, job.profile.model_gib
    if name is None or not job.profile.fetch_s:
        return
    for slot in placement:
        capacity = instance.cluster.node[slot.node].model_cache_gib
        if capacity is None or gib > capacity:
            continue
        models = [model for model in held[slot.node] if model[0] != name] + [(name, gib)]
        while math.fsum(size for _, size in models) > capacity:
            models.pop(0)
        held[slot.node] = models
