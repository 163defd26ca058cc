"""The core problem: what prices leave undecided, as an exact program."""

import numpy as np

from optsched.frozen import entity
from optsched.round.model import NO_OPTION, Floats, Ints, RoundModel

SLACK = 1e-9
LEAST_WEIGHT = 0.01
"""A relaxed solution that takes an option less often does not take it."""


@entity
class Core:
    """The choices left to make: `options` of the jobs that are not decided, of which those that
    `must_run` do; `fixed` has the option of each decided job."""

    fixed: Ints
    options: Ints
    must_run: Ints


def core(model: RoundModel, reduced: Floats, difference: float) -> Core:
    """Return the core of reduced-cost fixing: an option whose reduced value is further from its
    job's best than `difference` (bound less the value in hand) is in no better solution, and a job
    whose best reduced value is above it must run."""
    job = model.options.job
    best = np.maximum.reduceat(reduced, model.options.first[:-1])
    floor = np.where(model.must, best, np.maximum(best, 0.0))
    margin = difference + SLACK * max(1.0, abs(difference))
    alive = floor[job] - reduced <= margin
    runs = model.must | (best > margin)
    decided = runs & (np.bincount(job[alive], minlength=len(model.jobs)) == 1)
    fixed = np.full(len(model.jobs), NO_OPTION, dtype=np.int64)
    only = np.flatnonzero(alive & decided[job])
    fixed[job[only]] = only
    return Core(fixed, np.flatnonzero(alive & ~decided[job]), np.flatnonzero(runs & ~decided))


def neighbourhood(
    model: RoundModel, reduced: Floats, weights: Floats, chosen: Ints, most: int
) -> Core:
    """Return the `most` options that are most in doubt, with those that their jobs have in the plan
    `chosen`; all other jobs stay as in that plan, which thus is a solution. No bound comes of it.

    First come options that the relaxation takes (`weights`) of jobs of which it would rather have
    another one than the plan has; then those that cost least by prices. After relaxation induced
    neighbourhoods (Danna, Rothberg and Le Pape, Mathematical Programming 102, 2005).
    """
    options, runs = model.options, chosen >= 0
    job, in_hand = options.job, chosen[runs]
    best = model.best_reduced(reduced)
    loss = best[job] - reduced
    agrees = 1.0 - np.bincount(job, weights=weights, minlength=len(model.jobs))
    agrees[runs] = weights[in_hand]
    torn = (agrees[job] < 1.0 - LEAST_WEIGHT) & (weights > LEAST_WEIGHT)
    others = loss.copy()
    others[in_hand] = np.inf
    change = np.minimum.reduceat(others, options.first[:-1])
    change = np.where(runs & ~model.must, np.minimum(change, best), change)
    certainty = np.where(torn, agrees[job] - 1.0, np.maximum(change[job], loss))
    opened = np.zeros(len(model.jobs), dtype=bool)
    doubtful = np.argsort(certainty, kind="stable")[:most]
    opened[job[doubtful]] = True
    for link in (options.host, options.rival):  # who depends on a job is open where it is
        linked = in_hand[link[in_hand] >= 0]
        opened[job[linked]] |= opened[link[linked]]
    own = np.union1d(doubtful, in_hand[opened[job[in_hand]]])
    fixed = np.where(opened, NO_OPTION, chosen)
    return Core(fixed, own, np.zeros(0, dtype=np.int64))
