"""How long jobs wait, and for what (the split of Jeon et al., Analysis of Large-Scale Multi-Tenant
GPU Clusters, USENIX ATC 2019, section 3.1: fair-share and fragmentation delay; the rest, when
others hold the GPUs, is price delay)."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from ...frozen import entity
from ...model import Cluster
from ..record import Floats, Ints, Record
from .classes import Classes
from .stays import WENT_ON, Stays
from .timeline import Headroom, Timeline

REASONS = ("decision", "fair_share", "fragmentation", "price")
"""What a job waits for, in the order in which it is asked."""
DECISION, FAIR_SHARE, FRAGMENTATION, PRICE = range(4)

Needs = tuple[tuple[int, int], ...]
"""The smallest gang on each pool that can run a job: a GPU type by its position, or the cores."""


@entity
class Waits:
    """The wait before each stay: from when, and the seconds spent on each of `REASONS`, which add
    up to it."""

    from_s: Floats
    seconds: Floats


def waits(rows: Record, stays: Stays, job_classes: Classes, ready_s: Floats) -> Waits:
    """Return the waits of a record in the order of `by_job`. O(r log r) for r rows, and O(r) for
    each size of gang."""
    from_s = np.append(0.0, stays.end_s)[: len(stays.job)]
    first = np.append(True, stays.job[1:] != stays.job[:-1])[: len(stays.job)]
    from_s[first] = ready_s[stays.job[first]]
    from_s = np.where(stays.before == WENT_ON, stays.start_s, np.minimum(from_s, stays.start_s))
    decided_s = _decided_s(rows.decision_s, from_s, stays.start_s)
    seconds = np.zeros((len(from_s), len(REASONS)))
    seconds[:, DECISION] = decided_s - from_s
    some = np.flatnonzero(stays.start_s > decided_s)
    if len(some):
        timeline = Timeline(rows, decided_s[some], stays.start_s[some])
        quota_pool, headrooms = timeline.quota_pool(), timeline.headrooms()
        for needs, by_tenant in _by_need(rows, job_classes, stays.job[some]).items():
            for which, part in _split(timeline, needs, by_tenant, quota_pool, headrooms):
                seconds[some[which], FAIR_SHARE] = part[0]
                seconds[some[which], FRAGMENTATION] = part[1]
        waited_s = stays.start_s[some] - decided_s[some]
        seconds[some, PRICE] = np.maximum(
            0.0, waited_s - seconds[some, FAIR_SHARE] - seconds[some, FRAGMENTATION]
        )
    return Waits(from_s, seconds)


def _decided_s(decision_s: Floats, from_s: Floats, start_s: Floats) -> Floats:
    """Return the first decision in each wait; its start where no decision is known."""
    if not len(decision_s):
        return from_s.copy()
    following = np.searchsorted(decision_s, from_s)
    next_s = decision_s[np.minimum(following, len(decision_s) - 1)]
    return np.clip(np.where(following < len(decision_s), next_s, start_s), from_s, start_s)


def _by_need(rows: Record, job_classes: Classes, jobs: Ints) -> dict[Needs, dict[str | None, Ints]]:
    """Return which of the waits of `jobs` are of jobs with the same needs, by need, and of these
    those of each tenant with a quota."""
    instance = rows.instance
    codes: dict[tuple[Needs, str | None], int] = {}
    of_class = []
    for k, job in enumerate(job_classes.examples):
        tenant = job.tenant if job.tenant in instance.quotas.over else None
        of_class.append(
            codes.setdefault((_needs(instance.cluster, job_classes, k), tenant), len(codes))
        )
    of_wait = np.array(of_class)[job_classes.of_job[jobs]]
    order = np.argsort(of_wait, kind="stable")
    ends = np.cumsum(np.bincount(of_wait, minlength=len(codes)))
    groups: dict[Needs, dict[str | None, Ints]] = defaultdict(dict)
    for (needs, tenant), begin, end in zip(codes, np.append(0, ends), ends, strict=False):
        if end > begin:
            groups[needs][tenant] = order[begin:end]
    return groups


def _needs(cluster: Cluster, job_classes: Classes, k: int) -> Needs:
    smallest: dict[int, int] = {}
    for option in job_classes.options[k]:
        mode = option.mode
        if mode.gpus:
            pool = cluster.gpu_types.index(mode.gpu_type)
            smallest[pool] = min(mode.gpus, smallest.get(pool, mode.gpus))
        elif mode.cpus and all(node.cpus is not None for node in cluster.nodes):
            smallest[len(cluster.gpu_types)] = mode.cpus
    return tuple(sorted(smallest.items()))


def _split(
    timeline: Timeline,
    needs: Needs,
    by_tenant: dict[str | None, Ints],
    quota_pool: Floats | None,
    headrooms: dict[str, Headroom],
) -> list[tuple[Ints, tuple[Floats, Floats]]]:
    """Return seconds of fair-share and fragmentation delay in the waits of each tenant.

    A tenant's headroom changes much more seldom than what is free. So what is free is integrated
    once for all tenants, and a tenant takes from that what lies in the stretches in which its quota
    is used up.
    """
    every = np.concatenate([*by_tenant.values()])
    low, high = int(timeline.wait_from[every].min()), int(timeline.wait_to[every].max())
    times_s = timeline.times_s[low : high + 1]
    enough = np.zeros(high - low, dtype=bool)
    for pool, need in needs:
        enough |= timeline.free(pool)[low:high] >= need
    length_s = timeline.length_s[low:high]
    enough_s = _area(length_s, enough)
    gang = min((need for pool, need in needs if pool < len(timeline.cluster.gpu_types)), default=0)
    lent_s, enough_lent_s = times_s, enough_s
    if quota_pool is not None:
        lent = quota_pool[low:high] >= gang
        lent_s, enough_lent_s = _area(length_s, lent), _area(length_s, enough & lent)
    parts = []
    for tenant, which in by_tenant.items():
        begin, end = timeline.wait_from[which] - low, timeline.wait_to[which] - low
        if tenant is None or not gang:
            parts.append((which, (np.zeros(len(which)), enough_s[end] - enough_s[begin])))
            continue
        free_s = enough_lent_s[end] - enough_lent_s[begin]
        fair_s = (times_s[end] - times_s[begin]) - (lent_s[end] - lent_s[begin])
        full = headrooms[tenant].gpus < gang
        if full.any():
            stretches = _Stretches(np.clip(headrooms[tenant].at, low, high) - low, full, begin, end)
            fair_s += stretches.part(lent_s)
            free_s -= stretches.part(enough_lent_s)
        parts.append((which, (np.maximum(0.0, fair_s), np.maximum(0.0, free_s))))
    return parts


def _area(length_s: Floats, now: NDArray[np.bool_]) -> Floats:
    """Return seconds until each instant in which `now` holds; `length_s` is from each to the
    next."""
    area_s = np.zeros(len(length_s) + 1)
    np.cumsum(length_s * now, out=area_s[1:])
    return area_s


class _Stretches:
    """The stretches between positions `at` that are `full`, cut to each of some intervals."""

    def __init__(self, at: Ints, full: NDArray[np.bool_], begin: Ints, end: Ints) -> None:
        self._at, self._full, self._begin, self._end = at, full, begin, end
        self._first = np.searchsorted(at, begin, side="right") - 1
        self._last = np.searchsorted(at, end, side="right") - 1

    def part(self, area_s: Floats) -> Floats:
        """Return how much of an area lies in the stretches of each interval."""
        at_s = area_s[self._at]
        inside_s = np.concatenate(([0.0], np.cumsum(self._full[:-1] * np.diff(at_s))))

        def until(position: Ints, stretch: Ints) -> Floats:
            inside: Floats = inside_s[stretch] + self._full[stretch] * (
                area_s[position] - at_s[stretch]
            )
            return inside

        return until(self._end, self._last) - until(self._begin, self._first)
