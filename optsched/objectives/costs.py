"""The cost of a job as a function of its completion `C`, in one of a few shapes.

Every shape is nondecreasing in `C`. `d` is `C - origin_s`. Fields are numbers for one job, or
arrays for many jobs at once. Readers that treat shapes differently do so by an exhaustive `match`
that ends in `assert_never`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

Numbers = Any
"""A float, or an array of them."""

LATE_TOLERANCE_S = 1e-5
"""A job this close to its deadline is in time."""
KINK_S = 1e-3
"""A completion this close before its deadline may be that deadline, rounded."""

AT_ONCE_S = 1e-9
"""No rate is over a shorter time: what was left of a job may round to nothing."""


@dataclass(frozen=True)
class _Shape:
    """`jumps`: the cost grows at one instant, so that what is forgiven of times matters. `sags`:
    between its kinks it is not concave."""

    jumps: ClassVar[bool] = False
    sags: ClassVar[bool] = False
    scale: Numbers
    origin_s: Numbers

    def at(self, completion_s: Numbers) -> Numbers:
        """Return the cost of completing at `completion_s`."""
        raise NotImplementedError

    def steepest(self, first_s: Numbers, last_s: Numbers) -> Numbers:
        """Return the fastest growth between two completions, jumps aside."""
        return self.scale

    def sag(self, completion_s: Numbers, gap_s: Numbers) -> Numbers:
        """Return by how much lines below the cost may lie below it at `completion_s`, where each
        spans at most `gap_s` without a kink or jump inside."""
        return 0.0 * gap_s


class Linear(_Shape):
    """scale * d"""

    def at(self, completion_s: Numbers) -> Numbers:
        return self.scale * (completion_s - self.origin_s)


class Hinge(_Shape):
    """scale * max(0, d)"""

    def at(self, completion_s: Numbers) -> Numbers:
        late_s = completion_s - self.origin_s
        return self.scale * (late_s * (late_s > 0))

    def steepest(self, first_s: Numbers, last_s: Numbers) -> Numbers:
        return self.scale * (last_s > self.origin_s)


class Step(_Shape):
    """scale where d > 0, within `LATE_TOLERANCE_S`"""

    jumps = True

    def at(self, completion_s: Numbers) -> Numbers:
        return self.scale * (completion_s - self.origin_s > LATE_TOLERANCE_S)

    def steepest(self, first_s: Numbers, last_s: Numbers) -> Numbers:
        return 0.0 * self.scale


class Square(_Shape):
    """scale * max(0, d)^2"""

    sags = True

    def at(self, completion_s: Numbers) -> Numbers:
        late_s = completion_s - self.origin_s
        return self.scale * (late_s * late_s * (late_s > 0))

    def steepest(self, first_s: Numbers, last_s: Numbers) -> Numbers:
        late_s = last_s - self.origin_s
        return 2.0 * self.scale * (late_s * (late_s > 0))

    def sag(self, completion_s: Numbers, gap_s: Numbers) -> Numbers:
        is_late = completion_s - self.origin_s > -KINK_S
        return self.scale * (gap_s * gap_s / 4.0) * is_late


class Inverse(_Shape):
    """-scale / d, of at least `AT_ONCE_S`"""

    def at(self, completion_s: Numbers) -> Numbers:
        return -self.scale / self._since_s(completion_s)

    def steepest(self, first_s: Numbers, last_s: Numbers) -> Numbers:
        since_s = self._since_s(first_s)
        return self.scale / (since_s * since_s)

    def _since_s(self, completion_s: Numbers) -> Numbers:
        since_s = completion_s - self.origin_s
        return since_s * (since_s > AT_ONCE_S) + AT_ONCE_S * (since_s <= AT_ONCE_S)


JobCost = Linear | Hinge | Step | Square | Inverse
