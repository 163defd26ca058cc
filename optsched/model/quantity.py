"""Number types with a unit and a range; the file boundary enforces the range."""

from typing import Annotated

from annotated_types import Ge, Gt, Le, Predicate


def is_zero_or_counts(value: float) -> bool:
    """Return whether a rate is 0, or large enough that neither times nor products of rates leave
    the range of floats."""
    return value == 0 or value >= 1e-9


Seconds = Annotated[float, Ge(0), Le(1e10)]
"""A length of time; 1e10 s is three centuries, beyond it a file is taken to be wrong."""
Duration = Annotated[float, Ge(1e-3), Le(1e10)]
"""A length of work: at least a millisecond."""
Instant = Annotated[float, Ge(-1e10), Le(1e10)]
"""A point in time, on whatever clock the instance uses (a trace's Unix time fits)."""
Count = Annotated[int, Ge(0), Le(1_000_000)]
PositiveCount = Annotated[int, Ge(1), Le(1_000_000)]
Amount = Annotated[float, Ge(0), Le(1e12)]
"""A quantity of a resource or a budget."""
Worth = Annotated[float, Ge(0)]
"""What jobs or capacities are worth to an objective: as large as weights and squares make it."""
Gib = Annotated[float, Ge(0), Le(1e9)]
PositiveGib = Annotated[float, Gt(0), Le(1e9)]
Epochs = Annotated[float, Gt(0), Le(1e9)]
"""Passes over the training data; the last may be one in part."""
Watts = Annotated[float, Ge(0), Le(1e9)]
Weight = Annotated[float, Ge(0), Le(1e9)]
Rate = Annotated[float, Ge(0), Le(1e6), Predicate(is_zero_or_counts)]
"""Reference work done per second."""
Fraction = Annotated[float, Gt(0), Le(1), Predicate(is_zero_or_counts)]
