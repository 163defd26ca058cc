"""How far beliefs about run times are off, as distributions to draw from."""

import math
import statistics
from bisect import bisect_right
from collections import deque
from statistics import NormalDist

from ..frozen import record

NEWEST = 300
"""So many errors of each kind are kept."""
FEW = 20
"""With fewer errors of a kind, those that are assumed stand beside them."""
ASSUMED = tuple(math.exp(NormalDist().inv_cdf((i + 0.5) / 10)) for i in range(10))
"""Ratios of work to belief before any is known: log-normal, off by a factor of e in one of three
cases."""
MEASURED_SIGMA = 0.1
"""Standard deviation of the logarithm of what is left by the steps that a job reports."""
MOST_LEVEL = 0.95
"""Of a job that has outrun all that is known the longest draw is 20 times what it has done."""
NORMAL = NormalDist()

Kind = tuple[str | None, int]
"""What a belief rests on (`Likeness.basis`), and how many ended jobs: 0, or the bits of their
number, at most 3."""


@record
class Belief:
    """The work that a job was believed to be when it was submitted, and the kind of that belief;
    `measured`: what is left of it follows from the steps that it reports."""

    work_s: float
    kind: Kind = (None, 0)
    measured: bool = False


class RunTimeErrors:
    """Ratios of the work that jobs turned out to be to what was believed of them, by kind of
    belief."""

    def __init__(self) -> None:
        self._of: dict[Kind, deque[float]] = {}
        self._sorted: dict[Kind, list[float]] = {}
        self._alike: dict[Kind, float] = {}

    def add(self, kind: Kind, believed_s: float, worked_s: float) -> None:
        """Add a job that has completed."""
        ratio = worked_s / believed_s if believed_s > 0 else math.nan
        if math.isfinite(ratio) and ratio > 0:
            self._of.setdefault(kind, deque(maxlen=NEWEST)).append(ratio)
            self._sorted.pop(kind, None)
            self._alike.pop(kind, None)

    def copy(self) -> "RunTimeErrors":
        """Return a copy."""
        copied = RunTimeErrors()
        copied._of = {kind: deque(ratios, NEWEST) for kind, ratios in self._of.items()}
        return copied

    def ratios(self, kind: Kind) -> list[float]:
        """Return the ratios of a kind, the least first."""
        known = self._sorted.get(kind)
        if known is None:
            seen = self._of.get(kind, ())
            known = self._sorted[kind] = sorted((*seen, *(ASSUMED if len(seen) < FEW else ())))
        return known

    def alike(self, kind: Kind) -> float:
        """Return how far the errors of jobs that ended one after the other went together: the
        correlation of their logarithms, at least 0; 0 where few are known."""
        known = self._alike.get(kind)
        if known is None:
            logs = [math.log(ratio) for ratio in self._of.get(kind, ())]
            known = 0.0
            if len(logs) >= FEW and min(logs) < max(logs):
                known = max(0.0, statistics.correlation(logs[:-1], logs[1:]))
            self._alike[kind] = known
        return known

    def left_s(self, belief: Belief, done_s: float, left_s: float, level: float) -> float:
        """Return the quantile `level` (from 0 to 1) of the work left of a job that has done
        `done_s`, where `left_s` is believed to be left: of the jobs of its kind that were longer
        than that, relative to their beliefs. One that has outrun them all is as likely to end
        before it has done twice as much as after."""
        if belief.measured:
            return left_s * math.exp(
                MEASURED_SIGMA * NORMAL.inv_cdf(min(max(level, 1e-6), 1 - 1e-6))
            )
        ratios = self.ratios(belief.kind)
        first = bisect_right(ratios, done_s / belief.work_s)
        if first == len(ratios):
            level = min(level, MOST_LEVEL)
            return done_s * level / (1 - level)
        ratio = ratios[first + min(int(level * (len(ratios) - first)), len(ratios) - first - 1)]
        return ratio * belief.work_s - done_s


def kind_of(basis: str | None, ended: int) -> Kind:
    """Return the kind of a belief that rests on so many ended jobs."""
    return basis, min(3, ended.bit_length())
