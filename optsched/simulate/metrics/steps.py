"""Step functions of time: how many GPUs are held, jobs wait, nodes are lost."""

import numpy as np

from ...frozen import entity
from ..record import Floats


@entity
class Steps:
    """`values[i]` holds from `times_s[i]` until the next instant, the last one for ever; before the
    first it is 0.

    `area` is the integral until each instant.
    """

    times_s: Floats
    values: Floats
    area: Floats

    def until(self, at_s: Floats) -> Floats:
        """Return the integral until each of these instants."""
        if not len(self.times_s):
            return np.zeros(len(at_s))
        last = np.searchsorted(self.times_s, at_s, side="right") - 1
        known = np.maximum(last, 0)
        area = self.area[known] + self.values[known] * (at_s - self.times_s[known])
        return np.where(last < 0, 0.0, area)

    def between(self, from_s: Floats, to_s: Floats) -> Floats:
        """Return the integral over each of these intervals."""
        return self.until(to_s) - self.until(from_s)

    def averages(self, edges_s: Floats) -> Floats:
        """Return the mean between each instant and the next."""
        return np.diff(self.until(edges_s)) / np.diff(edges_s)


def steps(times_s: Floats, changes: Floats) -> Steps:
    """Return the sum of these changes, in any order."""
    order = np.argsort(times_s, kind="stable")
    sorted_s = times_s[order]
    level = np.cumsum(changes[order])
    last = np.append(sorted_s[1:] != sorted_s[:-1], True)[: len(sorted_s)]
    at_s, values = sorted_s[last], level[last]
    area = np.concatenate((np.zeros(min(1, len(at_s))), np.cumsum(values[:-1] * np.diff(at_s))))
    return Steps(at_s, values, area)


def held(start_s: Floats, end_s: Floats, amount: Floats) -> Steps:
    """Return how much of something is held over time by holders that hold `amount` from `start_s`
    to `end_s` each."""
    return steps(np.concatenate((start_s, end_s)), np.concatenate((amount, -amount)))
