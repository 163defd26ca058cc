"""One machine that does a unit of work a second and may switch jobs at any time, in O(n log n)."""

import heapq
from collections.abc import Iterator

import numpy as np

from .mode_table import Floats, Ints


def first_come_ends(heads_s: Floats, work_s: Floats) -> Floats:
    """Return when each job ends if they are served in the order of their heads: one schedule, so no
    bound, but a limit on how good a bound by sums of ends can be."""
    order = np.argsort(heads_s, kind="stable")
    done = np.cumsum(work_s[order])
    ends = np.empty(len(work_s))
    ends[order] = done + np.maximum.accumulate(heads_s[order] - (done - work_s[order]))
    return ends


def mean_busy_times(heads_s: Floats, work_s: Floats, weights: Floats) -> Floats:
    """Return the mean busy time of each job where the sum of weight x mean busy time is least: the
    job of largest weight / work that is there goes first.

    Goemans, A supermodular relaxation for scheduling with release dates, IPCO 1996. With all heads
    equal this is Smith's rule less half of each job, hence the bound of Eastman, Even and Isaacs
    (1964).
    """
    times = np.zeros(len(work_s))
    if not len(work_s):
        return times
    by_ratio = np.argsort(-(weights / work_s), kind="stable")
    if heads_s.min() == heads_s.max():
        times[by_ratio] = heads_s[0] + np.cumsum(work_s[by_ratio]) - work_s[by_ratio] / 2
        return times
    rank = np.empty(len(work_s), np.int64)
    rank[by_ratio] = np.arange(len(work_s))
    busy = [0.0] * len(work_s)
    for job, start_s, step_s, _ in _served(heads_s, work_s, rank):
        busy[job] += step_s * (start_s + step_s / 2)
    return np.array(busy) / work_s


def srpt_cost(heads_s: Floats, work_s: Floats) -> float:
    """Return the least sum of completion times: shortest remaining work first (Schrage, Operations
    Research 1968)."""
    pieces = _served(heads_s, work_s, work_s, shrinks=True)
    return sum((start_s + step_s for _, start_s, step_s, ends in pieces if ends), 0.0)


def edd_lateness(heads_s: Floats, work_s: Floats, due_s: Floats) -> float:
    """Return the least largest lateness: earliest due date first (Horn, Naval Research Logistics
    Quarterly 1974)."""
    due = due_s.tolist()
    pieces = _served(heads_s, work_s, due_s)
    late_s = (start_s + step_s - due[job] for job, start_s, step_s, ends in pieces if ends)
    return float(max(late_s))


def _served(
    heads_s: Floats, work_s: Floats, ranks: Floats | Ints, shrinks: bool = False
) -> Iterator[tuple[int, float, float, bool]]:
    """Yield each stretch of work on one job: the job, start and length, and whether the job ends.
    At any time the job of lowest rank that is there is served; with `shrinks` a rank is the work
    left."""
    heads, left, rank = heads_s.tolist(), work_s.tolist(), ranks.tolist()
    arrivals = np.lexsort((ranks, heads_s)).tolist()
    now_s, next_, count = heads[arrivals[0]], 0, len(arrivals)
    waiting: list[tuple[float, int]] = []
    while next_ < count or waiting:
        if not waiting:
            now_s = max(now_s, heads[arrivals[next_]])
        while next_ < count and heads[arrivals[next_]] <= now_s:
            job = arrivals[next_]
            heapq.heappush(waiting, (rank[job], job))
            next_ += 1
        job, start_s = waiting[0][1], now_s
        until_s = heads[arrivals[next_]] if next_ < count else float("inf")
        ends = now_s + left[job] <= until_s
        step_s = left[job] if ends else until_s - now_s
        if ends:
            heapq.heappop(waiting)
            now_s += step_s
        else:
            left[job] -= step_s
            now_s = until_s
            if shrinks:
                heapq.heapreplace(waiting, (left[job], job))
        yield job, start_s, step_s, ends


def last_end_s(heads_s: Floats, work_s: Floats, tails_s: Floats) -> float:
    """Return the least largest completion + tail: the longest tail first (Jackson's preemptive
    schedule; Carlier, EJOR 1982)."""
    if tails_s.any():
        return edd_lateness(heads_s, work_s, -tails_s)
    return float(first_come_ends(heads_s, work_s).max())
