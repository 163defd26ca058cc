"""From an order to priorities, with as few changes as possible."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from ..frozen import frozen

SPACE = 16
"""Left between two priorities that are new, so that others find room there later without a change
of these."""
MOST = 1_000_000
"""No boost is larger."""


@frozen
class Place:
    """One of an order, from the top: the priority it was given by others (`base`), its present
    `boost`, and whether its priority must be less than that of the one before, or may also be the
    same (`below`)."""

    base: int
    boost: int = 0
    below: bool = True


def boosts(order: Sequence[Place]) -> list[int]:
    """Return the boosts with which priorities (`base` + boost) fall as the order says.

    Most places keep the boost they have: what changes is the complement of a longest run that is in
    order already and has room for those between. Where boosts would exceed `MOST`, all are given
    anew, and cut off there: bases so far apart keep the order they have.
    """
    if not order:
        return []
    depths = _depths(order)
    # With each place raised by how far below the first it must be, "falls as it must" is "does not
    # rise".
    raised = [place.base + place.boost + depth for place, depth in zip(order, depths, strict=True)]
    natural = [place.base + depth for place, depth in zip(order, depths, strict=True)]
    kept = _longest_falling(raised)
    values = _between(raised, natural, kept)
    wanted = [value - base for value, base in zip(values, natural, strict=True)]
    if any(abs(boost) > MOST for boost in wanted):
        middle = sorted(natural)[len(natural) // 2]
        wanted = [max(-MOST, min(MOST, middle - base)) for base in natural]
    return wanted


def _depths(order: Sequence[Place]) -> list[int]:
    depths = [0]
    for place in order[1:]:
        depths.append(depths[-1] + place.below)
    return depths


def _longest_falling(values: Sequence[int]) -> list[int]:
    """Return positions of a longest subsequence that never rises (patience sorting)."""
    tops: list[int] = []
    at: list[int] = []
    before: list[int] = [-1] * len(values)
    for i, value in enumerate(values):
        pile = bisect_right(tops, -value)
        if pile == len(tops):
            tops.append(-value)
            at.append(i)
        else:
            tops[pile], at[pile] = -value, i
        before[i] = at[pile - 1] if pile else -1
    chain = [at[-1]]
    while before[chain[-1]] >= 0:
        chain.append(before[chain[-1]])
    return chain[::-1]


def _between(raised: Sequence[int], natural: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return the values that never rise, those of `kept` as they are: no boost for the others where
    the order allows that."""
    values = list(raised)
    first, last = kept[0], kept[-1]
    for i in range(first - 1, -1, -1):
        values[i] = natural[i] if natural[i] >= values[i + 1] else values[i + 1] + SPACE
    for i in range(last + 1, len(raised)):
        values[i] = natural[i] if natural[i] <= values[i - 1] else values[i - 1] - SPACE
    for above, below in pairwise(kept):
        gap, count = values[above] - values[below], below - above
        for i in range(above + 1, below):
            values[i] = values[above] - gap * (i - above) // count
    return values
