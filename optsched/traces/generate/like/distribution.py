"""Distributions of lengths of time, as quantiles."""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ....frozen import record

Floats = NDArray[np.float64]

NORMAL_STEPS = 161
NORMAL_END = 4.0


@record
class Quantiles:
    """A distribution by its values at some levels, from 0 to 1; between two, the logarithm is
    linear in the level."""

    levels: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, level: Floats) -> Floats:
        """Return the values at each level."""
        return np.asarray(np.exp(np.interp(level, self.levels, np.log(self.values))))

    @property
    def median(self) -> float:
        return float(self.at(np.array([0.5]))[0])


def quantiles(levels: Sequence[float], values: Sequence[float]) -> Quantiles:
    """Return quantiles, both ascending; the values above 0."""
    return Quantiles(tuple(levels), tuple(values))


def lognormal(median: float, sigma: float, longest: float, shortest: float = 1.0) -> Quantiles:
    """Return the log-normal distribution with this median and this standard deviation of the
    logarithm, cut to a range."""
    normal = NormalDist()
    scores = np.linspace(-NORMAL_END, NORMAL_END, NORMAL_STEPS)
    values = np.clip(median * np.exp(sigma * scores), shortest, longest)
    levels = [0.0, *(normal.cdf(score) for score in scores[1:-1]), 1.0]
    return Quantiles(tuple(levels), tuple(float(value) for value in values))


def sigma_of(median: float, mean: float) -> float:
    """Return the standard deviation of the logarithm with which a log-normal distribution has this
    median and mean."""
    return float(np.sqrt(2 * np.log(mean / median)))
