"""A lower bound on sums of weighted completion times of whole traces, from prices on GPU time, with a certificate.

Relax "at most m_c GPUs of type c are held at any instant" with a price lambda_ck >= 0 for a GPU-second of type c in
interval k of time, and 0 after the last. Then every job buys its own work where it is cheapest, one way at a time, in as
many pieces as it likes, and is done at the end of its last piece:

    bound(lambda) = sum_j min over k of [ w_j (t_k + s) + cheapest price of the work of j, done in intervals up to k ]
                    - sum_ck m_c len_k lambda_ck

where s are the seconds that j works in interval k. Any plan that the verifier accepts is one choice of pieces for each
job and holds no more GPUs than there are, so that no plan is cheaper, whatever the prices: they are the certificate, and
`optsched verify-bound` recomputes the sum from them by plain arithmetic (`certified`).

This is the Lagrangian, or equally the column generation bound, of the interval-indexed program in which a column is a
preemptive schedule of one job (Dyer and Wolsey, Discrete Applied Mathematics 26, 1990; Sousa and Wolsey, Mathematical
Programming 54, 1992). It sees releases, gangs (a job cannot work faster than its gang), GPU types and capacity together;
it does not see nodes, cores, memory, quotas and other resources, precedence, and pays each start-up once at most.
"""

import math
from bisect import bisect_right, insort
from dataclasses import dataclass

import numpy as np

from ..instance import Instance
from .ways import Ways, tabulate


@dataclass(frozen=True, slots=True, order=True)
class Way:
    """One way to work: `gpus` of type `gpu_type` held (-1 for none), at a speed relative to the job's fastest way."""

    gpu_type: int
    gpus: float
    speed: float


@dataclass(frozen=True, slots=True)
class Buyer:
    """A job as the bound sees it: it cannot work before `head_s` after now, and has `work_s` seconds to do at its
    fastest way."""

    weight: float
    head_s: float
    work_s: float
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True)
class Market:
    """All jobs and the GPUs of each type; `offset` is what the objective counts from before now."""

    buyers: tuple[Buyer, ...]
    capacity: tuple[float, ...]
    offset: float


@dataclass(frozen=True, slots=True)
class Step:
    """Work to be had in one interval at `price` a second of work, at most `work` seconds of it in each second there;
    `uses` are the GPU-seconds of each type that a second of such work takes."""

    price: float
    work: float
    uses: tuple[tuple[int, float], ...]


Piece = tuple[float, int, float, Step]
"""Price of a second of work, interval, seconds of work, and what it uses."""


def market(instance: Instance) -> Market:
    """The jobs of a sound instance as buyers. Raises InputError for a job that fits nowhere."""
    ways = tabulate(instance, preemptive=True)
    ends = np.append(ways.first[1:], len(ways.job))
    buyers, offset = [], 0.0
    for j, job in enumerate(instance.jobs):
        offset += job.weight * (instance.now_s - job.submit_s)
        setup_s, work_s, found = _ways(ways, int(ways.first[j]), int(ends[j]))
        buyers.append(Buyer(job.weight, instance.release_s(job) - instance.now_s + setup_s, work_s, found))
    return Market(tuple(buyers), tuple(map(float, ways.shape.capacity)), offset)


def _ways(ways: Ways, first: int, end: int) -> tuple[float, float, tuple[Way, ...]]:
    """Seconds before a job can work, its seconds of work, and its undominated ways. With one way alone its set-up is
    work like any other; with several it only delays the first piece, as nobody knows in which way it is paid."""
    rows = range(first, end)
    setup_s = min(float(ways.setup_s[a]) for a in rows)
    run_s = [float(ways.run_s[a]) + (setup_s if len(rows) == 1 else 0.0) for a in rows]
    work_s = min(run_s)
    found = set()
    for a, own_s in zip(rows, run_s, strict=True):
        types = np.flatnonzero(ways.mixed[a]).tolist() if a in ways.mixed else [int(ways.gpu_type[a])]
        gpus = float(ways.area_gpus[a]) * (0.5 if ways.shares[a] else 1.0) if types[0] >= 0 else 0.0
        for gpu_type in types:  # a gang on several types costs no less than as many GPUs of the cheapest of them
            found.add(Way(gpu_type if gpus else -1, gpus, work_s / own_s if own_s else 1.0))
    kept = tuple(sorted(one for one in found if not any(_dominates(other, one) for other in found if other != one)))
    return 0.0 if len(rows) == 1 else setup_s, work_s, kept


def _dominates(a: Way, b: Way) -> bool:
    return (a.gpu_type == b.gpu_type or a.gpu_type < 0) and a.speed >= b.speed and a.gpus <= b.gpus


class Prices:
    """The bound at given prices: `grid_s` are the ends of the intervals, from 0 on, `prices[c][k]` what a GPU-second of
    type c costs in interval k. Plain arithmetic, job by job."""

    def __init__(self, market: Market, grid_s: list[float], prices: list[list[float]]) -> None:
        self._market = market
        self._grid_s = grid_s
        self._prices = prices
        self._steps: dict[tuple[tuple[Way, ...], float], list[tuple[Step, ...]]] = {}

    def bound(self) -> float:
        """No plan has a smaller sum of weighted completion times, counted from submission."""
        return math.fsum([self._market.offset, *(self.buy(one)[0] for one in self._market.buyers), -self.worth()])

    def worth(self) -> float:
        """What all GPU-seconds of the grid are worth."""
        grid = self._grid_s
        return math.fsum(
            gpus * price * (end_s - start_s)
            for gpus, prices in zip(self._market.capacity, self._prices, strict=True)
            for price, start_s, end_s in zip(prices, grid, grid[1:])  # noqa: B905 (a point more than intervals)
        )

    def buy(self, buyer: Buyer) -> tuple[float, list[Piece]]:
        """The least that a job can pay, its weighted completion included, and the pieces that it buys for it."""
        weight, head_s, work_s = buyer.weight, buyer.head_s, buyer.work_s
        if weight == 0:
            return 0.0, []
        grid, last = self._grid_s, len(self._grid_s) - 1
        plain, final = self._offered(buyer.ways, 0.0), self._offered(buyer.ways, weight)
        best, bought = math.inf, []
        chosen: list[Piece] = []  # the cheapest work in the intervals before k, at most all
        have = paid = 0.0
        for k in range(min(bisect_right(grid, head_s), last + 1) - 1, last + 1):
            start_s = max(grid[k], head_s)
            if weight * start_s >= best:
                break
            length_s = grid[k + 1] - start_s if k < last else math.inf
            cost, pieces = paid + weight * start_s, []
            need, at = work_s - have, len(chosen)
            spare = chosen[-1][2] if chosen else 0.0
            for step in final[k]:
                left = step.work * length_s
                taken = min(need, left)
                need, left, cost = need - taken, left - taken, cost + taken * step.price
                if need <= 0:
                    while left > 0 and at and chosen[at - 1][0] > step.price:  # work bought earlier that costs more
                        swapped = min(left, spare)
                        cost -= swapped * (chosen[at - 1][0] - step.price)
                        taken, left, spare = taken + swapped, left - swapped, spare - swapped
                        if spare <= 0:
                            at -= 1
                            spare = chosen[at - 1][2] if at else 0.0
                pieces.append((step.price, k, taken, step))
            if need <= 1e-12 * work_s and cost < best:
                best = cost
                kept = chosen[:at]
                if kept:
                    price, where, _, step = kept[-1]
                    kept[-1] = price, where, spare, step
                bought = kept + pieces
            for step in plain[k] if k < last else ():
                if have >= work_s and chosen[-1][0] <= step.price:
                    break
                amount = step.work * length_s
                insort(chosen, (step.price, k, amount, step), key=_price_of)
                have, paid = have + amount, paid + amount * step.price
                while have > work_s:
                    price, where, amount, dearest = chosen[-1]
                    if have - amount >= work_s:
                        chosen.pop()
                    else:
                        amount = have - work_s
                        chosen[-1] = price, where, chosen[-1][2] - amount, dearest
                    have, paid = have - amount, paid - amount * price
        return best, bought

    def _offered(self, ways: tuple[Way, ...], per_s: float) -> list[tuple[Step, ...]]:
        """For each interval, and after the grid, what work costs a job that pays `per_s` for each second that it works
        there: a second is spent in one way, so that dearer and faster ways come after cheaper and slower ones."""
        key = ways, per_s
        if key not in self._steps:
            free = tuple([0.0] * len(self._prices))
            self._steps[key] = [_steps(ways, per_s, now) for now in (*zip(*self._prices, strict=True), free)]
        return self._steps[key]


def _price_of(piece: Piece) -> float:
    return piece[0]


def _steps(ways: tuple[Way, ...], per_s: float, prices: tuple[float, ...]) -> tuple[Step, ...]:
    """The lower convex hull of work and cost of the ways, from (0, 0) on, as steps of rising price."""
    points = sorted(
        (one.speed, per_s + (prices[one.gpu_type] * one.gpus if one.gpu_type >= 0 else 0.0), i)
        for i, one in enumerate(ways)
    )
    steps: list[Step] = []
    speed = cost = 0.0
    before: Way | None = None
    while points:
        ahead = [point for point in points if point[0] > speed]
        if not ahead:
            break
        price, _, reached = min(((y - cost) / (x - speed), -x, i) for x, y, i in ahead)
        way = ways[reached]
        more = way.speed - speed
        uses = [(way.gpu_type, way.gpus / more)] if way.gpu_type >= 0 else []
        if before is not None and before.gpu_type >= 0:
            uses.append((before.gpu_type, -before.gpus / more))
        steps.append(Step(price, more, tuple(uses)))
        speed, before = way.speed, way
        cost += price * more
    return tuple(steps)
