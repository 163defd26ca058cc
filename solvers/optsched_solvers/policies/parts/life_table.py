"""How long jobs turn out to be, as shares of what was believed of them, and what that says of one
that has worked for a while."""

import math

import numpy as np
from numpy.typing import NDArray

PER_OCTAVE = 4
"""Age classes in each doubling of the age..."""
LEAST, MOST = -5, 14
"""... between these powers of two."""
ASSUMED = 4.0
"""As if so many jobs had been watched through each class before any was."""
ASSUMED_TAIL = 1.0
"""Of these, as many outlast an age beyond what was believed as its inverse to this power."""

Ages = NDArray[np.float64]


class LifeTable:
    """An actuarial life table of run times over beliefs ("ages"), with the jobs that have not ended
    yet as withdrawals.

    Of F, the share that ends by an age, and I, the mean time lived until then, the least slope from
    the age of a job to a later one is what a completion costs per job of that age (one over the
    Gittins index; Scully, Grosof and Mitzenmacher, ITCS 2022, for beliefs that are off): with
    beliefs that hold it is the time left, and with beliefs that say nothing the index that orders
    by attained service alone.
    """

    def __init__(self) -> None:
        self._edges = np.concatenate(
            ([0.0], 2.0 ** (np.arange(LEAST * PER_OCTAVE, MOST * PER_OCTAVE + 1) / PER_OCTAVE))
        )
        self._ended: list[float] = []
        self._index = self._table(np.empty(0))

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, age: float) -> None:
        """Add a job that has ended."""
        self._ended.append(age)

    def renew(self, ages: Ages) -> None:
        """Draw the table up anew, with those that have not ended at their `ages` so far."""
        self._index = self._table(ages)

    def _table(self, going: Ages) -> tuple[Ages, Ages]:
        edges = self._edges
        last = len(edges) - 2
        ended = np.minimum(np.searchsorted(edges, self._ended, side="left") - 1, last)
        left = np.minimum(np.searchsorted(edges, going, side="right") - 1, last)
        deaths = np.bincount(np.maximum(ended, 0), minlength=last + 1).astype(float)
        withdrawn = np.bincount(left, minlength=last + 1).astype(float)
        at_risk = np.cumsum((deaths + withdrawn)[::-1])[::-1] - withdrawn / 2
        assumed = np.where(edges[:-1] >= 1.0, 1.0 - 2.0 ** (-ASSUMED_TAIL / PER_OCTAVE), 0.0)
        # until the age of 1 half of them end, evenly
        below = (edges[1:] <= 1.0).nonzero()[0]
        assumed[below] = (edges[below + 1] - edges[below]) / (2.0 - edges[below])
        hazard = (deaths + ASSUMED * assumed) / (at_risk + ASSUMED)
        alive = np.concatenate(([1.0], np.cumprod(1.0 - hazard)))
        lived = np.concatenate(([0.0], np.cumsum(np.diff(edges) * (alive[:-1] + alive[1:]) / 2)))
        return alive, lived

    def left(self, ages: Ages) -> Ages:
        """Return what a completion costs per job of each of these ages, in units of the belief."""
        alive, lived = self._index
        ages = np.minimum(ages, self._edges[-2])
        at = np.minimum(np.searchsorted(self._edges, ages, side="right") - 1, len(alive) - 2)
        width = self._edges[at + 1] - self._edges[at]
        share = (ages - self._edges[at]) / width
        now = alive[at] + share * (alive[at + 1] - alive[at])
        before = lived[at] + share * width * (alive[at] + now) / 2
        gone = now[:, None] - alive[None, :]
        spent = lived[None, :] - before[:, None]
        later = np.arange(len(alive))[None, :] > at[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(later & (gone > 0), spent / gone, math.inf)
        least: Ages = slope.min(axis=1)
        return least
