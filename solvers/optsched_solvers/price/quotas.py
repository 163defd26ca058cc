"""A sharper bound from the same prices where quotas bind: GPUs come in gangs, and few gangs fill a
quota to the last GPU."""

import numpy as np

from optsched.round.model import Floats, Ints, RoundModel

MOST_WORK = 20_000_000
"""Most steps: options for each quota, and GPUs of quotas times their jobs."""


def quota_bound(model: RoundModel, prices: Floats) -> float:
    """Return a proven limit on the value of any choice: that of the prices, but with quotas that
    hold instead of being priced, as far as they have no job in common."""
    rows, options = model.rows, model.options
    reduced = model.reduced_values(prices)
    earned, saved, work = model.best_reduced(reduced), 0.0, 0
    used = np.zeros(len(model.jobs), dtype=bool)
    for row in np.flatnonzero(prices > 0).tolist():
        if rows.limits[row].what != "quota":
            continue
        entries = np.flatnonzero(rows.row == row)
        amount = np.zeros(len(model.patterns.gpus))
        amount[rows.pattern[entries]] = rows.amount[entries]
        takes = amount[options.pattern]
        jobs = np.unique(options.job[takes > 0])
        most = int(rows.capacity[row] + 1e-9)
        work += len(takes) + max(0, most) * len(jobs)
        if work > MOST_WORK:
            break
        if used[jobs].any() or most < 0:
            continue
        used[jobs] = True
        value = reduced + prices[row] * takes
        within = _most_within(model, jobs, value, np.floor(takes).astype(np.int64), most)
        priced = prices[row] * rows.capacity[row] + float(earned[jobs].sum())
        if np.isfinite(within):
            saved += max(0.0, priced - within)
    return model.bound(prices) - saved


def _most_within(model: RoundModel, jobs: Ints, value: Floats, gpus: Ints, most: int) -> float:
    """Return the largest total value of one option for each of `jobs`, or none where that is
    allowed, which takes at most so many GPUs: by dynamic programming, job after job, over the GPUs
    that are taken."""
    best = np.zeros(most + 1)
    for j in jobs.tolist():
        own = model.options.of(j)
        ways = {} if model.must[j] else {0: 0.0}
        for taken, worth in zip(
            gpus[own.start : own.stop].tolist(), value[own.start : own.stop].tolist(), strict=True
        ):
            ways[taken] = max(ways.get(taken, -np.inf), worth)
        with_job = np.full(most + 1, -np.inf)
        for taken, worth in ways.items():
            if taken <= most:
                np.maximum(with_job[taken:], best[: most + 1 - taken] + worth, out=with_job[taken:])
        best = with_job
    return float(best[-1])
