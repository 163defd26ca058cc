"""Prices that make the priced bound large."""

from collections.abc import Callable, Iterator

import numpy as np

from .ways import Floats

PATIENCE = 4
"""Steps without progress after which the target is brought nearer."""
FLOOR = 0.02
"""The least by which a cell moves, as a share of how far the dearest moves."""
AVERAGED = 0.7
"""How much of the direction is kept from the step before."""

Evaluate = Callable[[Floats], tuple[float, Floats]]
"""A bound at prices, and a supergradient of it there: GPU-seconds bought less those that there
are."""


def ascend(
    evaluate: Evaluate, lengths: Floats, distance: float | None, target: float, prices: Floats
) -> Iterator[tuple[float, Floats]]:
    """Supergradient ascent from `prices`; yields the best bound so far and its prices after each
    step; ends only where no step leads on.

    Step lengths after Polyak towards the best bound plus a `distance`, if not given up to `target`
    (the value of a plan), which is halved when progress stalls. The direction is averaged over
    steps (Barahona and Anbil, Mathematical Programming 87, 2000); each cell moves in proportion to
    its own price.
    """
    value, excess = evaluate(prices)
    best_value, best, mean = value, prices, excess
    if distance is None:
        distance = max(target - value, 0.02 * abs(target))
    since = 0.0
    while True:
        yield best_value, best
        direction = mean / lengths
        direction[(prices <= 0) & (direction < 0)] = 0.0
        scale = np.maximum(prices, FLOOR * prices.max(initial=0.0) + 1e-12)
        norm = float((direction**2 * scale * lengths).sum())
        if norm <= 0:
            return
        prices = np.maximum(
            prices + max(best_value + distance - value, 0.0) / norm * scale * direction, 0.0
        )
        value, excess = evaluate(prices)
        mean = AVERAGED * mean + (1 - AVERAGED) * excess
        if value > best_value:
            since = 0.0 if value > best_value + 0.05 * distance else since + 0.5
            best_value, best = value, prices
        else:
            since += 1
        if since >= PATIENCE:
            distance, since, prices = distance / 2, 0.0, best
            value, excess = evaluate(prices)
            mean = excess
