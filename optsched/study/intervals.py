"""Means over seeds with their 95 % intervals (Student)."""

import math
from collections.abc import Sequence

from ..frozen import record

T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Quantiles of Student's t at 0.975 for 1 to 30 degrees of freedom."""


@record
class Interval:
    """The mean of one number for each seed; `half` is half the width of its 95 % interval, None
    for a single seed."""

    values: tuple[float, ...]
    mean: float
    half: float | None

    @property
    def low(self) -> float:
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half or 0.0)

    def level_with(self, other: "Interval") -> bool:
        """Return whether the difference to another mean may be 0: paired by seed where both have
        all seeds, else whether the intervals share a point."""
        if len(self.values) != len(other.values):
            return self.low <= other.high and other.low <= self.high
        pairs = zip(self.values, other.values, strict=True)
        difference = mean_interval([own - its for own, its in pairs])
        return difference.low <= 0.0 <= difference.high


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of at least one number with its interval."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval((*values,), mean, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    freedom = count - 1
    # Beyond the table the first term of the Cornish-Fisher expansion is exact to three digits.
    quantile = T_975[freedom - 1] if freedom <= len(T_975) else 1.96 + 2.372 / freedom
    return Interval((*values,), mean, quantile * math.sqrt(variance / count))
