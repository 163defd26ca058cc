"""Step times from marks: when how many steps were done."""

from collections.abc import Sequence
from itertools import pairwise

from ..frozen import frozen

WARM_UP = 0.2
"""The share of the stepping time that is left out, the first interval at least: caches fill,
kernels are tuned."""

Mark = tuple[float, int]
"""A time in seconds, and how many steps were done by then."""


@frozen
class StepTimes:
    """Seconds a step between `from_s` and `to_s`: over all `steps`, and of the median and
    slowest-but-10-% one.

    `per_mark` is the most steps that one interval covers: above 1 median and p90 are of means over
    so many. `warm` is False where there were too few steps to leave any out.
    """

    steps: int
    mean_s: float
    median_s: float
    p90_s: float
    from_s: float
    to_s: float
    per_mark: int
    warm: bool


def step_times(marks: Sequence[Mark]) -> StepTimes | None:
    """Return step times after the warm-up; None where there are not two marks. Marks that go back
    are left out."""
    rising: list[Mark] = []
    for mark in marks:
        if not rising or (mark[1] > rising[-1][1] and mark[0] > rising[-1][0]):
            rising.append(mark)
    if len(rising) < 2:
        return None
    warm_s = rising[0][0] + WARM_UP * (rising[-1][0] - rising[0][0])
    kept = rising[1:][next(i for i, mark in enumerate(rising[1:]) if mark[0] >= warm_s) :]
    warm = len(kept) >= 3
    if not warm:
        kept = rising
    each = sorted(
        ((after[0] - before[0]) / (after[1] - before[1]), after[1] - before[1])
        for before, after in pairwise(kept)
    )
    steps = kept[-1][1] - kept[0][1]
    return StepTimes(
        steps=steps,
        mean_s=(kept[-1][0] - kept[0][0]) / steps,
        median_s=quantile(each, 0.5),
        p90_s=quantile(each, 0.9),
        from_s=kept[0][0],
        to_s=kept[-1][0],
        per_mark=max(count for _, count in each),
        warm=warm,
    )


def quantile(weighted: Sequence[tuple[float, int]], level: float) -> float:
    """Return the smallest value that at least a share `level` of the weight does not exceed, of
    sorted (value, weight)."""
    wanted = level * sum(weight for _, weight in weighted)
    reached = 0
    for value, weight in weighted:
        reached += weight
        if reached >= wanted:
            return value
    return weighted[-1][0]
