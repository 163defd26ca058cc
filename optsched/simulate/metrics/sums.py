"""Sums of rows by what they belong to."""

import numpy as np

from ..record import Floats, Ints


def sums(of: Ints, amounts: Floats, count: int) -> Floats:
    """Return the sum of the amounts `of` each of `count` groups."""
    return np.bincount(of, amounts, count).astype(np.float64, copy=False)


def counts(of: Ints, count: int) -> Ints:
    """Return how many there are of each of `count` groups."""
    return np.bincount(of, minlength=count).astype(np.int64, copy=False)
