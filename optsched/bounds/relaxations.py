"""One machine that does a unit of work a second and may switch jobs at any time, in O(n log n)."""

import heapq

import numpy as np

from .ways import Floats


def first_come_ends(heads_s: Floats, work_s: Floats) -> Floats:
    """When each job ends if they are served in the order of their heads: one schedule, so no bound,
    but a limit on how good a bound by sums of ends can be."""
    order = np.argsort(heads_s, kind="stable")
    done = np.cumsum(work_s[order])
    ends = np.empty(len(work_s))
    ends[order] = done + np.maximum.accumulate(heads_s[order] - (done - work_s[order]))
    return ends


def mean_busy_cost(heads_s: Floats, work_s: Floats, weights: Floats) -> float:
    """Least sum of weight x mean busy time: the job of largest weight / work that is there goes
    first.

    Goemans, A supermodular relaxation for scheduling with release dates, IPCO 1996. With all heads
    equal this is Smith's rule less half of each job, hence the bound of Eastman, Even and Isaacs
    (1964).
    """
    if not len(work_s):
        return 0.0
    by_ratio = np.argsort(-(weights / work_s), kind="stable")
    if heads_s.min() == heads_s.max():
        ends = np.cumsum(work_s[by_ratio])
        return float(np.dot(weights[by_ratio], heads_s[0] + ends - work_s[by_ratio] / 2))
    rank = np.empty(len(work_s), np.int64)
    rank[by_ratio] = np.arange(len(work_s))
    job_at, ranks = by_ratio.tolist(), rank.tolist()
    heads, left = heads_s.tolist(), work_s.tolist()
    density = (weights / work_s).tolist()
    arrivals = np.lexsort((rank, heads_s)).tolist()
    total, now_s, next_, count = 0.0, heads[arrivals[0]], 0, len(arrivals)
    waiting: list[int] = []
    while next_ < count or waiting:
        if not waiting:
            now_s = max(now_s, heads[arrivals[next_]])
        while next_ < count and heads[arrivals[next_]] <= now_s:
            heapq.heappush(waiting, ranks[arrivals[next_]])
            next_ += 1
        job = job_at[waiting[0]]
        until_s = heads[arrivals[next_]] if next_ < count else float("inf")
        step = left[job]
        if now_s + step > until_s:
            step = until_s - now_s
            left[job] -= step
        else:
            heapq.heappop(waiting)
        total += density[job] * step * (now_s + step / 2)
        now_s += step
    return total


def srpt_cost(heads_s: Floats, work_s: Floats) -> float:
    """Least sum of completion times: shortest remaining work first (Schrage, Operations Research
    1968)."""
    heads, work = heads_s.tolist(), work_s.tolist()
    arrivals = np.lexsort((work_s, heads_s)).tolist()
    total, now_s, next_, count = 0.0, 0.0, 0, len(arrivals)
    waiting: list[float] = []
    while next_ < count or waiting:
        if not waiting:
            now_s = heads[arrivals[next_]] if next_ == 0 else max(now_s, heads[arrivals[next_]])
        while next_ < count and heads[arrivals[next_]] <= now_s:
            heapq.heappush(waiting, work[arrivals[next_]])
            next_ += 1
        until_s = heads[arrivals[next_]] if next_ < count else float("inf")
        left = waiting[0]
        if now_s + left > until_s:
            heapq.heapreplace(waiting, left - (until_s - now_s))
            now_s = until_s
        else:
            heapq.heappop(waiting)
            now_s += left
            total += now_s
    return total


def edd_lateness(heads_s: Floats, work_s: Floats, due_s: Floats) -> float:
    """Least largest lateness: earliest due date first (Horn, Naval Research Logistics Quarterly
    1974)."""
    heads, left, due = heads_s.tolist(), work_s.tolist(), due_s.tolist()
    arrivals = np.argsort(heads_s, kind="stable").tolist()
    worst, now_s, next_, count = -float("inf"), 0.0, 0, len(arrivals)
    waiting: list[tuple[float, int]] = []
    while next_ < count or waiting:
        if not waiting:
            now_s = heads[arrivals[next_]] if next_ == 0 else max(now_s, heads[arrivals[next_]])
        while next_ < count and heads[arrivals[next_]] <= now_s:
            heapq.heappush(waiting, (due[arrivals[next_]], arrivals[next_]))
            next_ += 1
        until_s = heads[arrivals[next_]] if next_ < count else float("inf")
        due_at, job = waiting[0]
        if now_s + left[job] > until_s:
            left[job] -= until_s - now_s
            now_s = until_s
        else:
            heapq.heappop(waiting)
            now_s += left[job]
            worst = max(worst, now_s - due_at)
    return worst


def last_end_s(heads_s: Floats, work_s: Floats, tails_s: Floats) -> float:
    """Least largest completion + tail: the longest tail first (Jackson's preemptive schedule;
    Carlier, EJOR 1982)."""
    if tails_s.any():
        return edd_lateness(heads_s, work_s, -tails_s)
    return float(first_come_ends(heads_s, work_s).max())
