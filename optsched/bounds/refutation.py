"""The search for prices that prove how large the largest cost must be."""

from collections.abc import Iterator

import numpy as np

from .ascent import USUAL
from .deadlines import Deadlines
from .fluid import thinned, worth_of_types
from .market import Market
from .mode_table import Floats
from .priced import Prices

NEAR = 1e-8
"""Relative difference of values at which a bisection ends."""
STARTS = 12
"""How many instants are tried for the first prices to begin at, and how many quotas."""
FIRST_DISTANCE = 0.2
"""How far, as a share of the worth of all GPU time, the first steps aim above it."""


class Refutation:
    """Prices on a grid of instants (seconds after now), which is cut off at the latest due date."""

    def __init__(self, market: Market, deadlines: Deadlines, instants_s: Floats) -> None:
        self._market = market
        self._deadlines = deadlines
        self._instants_s = instants_s

    def grid(self, value: float) -> Floats:
        """Return the instants before the last due date for `value`, and that."""
        last = max(self._deadlines.at(value), default=0.0)
        before_s = self._instants_s[self._instants_s < last]
        return np.append(before_s, max(last, 1e-9))

    def _refutes(self, priced: Prices, value: float) -> bool:
        """Return whether no plan has a largest cost of at most `value`, by these prices."""
        return priced.cut(self.grid(value).tolist()).refutes(self._deadlines.at(value))

    @staticmethod
    def cells(prices: Floats, grid_s: Floats) -> Floats:
        """Return the prices of the intervals of a grid that was cut off; the last goes on where it
        was prolonged."""
        wanted = np.minimum(np.arange(len(grid_s) - 1), prices.shape[1] - 1)
        return prices[:, wanted]

    def largest(self, prices: Floats, known: float, step: float) -> tuple[float, float]:
        """Return the largest value found that `prices` refute, or `known`, and one next to it that
        they do not."""
        priced = Prices(self._market, self._instants_s.tolist(), prices.tolist())
        low, more = known, step
        while self._refutes(priced, low + more):
            low, more = low + more, 2 * more
        high = low + more
        while high - low > NEAR * max(1e-3, abs(high)):
            middle = (low + high) / 2
            if self._refutes(priced, middle):
                low = middle
            else:
                high = middle
        return low, high

    def ascend(self, known: float) -> Iterator[tuple[float, Floats]]:
        """Yield the largest value refuted so far and the prices that do it, after each step; ends
        only where no step leads on.

        The first prices are those of the worth of each type, from some instant on, or that of one
        quota: the one that says most at the value `known`. Prices are kept so that all GPU time is
        worth 1. What jobs pay beyond that, at the value in hand, is made larger by steps as in
        `ascent.ascend`; once it is above, the value is raised until it is not.
        """
        count = len(self._instants_s)
        worth = np.tile(worth_of_types(self._market)[:, None], count)
        each = np.arange(count, dtype=float)
        first = [np.where(each >= k, worth, 0.0) for k in thinned(each, STARTS)]
        for row in self._scarcest_quotas():
            first.append(np.zeros_like(worth))
            first[-1][row] = 1.0
        prices = max(first, key=lambda prices: self._margin(prices, known)[0])
        value, at = self.largest(prices, 0.0, max(known / 2, 1e-9))
        proof = best = prices
        margin, bought, there = self._margin(prices, at)
        best_margin, mean = margin, bought / there - 1
        distance, since = FIRST_DISTANCE, 0
        while True:
            yield value, proof
            share = prices * there / max(float((prices * there).sum()), 1e-300)
            moved = np.maximum(share, USUAL.floor * float(share.max(initial=0.0)))
            norm = float((mean**2 * moved).sum())
            if norm <= 0:
                return
            step = max(distance - margin, 0.0) / norm
            prices = np.maximum(share + step * moved * mean, 0.0) / there
            prices /= max(float((prices * there).sum()), 1e-300)
            margin, bought, there = self._margin(prices, at)
            since += 1
            if margin > 0:
                raised, at = self.largest(prices, value, 1e-6 * max(1e-3, abs(value)))
                since = 0 if raised > value * (1 + 1e-4) else since
                value, proof, best = raised, prices, prices
                margin, bought, there = self._margin(prices, at)
                best_margin = margin
            elif margin > best_margin + 0.05 * distance:
                best_margin, best, since = margin, prices, 0
            mean = USUAL.averaged * mean + (1 - USUAL.averaged) * (bought / there - 1)
            if since >= USUAL.patience:
                distance, since, prices = distance / 2, 0, best
                margin, bought, there = self._margin(prices, at)
                mean, best_margin = bought / there - 1, margin

    def _scarcest_quotas(self) -> list[int]:
        """Return the quotas that serve what is asked of them the slowest."""
        made = self._market
        asked_s = np.zeros(len(made.capacity))
        for buyer in made.buyers:
            for row in {row for way in buyer.alternatives for row, _ in way.uses}:
                if row >= made.types:
                    asked_s[row] += buyer.work_s * min(
                        dict(way.uses).get(row, 0.0) / way.speed for way in buyer.alternatives
                    )
        slowest = np.argsort(-asked_s / np.maximum(made.capacity, 1e-9), kind="stable")
        return [row for row in slowest[:STARTS].tolist() if asked_s[row] > 0]

    def _margin(self, prices: Floats, value: float) -> tuple[float, Floats, Floats]:
        """Return what jobs pay beyond the worth of all GPU time, as a share of that; what they buy;
        what there is. Intervals beyond the last due date have next to nothing of it."""
        grid = self.grid(value)
        priced = Prices(self._market, grid.tolist(), self.cells(prices, grid).tolist())
        bought = [[0.0] * (len(grid) - 1) for _ in self._market.capacity]
        due_s = zip(self._market.buyers, self._deadlines.at(value), strict=True)
        paid = sum(priced.by(buyer, by_s, bought) for buyer, by_s in due_s)
        worth = priced.worth()
        there = np.full(prices.shape, 1e-9)
        held = np.zeros(prices.shape)
        count = min(len(grid) - 1, prices.shape[1])
        there[:, :count] = np.array(self._market.capacity)[:, None] * np.diff(grid)[None, :count]
        held[:, :count] = np.array(bought)[:, :count]
        return paid / worth - 1 if worth > 0 else -1.0, held, there
