"""How long a job may turn out to be, and how much serving it is worth for that."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Lengths:
    """Lengths that a job may turn out to have, each with a weight."""

    def __init__(self, lengths_s: Sequence[float], weights: Sequence[float]) -> None:
        order = np.argsort(lengths_s, kind="stable")
        self._lengths_s = np.asarray(lengths_s, dtype=float)[order]
        weight = np.asarray(weights, dtype=float)[order]
        self._weight = np.concatenate(([0.0], np.cumsum(weight)))
        self._work_s = np.concatenate(([0.0], np.cumsum(weight * self._lengths_s)))
        self._ranks: dict[float, float] = {}

    def rank_s(self, done_s: float) -> float:
        """Return the Gittins rank of a job that has done `done_s`, the work to expect for each
        completion if it is served as long as is best: the least over all steps of E[min(S - done,
        step)] / P(S - done <= step) given S > done (Gittins, J. R. Stat. Soc. B 41, 1979).

        It is what is left where the length is certain. A job that has outrun all lengths is as
        likely to end before it has done twice as much as after, which makes it what it has done.
        """
        rank = self._ranks.get(done_s)
        if rank is None:
            rank = self._ranks[done_s] = self._least(done_s)
        return rank

    def index(self, done_s: Floats, step_s: float) -> Floats:
        """Return P(S - done <= step) / E[min(S - done, step)] given S > done, for each work done:
        how likely a job is to end for each second of a step. 0 where no length is beyond what was
        done, or none ends within the step."""
        first, beyond = (
            np.searchsorted(self._lengths_s, at_s, side="right")
            for at_s in (done_s, done_s + step_s)
        )
        ended = self._weight[beyond] - self._weight[first]
        worked_s = self._work_s[beyond] - self._work_s[first] - ended * done_s
        spent_s = worked_s + (self._weight[-1] - self._weight[beyond]) * step_s
        with np.errstate(divide="ignore", invalid="ignore"):
            index: Floats = np.where(spent_s > 0, ended / spent_s, np.where(ended > 0, np.inf, 0.0))
        return index

    def _least(self, done_s: float) -> float:
        first = int(np.searchsorted(self._lengths_s, done_s, side="right"))
        if first == len(self._lengths_s):
            return done_s
        steps_s = self._lengths_s[first:] - done_s
        ended = self._weight[first + 1 :] - self._weight[first]
        beyond = self._weight[-1] - self._weight[first + 1 :]
        worked_s = self._work_s[first + 1 :] - self._work_s[first] - ended * done_s
        return float(np.min((worked_s + beyond * steps_s) / ended))
