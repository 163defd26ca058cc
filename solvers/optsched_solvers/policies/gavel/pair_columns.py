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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Prices(NamedTuple):
    """Dual values: what a unit of normalised throughput, of a job's time and of a GPU's time is
    worth, in z."""

    throughput: Floats
    time: Floats
    gpus: Floats

    def toward(self, other: "Prices", weight: float) -> "Prices":
        """Return the average that gives `other` this weight."""
        pairs = (
            (self.throughput, other.throughput),
            (self.time, other.time),
            (self.gpus, other.gpus),
        )
        return Prices(*((1 - weight) * mine + weight * theirs for mine, theirs in pairs))


class Columns(NamedTuple):
    """Column i: groups `first[i]` and `second[i]` (-1: alone) share GPU type `gpu_type[i]`."""

    first: Ints
    second: Ints
    gpu_type: Ints


class PairLp:
    """A linear program over columns (group, other group or -1, GPU type) with rows for the time of
    groups, for GPUs, and in `gain` for the throughput of groups."""

    def __init__(self, lp: Any, count: Floats, workers: Floats) -> None:
        infinity = lp.infinity()
        self.lp = lp
        self.gain: dict[int, Any] = {}
        self.time = [lp.Constraint(-infinity, jobs) for jobs in count.tolist()]
        self.workers = [lp.Constraint(-infinity, gpus) for gpus in workers.tolist()]
        self.columns: list[tuple[int, int, int]] = []
        self.variables: list[Any] = []

    def enter(self, column: tuple[int, int, int], rates: Iterable[float], gpus: float) -> None:
        """Add a column of so many GPUs, with what its groups gain, each in its unit."""
        first, second, gpu_type = column
        variable = self.lp.NumVar(0.0, self.lp.infinity(), "")
        twice = 2.0 if first == second else 1.0
        for group, rate in zip(dict.fromkeys((first, second)), rates, strict=False):
            if group >= 0:
                self.time[group].SetCoefficient(variable, twice)
                if group in self.gain:
                    self.gain[group].SetCoefficient(variable, twice * rate)
        self.workers[gpu_type].SetCoefficient(variable, gpus)
        self.columns.append(column)
        self.variables.append(variable)

    def used(self) -> list[tuple[tuple[int, int, int], float]]:
        """Return the columns that the last solution uses, in the order in which they came, and how
        much of each."""
        amounts = [variable.solution_value() for variable in self.variables]
        return [pair for pair in zip(self.columns, amounts, strict=True) if pair[1] > 0]


class Master(PairLp):
    """The max-min program over the columns so far."""

    def __init__(self, groups: Groups) -> None:
        self.groups, lp = groups, glop.maximisation()
        level = lp.NumVar(0.0, lp.infinity(), "")
        # n * z, so that the duals of a job are near 1 and GLOP's absolute tolerances fit.
        lp.Objective().SetCoefficient(level, float(groups.count.sum()))
        throughput = [lp.Constraint(0.0, lp.infinity()) for _ in groups.count]
        super().__init__(lp, groups.count, groups.workers)
        self.gain = dict(enumerate(throughput))
        for row, count in zip(throughput, groups.count.tolist(), strict=True):
            row.SetCoefficient(level, -count)

    def add(self, columns: Columns) -> None:
        """Add columns that are not there yet."""
        groups = self.groups
        first, second, gpu_type = columns.first, columns.second, columns.gpu_type
        own = np.where(
            second < 0, groups.rate[first, gpu_type], groups.pair_rate[gpu_type, first, second]
        )
        others = groups.pair_rate[gpu_type, second, first]
        lists = (first, second, gpu_type, own, others, groups.gpus[first])
        for i, j, k, *rates, gpus in zip(*(part.tolist() for part in lists), strict=True):
            self.enter((i, j, k), rates, gpus)

    def solve(self) -> tuple[float, Prices]:
        """Return its optimum z, and prices scaled so that those of throughput sum to 1 over the
        jobs."""
        glop.solve(self.lp, glop.CONTINUED)
        throughput = np.maximum(0.0, [-row.dual_value() for row in self.gain.values()])
        time = np.maximum(0.0, [row.dual_value() for row in self.time])
        workers = np.maximum(0.0, [row.dual_value() for row in self.workers])
        total = float(np.sum(self.groups.count * throughput))
        value = float(self.lp.Objective().Value() / self.groups.count.sum())
        return value, Prices(throughput / total, time / total, workers / total)


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
        """Return the bound that these prices prove, and the dual feasible prices that they
        become."""
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
        total = np.sum(groups.count * time) + np.sum(groups.workers * prices.gpus)
        bound = float(total / np.sum(groups.count * prices.throughput)) * (1 + ROUNDING)
        return bound, Prices(prices.throughput, time, prices.gpus)

    def violated(self, tolerance: float) -> Columns:
        """Return of every group and GPU type the most violated pair, unless the master has it."""
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


def generate(groups: Groups, gap: float) -> tuple[Master, float, Prices, int]:
    """Add columns until the bound is within `gap` (relative) of the value, or no pair is violated;
    return the solved program, the bound, the prices that prove it, and how often it was solved."""
    master, pricing = Master(groups), Pricing(groups)
    group, gpu_type = (part.reshape(-1) for part in np.indices(groups.rate.shape))
    master.add(Columns(group, np.full_like(group, -1), gpu_type))
    bound, best, rounds = np.inf, None, 0
    while True:
        rounds += 1
        value, exact = master.solve()
        # Violations below this raise the bound by less than a thousandth of the gap.
        tolerance = 1e-3 * max(gap, 1e-9) * value / float(groups.count.sum())
        violated = []
        # Both before the next solve: a pair that both find is added once.
        for prices in ([exact.toward(best, STABILITY)] if best else []) + [exact]:
            proved, feasible = pricing.price(prices)
            if proved < bound:
                bound, best = proved, feasible
            violated.append(pricing.violated(tolerance))
        assert best is not None
        if bound <= value * (1 + gap) or not any(len(columns.first) for columns in violated):
            return master, bound, best, rounds
        for columns in violated:
            master.add(columns)
