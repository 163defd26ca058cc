"""Prices that make the priced bound large."""

from collections.abc import Iterator

import numpy as np

from ..instance import Instance
from ..plan import Plan
from .priced import Market, Prices
from .ways import Floats

PATIENCE = 8
"""Steps without progress after which the target is brought nearer."""


FULL = 8.0
"""How sharply a price falls where GPUs idle: it is multiplied by the share of them in use to this power."""


def grid_of(instance: Instance, plan: Plan, intervals: int) -> list[float]:
    """Instants after now between which prices are constant: submissions and the ends of a plan, thinned."""
    points = {0.0}
    points.update(max(0.0, job.submit_s - instance.now_s) for job in instance.jobs)
    points.update(entry.completion_s - instance.now_s for entry in plan.jobs)
    found = np.array(sorted(points))
    if len(found) > intervals + 1:
        found = found[np.unique(np.linspace(0, len(found) - 1, intervals + 1).round().astype(int))]
    grid: list[float] = found.tolist()
    return grid if len(grid) > 1 else [0.0, 1.0]


def prices_of(instance: Instance, plan: Plan, market: Market, grid_s: list[float]) -> Floats:
    """Prices read off a plan. Going back in time, each job served adds what a GPU-second of it earns, which is optimal on
    one fast machine in WSPT order; where GPUs idle nobody would pay."""
    types = {name: c for c, name in enumerate(instance.cluster.gpu_types)}
    lengths = np.diff(grid_s)
    earns, held = np.zeros((len(types), len(lengths))), np.zeros((len(types), len(lengths)))
    for buyer, entry in zip(market.buyers, plan.jobs, strict=True):
        area = max(1e-9, min((way.gpus / way.speed for way in buyer.ways), default=0.0) * buyer.work_s)
        for segment in entry.segments:
            for slot in segment.placement:
                if not slot.gpus:
                    continue
                c = types[instance.cluster.node[slot.node].gpu_type]
                from_s, until_s = segment.start_s - instance.now_s, segment.end_s - instance.now_s
                first, last = np.searchsorted(grid_s, [from_s, until_s], side="right") - 1
                cells = np.arange(first, min(last + 1, len(lengths)))
                if not len(cells):
                    continue
                inside = np.minimum(np.asarray(grid_s)[cells + 1], until_s) - np.maximum(np.asarray(grid_s)[cells], from_s)
                held[c, cells] += slot.gpus * inside
                earns[c, cells] += slot.gpus * inside * buyer.weight / area
    capacity = np.array(market.capacity)[:, None]
    full = np.minimum(1.0, held / (capacity * lengths)) ** FULL
    slope = earns / capacity
    prices = np.zeros_like(held)
    after = np.zeros(len(types))
    for k in range(len(lengths) - 1, -1, -1):
        after = full[:, k] * (after + slope[:, k])
        prices[:, k] = after
    return prices


def ascend(
    market: Market, grid_s: list[float], target: float, prices: Floats | None = None
) -> Iterator[tuple[float, list[list[float]]]]:
    """Subgradient ascent from `prices` (default none); yields the best bound so far and its prices after each step,
    without end.

    Step lengths after Polyak towards the best bound plus a distance, first up to `target` (the value of a plan), which
    is halved when progress stalls. The direction is the GPU-seconds bought beyond what there is, averaged over steps
    (Barahona and Anbil, Mathematical Programming 87, 2000); each cell moves in proportion to its own price.
    """
    lengths = np.diff(grid_s)
    there = np.array(market.capacity)[:, None] * lengths
    if prices is None:
        prices = np.zeros_like(there)
    value, bought = evaluate(market, grid_s, prices)
    best_value, best, mean = value, prices, bought
    distance, since = max(target - value, 1e-6 * abs(target)), 0.0
    while True:
        yield best_value, best.tolist()
        direction = (mean - there) / lengths
        direction[(prices <= 0) & (direction < 0)] = 0.0
        scale = np.maximum(prices, 0.02 * prices.max() + 1e-9)
        norm = float((direction**2 * scale * lengths).sum())
        if norm <= 0:
            continue
        prices = np.maximum(prices + max(best_value + distance - value, 0.0) / norm * scale * direction, 0.0)
        value, bought = evaluate(market, grid_s, prices)
        mean = 0.7 * mean + 0.3 * bought
        if value > best_value:
            since = 0.0 if value > best_value + 0.05 * distance else since + 0.5
            best_value, best = value, prices
        else:
            since += 1
        if since >= PATIENCE:
            distance, since, prices = distance / 2, 0.0, best
            value, bought = evaluate(market, grid_s, prices)
            mean = bought


def evaluate(market: Market, grid_s: list[float], prices: Floats) -> tuple[float, Floats]:
    """The bound at given prices, and the GPU-seconds that are bought in each cell."""
    at = Prices(market, grid_s, prices.tolist())
    total, bought = market.offset, np.zeros_like(prices)
    last = len(grid_s) - 1
    for one in market.buyers:
        cost, pieces = at.buy(one)
        total += cost
        for _, k, work, step in pieces:
            if k < last:
                for gpu_type, gpu_s in step.uses:
                    bought[gpu_type, k] += gpu_s * work
    return total - at.worth(), bought
