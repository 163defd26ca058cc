"""A schedule of fluid jobs on one pool of GPUs: where to put the instants at which prices change,
and first prices."""

import numpy as np

from ..frozen import record
from .market import Market
from .mode_table import Floats

INSTANTS = 400
"""About how many instants the fluid schedule looks at while jobs still come."""
SHORTEST_S = 1e-6
"""No interval is shorter."""
FULL = 8.0
"""How sharply a price falls where GPUs idle: it is multiplied by the share of them in use to this
power."""


@record
class Fluid:
    """`heads_s` and `ends_s` of the jobs that count, and the price of each GPU type at each of
    `instants_s` (the starts of intervals); `value` is the sum of weighted completions counted from
    submission."""

    heads_s: Floats
    ends_s: Floats
    instants_s: Floats
    prices: Floats
    value: float

    def grid(self, intervals: int) -> Floats:
        """Return at most so many intervals from now to the last end: half of their ends share out
        the time, half the heads and ends of jobs."""
        points = np.unique(np.concatenate([[0.0], self.heads_s, self.ends_s]))
        even = np.linspace(0, float(points[-1]), intervals - intervals // 2 + 1)
        points = np.unique(np.concatenate([thinned(points, intervals // 2 + 1), even]))
        points = points[np.append(True, np.diff(points) > SHORTEST_S)]
        return points if len(points) > 1 else np.array([0.0, 1.0])

    def on(self, grid_s: Floats) -> Floats:
        """Return the prices at the middle of each interval of a grid."""
        return resampled(self.prices, np.append(self.instants_s, np.inf), grid_s)


def thinned(points: Floats, most: int) -> Floats:
    """Return at most so many of the points, evenly among them, the first and the last included."""
    if len(points) <= most:
        return points
    chosen: Floats = points[np.unique(np.linspace(0, len(points) - 1, most).round().astype(int))]
    return chosen


def resampled(prices: Floats, old_s: Floats, new_s: Floats) -> Floats:
    """Return the prices on another grid: those that hold at the middle of each of its intervals, 0
    beyond the old one."""
    at = np.searchsorted(old_s, (new_s[:-1] + new_s[1:]) / 2, side="right") - 1
    return np.where(at < prices.shape[1], prices[:, np.minimum(at, prices.shape[1] - 1)], 0.0)


def fluid(market: Market) -> Fluid:
    """Serve at each instant the jobs of the highest weight by GPU-second first, none faster than
    its gang. Some job must have a weight."""
    buyers = [buyer for buyer in market.buyers if buyer.weight > 0]
    worth = worth_of_types(market)
    pool = float(np.sum(worth * np.array(market.capacity))) if market.capacity else 0.0
    size = np.array(
        [
            min(
                sum(worth[row] * amount for row, amount in own.uses) / own.speed
                for own in buyer.alternatives
            )
            for buyer in buyers
        ]
    )
    weight, head, work = (
        np.array([getattr(buyer, name) for buyer in buyers])
        for name in ("weight", "head_s", "work_s")
    )
    with np.errstate(divide="ignore"):
        density = np.where(size > 0, weight / (size * work), np.inf)
    order = np.argsort(-density, kind="stable")
    size, weight, head, work = (column[order] for column in (size, weight, head, work))
    earned = np.where(size > 0, weight / work, 0.0)
    points = thinned(np.unique(np.concatenate([[0.0], head])), INSTANTS)
    left, ends = work.copy(), head + work
    instants, rates, full = [], [], []
    now, next_ = 0.0, 1
    while left.any():
        if next_ < len(points):
            until = float(points[next_])
        else:  # ever longer steps, so that whatever is left ends after finitely many
            until = now + max(
                float(left.max()) / 50,
                float(np.sum(left * size)) / max(pool, 1e-9) / 50,
                0.02 * now,
                1e-3,
            )
        next_ += 1
        length = until - now
        need = np.where(
            left > 0, np.minimum(left, np.maximum(until - np.maximum(head, now), 0.0)), 0.0
        )
        units = need * size
        room = np.clip(pool * length - (np.cumsum(units) - units), 0.0, units)
        done = np.where(size > 0, room / np.where(size > 0, size, 1.0), need)
        left = np.where(left - done > 1e-9 * work, left - done, 0.0)
        ended = (left == 0.0) & (done > 0)
        # It ends in this interval, no sooner than alone.
        ends[ended] = np.maximum(
            ends[ended], np.where(done[ended] < length * (1 - 1e-9), now + done[ended], until)
        )
        used = done * earned
        instants.append(now)
        rates.append(float(used.sum()) / max(pool * length, 1e-300))
        full.append(min(1.0, float((done * size).sum()) / max(pool * length, 1e-300)))
        now = until
    prices = np.zeros(len(instants))
    after = 0.0
    lengths = np.diff(np.append(instants, now))
    for k in range(len(instants) - 1, -1, -1):
        after = full[k] ** FULL * (after + rates[k] * lengths[k])
        prices[k] = after
    return Fluid(
        head,
        ends,
        np.array(instants),
        worth[:, None] * prices[None, :],
        market.offset + float(np.sum(weight * ends)),
    )


def worth_of_types(market: Market) -> Floats:
    """Return what a GPU of each type is worth beside the best one: how few GPU-seconds jobs take
    there, on average; quotas are worth nothing."""
    best, own = np.zeros(len(market.capacity)), np.zeros(len(market.capacity))
    for buyer in market.buyers:
        areas: dict[int, float] = {}
        for way in buyer.alternatives:
            for row, amount in way.uses:
                if row < market.types:
                    area = buyer.work_s * amount / way.speed
                    areas[row] = min(areas.get(row, np.inf), area)
        for gpu_type, area in areas.items():
            best[gpu_type] += min(areas.values())
            own[gpu_type] += area
    worth = np.where(own > 0, best / np.where(own > 0, own, 1.0), 1.0)
    worth[market.types :] = 0.0
    return worth
