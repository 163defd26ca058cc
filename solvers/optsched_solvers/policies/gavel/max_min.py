"""Gavel's heterogeneity-aware max-min fairness."""

import numpy as np

from .active import Active, Floats, Kinds
from .max_min_lp import solve
from .rounds import Rounds


class GavelMaxMin(Rounds):
    """Shares that give the worst-off job the most, each job's throughput counted in units of what it would get if its
    time were spread over the GPU types as the GPUs are, times its GPUs, over its weight.

    Where several shares do that, Gavel's simulator uses what an interior-point solver returns, and so does this policy:
    shares near the centre of all optimal ones, which spread whatever is not needed for the worst-off. A simplex
    method's corner instead gives most jobs no share of most types.

    Source: Narayanan et al., OSDI'20, section 4.1.
    """

    name = "gavel-max-min"
    title = "Gavel's max-min fairness over GPU types, in rounds"

    def shares(self, active: Active, kinds: Kinds) -> Floats:
        """The optimal shares; a job that can run without GPUs does so all the time."""
        present, kind, count = np.unique(active.kind, return_inverse=True, return_counts=True)
        rate = kinds.rate[present]
        share = np.zeros_like(rate)
        share[:, -1] = rate[:, -1] > 0
        used = kinds.workers > 0
        served = (share[:, -1] == 0) & (rate[:, used].max(axis=1, initial=0.0) > 0)
        if served.any():
            found = solve(
                normalised(kinds)[present][np.ix_(served, used)], kinds.gpus[present][np.ix_(served, used)],
                count[served].astype(np.float64), kinds.workers[used],
            )
            share[np.ix_(served, used)] = np.where(rate[np.ix_(served, used)] > 0, found.share, 0.0)
        return share[kind.reshape(-1)]


def normalised(kinds: Kinds) -> Floats:
    """Rates in units of the proportional share, times GPUs, over weight."""
    equal = kinds.rate @ (kinds.workers / max(1.0, kinds.workers.sum()))
    found: Floats = kinds.rate * kinds.gpus / (np.where(equal > 0, equal, 1.0) * kinds.weight)[:, None]
    return found
