"""Column generation for max-min fairness over job pairs: see `max_min_pairs` for the problem.

The unit here is a *group*: `count` interchangeable jobs. Summing the constraints of its members
gives, with y the time fractions of all members together, z the smallest normalised throughput, K
GPU types and duals in brackets,

    max z   sum of rate * y of g's columns >= count_g * z             for every group g   [lam_g]
            sum of y of g's columns (twice where both are of g) <= count_g               [u_g]
            sum over columns on GPU type k of gpus * y <= workers_k   for every k         [p_k]

which loses nothing: sharing a group's fractions equally among its members keeps every constraint.
All single columns are in the model from the start; a pair (g, h) on k is added once its violation
lam_g rate_gh + lam_h rate_hg - u_g - u_h - gpus p_k is positive.

Bound. For any lam, u, p >= 0 with sum count * lam = 1, raising u_g by half the largest violation of
its pairs and by the whole of its singles makes them feasible for the dual, so sum count * u + sum
workers * p is a proven upper bound (weak duality; Farley, Operations Research 38, 1990, divides
where this adds). Each round prices twice: at the prices of the LP and at their average with the
best so far (Wentges, Int. Trans. Operational Research 4, 1997), which gives columns of two kinds
and saves about a round in six at a gap of 1 %.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import glop
from .active import Bools, Floats, Ints

STABILITY = 0.3
"""Weight of the best prices so far in the smoothed ones."""

EPSILON = 16 * float(np.finfo(np.float64).eps)
ROUNDING = 1e-12
"""Relative; more than the sums of a bound can lose."""


@dataclass(frozen=True)
class Groups:
    """Groups of interchangeable jobs; rates are normalised, so that z is in the same unit."""

    count: Floats
    gpus: Floats
    rate: Floats
    """[group, GPU type], alone."""
    pair_rate: Floats
    """[GPU type, group, other]: of the group while it shares with the other."""
    workers: Floats
    """GPUs of each type."""


@dataclass(frozen=True)
class Prices:
    """Dual values: what a unit of normalised throughput, of a job's time and of a GPU's time is
    worth, in z."""

    throughput: Floats
    time: Floats
    gpus: Floats

    def toward(self, other: "Prices", weight: float) -> "Prices":
        """The average that gives `other` this weight."""
        pairs = (
            (self.throughput, other.throughput),
            (self.time, other.time),
            (self.gpus, other.gpus),
        )
        return Prices(*((1 - weight) * mine + weight * theirs for mine, theirs in pairs))


@dataclass(frozen=True)
class Columns:
    """Column i: groups `first[i]` and `second[i]` (-1: alone) share GPU type `gpu_type[i]`."""

    first: Ints
    second: Ints
    gpu_type: Ints


@dataclass(frozen=True)
class Generated:
    """The best fractions over the columns generated, and the bound and prices that prove how good
    they are."""

    columns: Columns
    """Those used."""
    amount: Floats
    value: float
    bound: float
    prices: Prices
    rounds: int
    size: int
    """How many columns the last model had."""


class Master:
    """The LP over the columns so far."""

    def __init__(self, groups: Groups) -> None:
        self.groups, self.lp = groups, glop.maximisation()
        infinity = self.lp.infinity()
        level = self.lp.NumVar(0.0, infinity, "")
        # n * z, so that the duals of a job are near 1 and GLOP's absolute tolerances fit.
        self.lp.Objective().SetCoefficient(level, float(groups.count.sum()))
        self.throughput = [self.lp.Constraint(0.0, infinity) for _ in groups.count]
        self.time = [self.lp.Constraint(-infinity, count) for count in groups.count.tolist()]
        self.workers = [
            self.lp.Constraint(-infinity, workers) for workers in groups.workers.tolist()
        ]
        for row, count in zip(self.throughput, groups.count.tolist(), strict=True):
            row.SetCoefficient(level, -count)
        self.variables: list[Any] = []
        self.blocks: list[Columns] = []

    def add(self, columns: Columns) -> None:
        """Add columns that are not there yet."""
        groups, alone = self.groups, columns.second < 0
        own = np.where(
            alone,
            groups.rate[columns.first, columns.gpu_type],
            groups.pair_rate[columns.gpu_type, columns.first, columns.second],
        )
        others = groups.pair_rate[columns.gpu_type, columns.second, columns.first]
        lists = (
            columns.first,
            columns.second,
            columns.gpu_type,
            own,
            others,
            groups.gpus[columns.first],
        )
        for first, second, gpu_type, rate, other_rate, gpus in zip(
            *(part.tolist() for part in lists), strict=True
        ):
            variable = self.lp.NumVar(0.0, self.lp.infinity(), "")
            twice = 2.0 if first == second else 1.0
            self.throughput[first].SetCoefficient(variable, twice * rate)
            self.time[first].SetCoefficient(variable, twice)
            if second not in (-1, first):
                self.throughput[second].SetCoefficient(variable, other_rate)
                self.time[second].SetCoefficient(variable, 1.0)
            self.workers[gpu_type].SetCoefficient(variable, gpus)
            self.variables.append(variable)
        self.blocks.append(columns)

    def solve(self) -> tuple[float, Prices]:
        """Its optimum z, and prices scaled so that those of throughput sum to 1 over the jobs."""
        glop.solve(self.lp, glop.CONTINUED)
        throughput = np.maximum(0.0, [-row.dual_value() for row in self.throughput])
        time = np.maximum(0.0, [row.dual_value() for row in self.time])
        workers = np.maximum(0.0, [row.dual_value() for row in self.workers])
        total = float(self.groups.count @ throughput)
        value = float(self.lp.Objective().Value() / self.groups.count.sum())
        return value, Prices(throughput / total, time / total, workers / total)

    def used(self) -> tuple[Columns, Floats]:
        """The columns that the last solve used, in the order in which they came, and how much of
        each."""
        amount = np.array([variable.solution_value() for variable in self.variables])
        use = np.flatnonzero(amount > 0)
        return Columns(
            *(
                np.concatenate([getattr(block, name) for block in self.blocks])[use]
                for name in ("first", "second", "gpu_type")
            )
        ), amount[use]


class Pricing:
    """Violations of all pairs at once."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.forbidden: Bools = groups.gpus[:, None] != groups.gpus[None, :]
        np.fill_diagonal(self.forbidden, groups.count < 2)
        self.violation: Floats = np.empty_like(groups.pair_rate)
        """Of the last prices, [GPU type, group, other]."""
        self.known: Bools = np.zeros(groups.pair_rate.shape, dtype=np.bool_)
        rate = np.concatenate([groups.rate.T, groups.pair_rate.max(axis=2)])
        self.largest_rate: Floats = rate.max(axis=0)

    def price(self, prices: Prices) -> tuple[float, Prices]:
        """The bound that these prices prove, and the dual feasible prices that they become."""
        groups = self.groups
        worst = np.full(len(groups.count), -np.inf)
        for gpu_type, price in enumerate(prices.gpus.tolist()):
            half = prices.throughput[:, None] * groups.pair_rate[gpu_type]
            half -= (prices.time + groups.gpus * (price / 2))[:, None]
            both = np.add(half, half.T, out=self.violation[gpu_type])
            both[self.forbidden] = -np.inf
            single = (
                prices.throughput * groups.rate[:, gpu_type] - prices.time - groups.gpus * price
            )
            worst = np.maximum(worst, np.maximum(both.max(axis=1) / 2, single))
        # What rounding may have taken off a violation.
        slack = EPSILON * (
            prices.throughput * self.largest_rate + prices.time + groups.gpus * prices.gpus.max()
        )
        time = prices.time + np.maximum(0.0, worst + slack)
        total = groups.count @ time + groups.workers @ prices.gpus
        bound = float(total / (groups.count @ prices.throughput)) * (1 + ROUNDING)
        return bound, Prices(prices.throughput, time, prices.gpus)

    def violated(self, tolerance: float) -> Columns:
        """Of every group and GPU type, the most violated pair, unless the master has it."""
        gpu_types, groups, _ = self.violation.shape
        partner = self.violation.argmax(axis=2)
        gpu_type, group = np.indices((gpu_types, groups))
        use = self.violation[gpu_type, group, partner] > tolerance
        gpu_type, group, partner = gpu_type[use], group[use], partner[use]
        code = np.unique(
            (gpu_type * groups + np.minimum(group, partner)) * groups + np.maximum(group, partner)
        )
        code = code[~self.known.reshape(-1)[code]]
        self.known.reshape(-1)[code] = True
        return Columns(code // groups % groups, code % groups, code // (groups * groups))


def generate(groups: Groups, gap: float) -> Generated:
    """Add columns until the bound is within `gap` (relative) of the value, or no pair is
    violated."""
    master, pricing = Master(groups), Pricing(groups)
    group, gpu_type = (part.reshape(-1) for part in np.indices(groups.rate.shape))
    master.add(Columns(group, np.full_like(group, -1), gpu_type))
    bound, best, rounds = np.inf, None, 0
    while True:
        rounds += 1
        value, exact = master.solve()
        # Violations below this raise the bound by less than a thousandth of the gap.
        tolerance = 1e-3 * max(gap, 1e-9) * value / float(groups.count.sum())
        found = []
        # Both before the next solve: a pair that both find is added once.
        for prices in ([exact.toward(best, STABILITY)] if best else []) + [exact]:
            proved, feasible = pricing.price(prices)
            if proved < bound:
                bound, best = proved, feasible
            found.append(pricing.violated(tolerance))
        assert best is not None
        if bound <= value * (1 + gap) or not any(len(columns.first) for columns in found):
            return Generated(*master.used(), value, bound, best, rounds, len(master.variables))
        for columns in found:
            master.add(columns)
