"""Lower bounds for whole traces from prices on GPU time: plain arithmetic, which anyone can repeat.

Relax "at most m_c GPUs of type c are held at any instant" with a price lambda_ck >= 0 for a
GPU-second of type c in interval k of time, and 0 after the last. Then every job buys its own work
where it is cheapest, one alternative at a time, in as many pieces as it likes. For sums of weighted
completion times a job also pays for the end of its last piece:

    bound(lambda) = sum_j min over k of [ w_j (t_k + s) + cheapest price of the work of j, done in
    intervals up to k ]
                    - sum_ck m_c len_k lambda_ck

where s are the seconds that j works in interval k. Any plan that the verifier accepts is one choice
of pieces for each job (`market`) and holds no more GPUs than there are, so that no plan is cheaper,
whatever the prices.

For the largest of costs that grow with completion, a value T gives each job a due date. No plan
reaches T where

    sum_j cheapest price of the work of j, done by its due date  >  sum_ck m_c len_k lambda_ck

as all work done in time would be worth more than all GPU time there is (Farkas).

This is the Lagrangian, or equally the column generation bound, of the interval-indexed program in
which a column is a preemptive schedule of one job (Dyer and Wolsey, Discrete Applied Mathematics
26, 1990; Sousa and Wolsey, Mathematical Programming 54, 1992). It sees releases, precedence as far
as it delays a job, gangs (a job cannot work faster than its gang), sizes of elastic ones, GPU
types, quotas (priced like types) and capacity together; it does not see nodes, cores, memory and
other resources, and pays each start-up once at most.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Iterator
from operator import itemgetter

from ..frozen import record
from .market import Alternative, Buyer, Market

ROUNDING = 1e-11
"""Sums are taken this much, relative to the terms in them, to the safe side: far more than floats
lose."""
EXACT, IN_TIME = 1e-12, 1e-9
"""Shares of a job's work that count as none: of that to buy, and of that still to do at a due
date."""

Cells = list[list[float]]
"""A number for each row of the market and interval."""


@record
class Step:
    """Work to be had in one interval at `price` a second of work, at most `work` seconds of it in
    each second there; `uses` is what a second of such work takes of each row, in GPU-seconds."""

    price: float
    work: float
    uses: tuple[tuple[int, float], ...]


class Offered(dict[int, tuple[Step, ...]]):
    """What work costs in each interval, and after the grid, a job that has these alternatives and
    pays `per_s` for each second that it works: a second is spent in one of them, so that dearer and
    faster ones come after cheaper and slower ones. Found where it is asked for, as a job looks at
    few intervals of a long grid."""

    def __init__(self, own: tuple[Alternative, ...], per_s: float, prices: Cells) -> None:
        super().__init__()
        self._own, self._per_s, self._prices = own, per_s, prices

    def __missing__(self, k: int) -> tuple[Step, ...]:
        now = tuple(own[k] if k < len(own) else 0.0 for own in self._prices)
        self[k] = _steps(self._own, self._per_s, now)
        return self[k]


Offer = tuple[float, int, float, Step]
"""Price of a second of work, interval, seconds of work, and what it uses."""


class Prices:
    """The payments of jobs at given prices: interval k goes from `grid_s[k]` to the next, in
    seconds after now, and `prices[c][k]` is what a GPU-second of type c costs in it; from the last
    instant on GPUs are free."""

    def __init__(self, market: Market, grid_s: list[float], prices: Cells) -> None:
        self._market = market
        self._grid_s = grid_s
        self._prices = prices
        self._steps: dict[tuple[tuple[Alternative, ...], float], Offered] = {}

    def bound(self) -> float:
        """Return the bound: no plan has a smaller sum of weighted completion times, counted from
        submission."""
        paid = [self.least(buyer) for buyer in self._market.buyers]
        worth, offset = self.worth(), self._market.offset
        return math.fsum((offset, *paid, -worth)) - ROUNDING * math.fsum(
            (abs(offset), *paid, worth)
        )

    def refutes(self, due_s: list[float]) -> bool:
        """Return whether no plan completes every job by its due date, in seconds after now."""
        paid = []
        for buyer, by_s in zip(self._market.buyers, due_s, strict=True):
            paid.append(self.by(buyer, by_s))
            if paid[-1] == math.inf:
                return True
        worth, total = self.worth(), math.fsum(paid)
        return total - worth > ROUNDING * (total + worth)

    def cut(self, grid_s: list[float]) -> "Prices":
        """Return the same prices where the grid ends at another instant, for due dates before it;
        made at next to no cost."""
        cut = Prices(self._market, grid_s, self._prices)
        cut._steps = self._steps
        return cut

    def worth(self) -> float:
        """Return what all GPU-seconds of the grid are worth."""
        grid = self._grid_s
        return math.fsum(
            gpus * price * (grid[k + 1] - grid[k])
            for gpus, prices in zip(self._market.capacity, self._prices, strict=True)
            for k, price in enumerate(prices[: len(grid) - 1])
        )

    def by(self, buyer: Buyer, due_s: float, bought: Cells | None = None) -> float:
        """Return the least that a job can pay for all its work between its head and `due_s`;
        infinite where it cannot do it. The GPU-seconds for it are added to `bought`."""
        grid, last = self._grid_s, len(self._grid_s) - 1
        free_s = max(0.0, due_s - max(grid[last], buyer.head_s))  # at full speed and for nothing
        need = buyer.work_s - free_s
        if need <= EXACT * buyer.work_s:
            return 0.0
        offers: list[Offer] = []
        for k in range(self._interval(buyer.head_s), last):
            if grid[k] >= due_s:
                break
            offers += self._offers(buyer, 0.0, k, due_s)
        paid, missing = _taken(offers, need, bought)
        return paid if missing <= IN_TIME * buyer.work_s else math.inf

    def _interval(self, at_s: float) -> int:
        """Return the interval in which an instant lies; the number of them for one after the
        grid."""
        return bisect_right(self._grid_s, at_s) - 1

    def least(self, buyer: Buyer, bought: Cells | None = None) -> float:
        """Return the least that a job can pay for its work and its weighted completion. The
        GPU-seconds for it are added to `bought`."""
        weight, head_s, work_s = buyer.weight, buyer.head_s, buyer.work_s
        if weight == 0:
            return 0.0
        grid, last = self._grid_s, len(self._grid_s) - 1
        plain, final = (
            self._offered(buyer.alternatives, 0.0),
            self._offered(buyer.alternatives, weight),
        )
        best = cheapest = math.inf
        end = first = self._interval(head_s)
        chosen: list[
            tuple[float, float]
        ] = []  # price and amount of the cheapest work in the intervals before k
        have = paid = 0.0  # of it, at most all the work
        enough = EXACT * work_s
        for k in range(first, last + 1):
            start_s = grid[k] if grid[k] > head_s else head_s
            until_now = weight * start_s
            if until_now >= best:
                break
            length_s = grid[k + 1] - start_s if k < last else math.inf
            cheapest = min(cheapest, plain[k][0].price)
            if until_now + work_s * cheapest < best:
                cost = self._completing(final[k], length_s, work_s - have, chosen, enough)
                if cost is not None and until_now + paid + cost < best:
                    best, end = until_now + paid + cost, k
            if k == last:
                break
            for step in plain[k]:
                if have >= work_s and chosen[-1][0] <= step.price:
                    break
                amount = step.work * length_s
                insort(chosen, (step.price, amount))
                have, paid = have + amount, paid + amount * step.price
                while have > work_s:
                    price, amount = chosen[-1]
                    beyond = have - work_s
                    if amount <= beyond:
                        chosen.pop()
                        have, paid = have - amount, paid - amount * price
                    else:
                        chosen[-1] = price, amount - beyond
                        have, paid = work_s, paid - beyond * price
        if bought is not None:
            self._add(buyer, first, end, bought)
        return best

    def _add(self, buyer: Buyer, first: int, end: int, bought: Cells) -> None:
        """Add what a job buys that completes in interval `end`."""
        offers = [offer for k in range(first, end) for offer in self._offers(buyer, 0.0, k)]
        offers += self._offers(buyer, buyer.weight, end)
        _taken(offers, buyer.work_s, bought)

    def _offers(
        self, buyer: Buyer, per_s: float, k: int, until_s: float = math.inf
    ) -> Iterator[Offer]:
        """Yield what work in interval `k`, up to an instant, costs a job that pays `per_s` for each
        second that it works there."""
        grid = self._grid_s
        end_s = min(grid[k + 1], until_s) if k + 1 < len(grid) else until_s
        length_s = end_s - max(grid[k], buyer.head_s)
        for step in self._offered(buyer.alternatives, per_s)[k]:
            yield step.price, k, step.work * length_s, step

    @staticmethod
    def _completing(
        steps: tuple[Step, ...],
        length_s: float,
        need: float,
        chosen: list[tuple[float, float]],
        enough: float,
    ) -> float | None:
        """Return what is paid besides that for `chosen` to complete in an interval, whose work may
        replace some of it; None where it cannot be done."""
        cost, at = 0.0, len(chosen)
        spare = chosen[-1][1] if chosen else 0.0
        for step in steps:
            left = step.work * length_s
            taken = min(need, left)
            need, left, cost = need - taken, left - taken, cost + taken * step.price
            while (
                left > 0 and need <= 0 and at and chosen[at - 1][0] > step.price
            ):  # bought earlier, and dearer
                swapped = min(left, spare)
                cost -= swapped * (chosen[at - 1][0] - step.price)
                left, spare = left - swapped, spare - swapped
                if spare <= 0:
                    at -= 1
                    spare = chosen[at - 1][1] if at else 0.0
        return cost if need <= enough else None

    def _offered(self, own: tuple[Alternative, ...], per_s: float) -> Offered:
        key = own, per_s
        if key not in self._steps:
            self._steps[key] = Offered(own, per_s, self._prices)
        return self._steps[key]


def _taken(offers: list[Offer], need: float, bought: Cells | None) -> tuple[float, float]:
    """Return what the cheapest of `offers` cost that make up `need` seconds of work, and how much
    of it they leave. What they use is added to `bought`, where it lies in its intervals."""
    offers.sort(key=itemgetter(0))
    paid = []
    for price, k, amount, step in offers:
        if need <= 0:
            break
        taken = min(need, amount)
        paid.append(taken * price)
        need -= taken
        if bought is not None:
            for row, amount_s in step.uses:
                if k < len(bought[row]):
                    bought[row][k] += amount_s * taken
    return math.fsum(paid), need


def _steps(
    own: tuple[Alternative, ...], per_s: float, prices: tuple[float, ...]
) -> tuple[Step, ...]:
    """Return the lower convex hull of work and cost of the alternatives, from (0, 0) on, as steps
    of rising price."""
    points = [
        (way.speed, per_s + sum(prices[row] * amount for row, amount in way.uses), way)
        for way in own
    ]
    steps: list[Step] = []
    speed = cost = 0.0
    before: tuple[tuple[int, float], ...] = ()
    while ahead := [point for point in points if point[0] > speed]:
        price, _, best = min(((y - cost) / (x - speed), -x, point) for x, y, point in ahead)
        more = best.speed - speed
        uses = [(row, amount / more) for row, amount in best.uses]
        uses += [(row, -amount / more) for row, amount in before]  # in whose place it is
        steps.append(Step(price, more, tuple(uses)))
        speed, cost, before = best.speed, cost + price * more, best.uses
    return tuple(steps)
