"""The core problem: what prices leave undecided, as an exact program."""

from dataclasses import dataclass

import numpy as np

from optsched.round.model import NO_OPTION, Floats, Ints, RoundModel

SLACK = 1e-9
MOST_HALVINGS = 60
"""After which a difference is none."""


@dataclass(frozen=True, slots=True, eq=False)
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


def near_core(model: RoundModel, reduced: Floats, difference: float, most: int) -> Core:
    """Return the core of the largest difference, of the halves of `difference`, that leaves at most
    so many options open. No bound comes of it."""
    for _ in range(MOST_HALVINGS):
        difference /= 2
        part = core(model, reduced, difference)
        if len(part.options) <= most:
            break
    return part
