"""A sharper bound from the same prices where quotas bind, and who fills them: GPUs come in gangs,
and few gangs fill a quota to the last GPU."""

import numpy as np

from optsched.round.model import NO_OPTION, Floats, Ints, RoundModel

MOST_WORK = 20_000_000
"""Most steps: options for each quota, and GPUs of quotas times their jobs."""
PREFERENCE = 1e-4
"""Of options of a job that take as much of a quota, the one that relaxed solutions always take is
preferred to one that is worth less than this more."""


def fill_quotas(model: RoundModel, prices: Floats, weights: Floats) -> tuple[float, dict[int, int]]:
    """Return a proven limit on the value of any choice: that of the prices, but with quotas that
    hold instead of being priced, as far as they have no job in common. Return too the options, or
    `NO_OPTION`, of the jobs in these quotas in a choice of that value; `weights` say how often
    relaxed solutions take each option."""
    rows, options = model.rows, model.options
    reduced = model.reduced_values(prices)
    earned, saved, work = model.best_reduced(reduced), 0.0, 0
    filled: dict[int, int] = {}
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
        gpus = np.floor(takes).astype(np.int64)
        within, chosen = _most_within(model, jobs, value, weights, gpus, most)
        priced = prices[row] * rows.capacity[row] + float(earned[jobs].sum())
        if np.isfinite(within):
            saved += max(0.0, priced - within)
            filled |= chosen
    return model.bound(prices) - saved, filled


def _most_within(
    model: RoundModel, jobs: Ints, value: Floats, weights: Floats, gpus: Ints, most: int
) -> tuple[float, dict[int, int]]:
    """Return the largest total value of one option for each of `jobs`, or none where that is
    allowed, which takes at most so many GPUs, and these options: by dynamic programming, job after
    job, over the GPUs that are taken."""
    best, steps = np.zeros(most + 1), []
    liked = value + PREFERENCE * weights
    for j in jobs.tolist():
        must = bool(model.must[j])
        worth: dict[int, float] = {} if must else {0: 0.0}
        option = dict.fromkeys(worth, NO_OPTION)
        for o in reversed(model.options.ranked(j, liked)):
            taken, its = int(gpus[o]), float(value[o])
            if taken <= most and (must or its > 0):
                worth[taken], option[taken] = max(its, worth.get(taken, its)), o
        with_job = np.full(most + 1, -np.inf)
        chosen = np.full(most + 1, NO_OPTION)
        for taken, its in worth.items():
            sums = best[: most + 1 - taken] + its
            better = sums > with_job[taken:]
            with_job[taken:][better] = sums[better]
            chosen[taken:][better] = option[taken]
        best = with_job
        steps.append((j, chosen))
    filled, left = {}, most
    for j, chosen in reversed(steps):
        filled[j] = int(chosen[left])
        left -= int(gpus[filled[j]]) if filled[j] >= 0 else 0
    return float(best[-1]), filled
