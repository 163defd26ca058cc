"""Prices that make the priced bound large."""

from collections.abc import Callable, Iterator

import numpy as np

from ..frozen import frozen
from .mode_table import Floats


@frozen
class Pace:
    """After `patience` steps without progress, which is a share `progress` of the way, the target
    is brought nearer. A cell moves at least by a share `floor` of how far the dearest moves, and
    `averaged` is how much of the direction is kept from the step before. The target is first at
    least `nearest` away; the ascent ends where it is `ends`, both relative to it."""

    patience: int = 4
    floor: float = 0.02
    averaged: float = 0.7
    progress: float = 0.05
    nearest: float = 0.02
    ends: float = 0.0


USUAL = Pace()


Evaluate = Callable[[Floats], tuple[float, Floats]]
"""A bound at prices, and a supergradient of it there: GPU-seconds bought less those that there
are."""


def ascend(
    evaluate: Evaluate,
    lengths: Floats,
    distance: float | None,
    target: float,
    prices: Floats,
    pace: Pace = USUAL,
) -> Iterator[tuple[float, Floats]]:
    """Ascend along supergradients from `prices`; yields the best bound so far and its prices after
    each step; ends where no step leads on.

    Step lengths after Polyak towards the best bound plus a `distance`, if not given up to `target`
    (the value of a plan), which is halved when progress stalls. The direction is averaged over
    steps (Barahona and Anbil, Mathematical Programming 87, 2000); each cell moves in proportion to
    its own price.
    """
    value, excess = evaluate(prices)
    best_value, best, mean = value, prices, excess
    if distance is None:
        distance = max(target - value, pace.nearest * abs(target))
    since = 0.0
    while True:
        yield best_value, best
        if distance <= pace.ends * abs(target):
            return
        direction = mean / lengths
        direction[(prices <= 0) & (direction < 0)] = 0.0
        scale = np.maximum(prices, pace.floor * prices.max(initial=0.0) + 1e-12)
        norm = float((direction**2 * scale * lengths).sum())
        if norm <= 0:
            return
        prices = np.maximum(
            prices + max(best_value + distance - value, 0.0) / norm * scale * direction, 0.0
        )
        value, excess = evaluate(prices)
        mean = pace.averaged * mean + (1 - pace.averaged) * excess
        if value > best_value:
            since = 0.0 if value > best_value + pace.progress * distance else since + 0.5
            best_value, best = value, prices
        else:
            since += 1
        if since >= pace.patience:
            distance, since, prices = distance / 2, 0.0, best
            value, excess = evaluate(prices)
            mean = excess
