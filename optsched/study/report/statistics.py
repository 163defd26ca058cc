"""Statistics over runs: performance profiles, Pareto fronts, paired bootstrap, many tests at
once."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ...frozen import record

Floats = NDArray[np.float64]

RESAMPLES, RESAMPLING_SEED, LEVEL = 10_000, 20_020, 0.95
FEWEST_SEEDS = 8
"""With fewer seeds, a p-value that cannot be below 2 / 2^n shows nothing of many pairs of
methods."""
EQUAL = 1 + 1e-9
"""Values within this factor are the same."""


def ratios(values: Floats) -> Floats:
    """Return each value over the best of its problem, the columns being problems and less being
    better.

    NaN stands for a method that was not run, infinity for one that failed. A problem that none
    solved, or whose best value is negative, says nothing: NaN; where the best is 0, all else is
    infinitely worse.
    """
    relative = np.full(values.shape, np.nan)
    for k in range(values.shape[1]):
        column = values[:, k]
        finite = column[np.isfinite(column)]
        if not len(finite) or finite.min() < 0:
            continue
        best = finite.min()
        if best > 0:
            relative[:, k] = column / best
        else:
            relative[:, k] = np.where(np.isnan(column), np.nan, np.where(column == 0, 1.0, np.inf))
    return relative


def profile(row: Floats) -> tuple[Floats, Floats]:
    """Return the performance profile of a method (Dolan and Moré, Mathematical Programming 91,
    2002): the factors of the best value at which the share of problems solved within that factor
    grows, and that share; problems on which it failed count, those on which it was not run do
    not."""
    there = row[~np.isnan(row)]
    factors = np.sort(np.where(there <= EQUAL, 1.0, there)[np.isfinite(there)])
    steps = np.unique(factors)
    return steps, np.searchsorted(factors, steps, side="right") / max(1, len(there))


def pareto(x: Floats, y: Floats) -> NDArray[np.bool_]:
    """Return which points no other one is at most equal to in both and below in one; less is
    better."""
    better = (x[:, None] <= x) & (y[:, None] <= y) & ((x[:, None] < x) | (y[:, None] < y))
    return np.logical_not(better.any(axis=0))


@record
class Difference:
    """Mean of paired differences with its 95 % interval, and the chance `p` of one so far from 0
    without any cause."""

    mean: float
    low: float
    high: float
    p: float
    pairs: int


@cache
def _counts(pairs: int) -> Floats:
    """Return how often each pair is in each resample."""
    picks = np.random.default_rng(RESAMPLING_SEED).integers(pairs, size=(RESAMPLES, pairs))
    counts = np.zeros((RESAMPLES, pairs))
    np.add.at(counts, (np.arange(RESAMPLES)[:, None], picks), 1)
    return counts


def paired_bootstrap(first: Floats, second: Floats) -> Difference:
    """Return `first` minus `second`, pair by pair, by the percentile bootstrap (Efron and
    Tibshirani, 1993, chapter 13).

    `p` is two-sided, and never below what turning the signs of so few differences could give, 2 /
    2^n: the bootstrap of a handful of numbers that agree would be all too sure. Always the same
    resamples.
    """
    difference = first - second
    pairs = len(difference)
    means = _counts(pairs) @ difference / pairs
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p = max(2 * (beyond + 1) / (RESAMPLES + 1), 2.0 ** (1 - pairs))
    return Difference(float(difference.mean()), float(low), float(high), min(1.0, p), pairs)


def benjamini_hochberg(p: list[float]) -> list[float]:
    """Return each p-value as the smallest share of false discoveries at which it counts as one
    (Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 1995)."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    q, least = [0.0] * len(p), 1.0
    for rank in range(len(p), 0, -1):
        i = order[rank - 1]
        least = min(least, p[i] * len(p) / rank)
        q[i] = least
    return q
