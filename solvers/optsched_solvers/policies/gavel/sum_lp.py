"""The linear program of the largest sum of throughputs, with least throughputs, over jobs and pairs
of jobs.

Equal jobs are one group and share what it gets equally. With Y[c, k] the time of all jobs of
combination c on type k,

    max sum_k sum_c throughput[c, k] / price[k] * Y[c, k]
    time of group g <= count_g              [u_g]
    GPUs of type k in use <= workers_k      [p_k]
    throughput of g >= count_g * need_g     [s_g], only where need_g > 0

Pairs are generated: (g, h) on k is added while its value (1 / price_k + s_g) rate_gh + (1 / price_k
+ s_h) rate_hg exceeds u_g + u_h + gpus p_k. A first phase, whose value is minus what is missing of
the needs, finds out whether they can be met at all.
"""

from typing import Any

import numpy as np

from .active import Floats, Ints, grouped
from .glop import PRECISE, maximisation, solve
from .max_min_pairs import spread
from .program import Allocation, Program

TOLERANCE = 1e-7
"""Relative: of a column's worth beyond its price, and of what may be missing of a need."""


def largest_sum(program: Program, price: Floats, need: Floats | None = None) -> Allocation | None:
    """Shares with the largest sum of throughput / price; None where the needs cannot all be met."""
    master = _Master(program, price, np.zeros(len(program.kind)) if need is None else need)
    return master.allocation() if master.solve() else None


class _Master:
    """The program over the columns so far; a column is (group, other group or -1, type)."""

    def __init__(self, program: Program, price: Floats, need: Floats) -> None:
        self.program, pairs = program, program.pairs
        label = program.kind if pairs is None else pairs.sharer
        first, self.group, self.count = grouped(label, need)
        self.rate, self.gpus = program.rate[first], program.gpus[first]
        self.pair_rate: Floats | None = None
        if pairs is not None:
            self.pair_rate = pairs.rate[np.ix_(label[first], label[first])]
        scale = float((self.rate / price).max())
        self.worth = 1.0 / (price * scale)
        top = self.rate.max(axis=1)
        self.lp = maximisation()
        infinity = self.lp.infinity()
        self.objective = self.lp.Objective()
        self.time = [self.lp.Constraint(-infinity, n) for n in self.count.tolist()]
        self.workers = [self.lp.Constraint(-infinity, n) for n in program.workers.tolist()]
        self.least: dict[int, Any] = {}
        self.missing: list[Any] = []
        self.top = np.where(top > 0, top, 1.0)
        for g, (n, own) in enumerate(
            zip(self.count.tolist(), (need[first] / self.top).tolist(), strict=True)
        ):
            if own > 0:
                self.least[g] = self.lp.Constraint(n * own, infinity)
                self.missing.append(self.lp.NumVar(0.0, infinity, ""))
                self.least[g].SetCoefficient(self.missing[-1], 1.0)
        self.columns: list[tuple[int, int, int]] = []
        self.variables: list[Any] = []
        self.values: list[float] = []
        self.known: set[tuple[int, int, int]] = set()
        for g, k in zip(*(part.tolist() for part in (self.rate > 0).nonzero()), strict=True):
            self._add(g, -1, k)

    def _add(self, g: int, h: int, k: int) -> None:
        variable = self.lp.NumVar(0.0, self.lp.infinity(), "")
        if h < 0 or self.pair_rate is None:
            rates = [(g, self.rate[g, k])]
        elif g == h:
            rates = [(g, 2 * self.pair_rate[g, g, k])]
        else:
            rates = [(g, self.pair_rate[g, h, k]), (h, self.pair_rate[h, g, k])]
        for one, rate in rates:
            self.time[one].SetCoefficient(variable, 2.0 if g == h else 1.0)
            if one in self.least:
                self.least[one].SetCoefficient(variable, float(rate / self.top[one]))
        self.workers[k].SetCoefficient(variable, float(self.gpus[g, k]))
        self.columns.append((g, h, k))
        self.known.add((g, h, k))
        self.variables.append(variable)
        self.values.append(float(self.worth[k]) * float(sum(rate for _, rate in rates)))

    def solve(self) -> bool:
        """Whether the needs can be met; the solution then has the largest sum."""
        if self.missing:
            for variable in self.missing:
                self.objective.SetCoefficient(variable, -1.0)
            self._generate(0.0)
            wanted = sum(row.lb() for row in self.least.values())
            missing = [variable.solution_value() for variable in self.missing]
            if sum(missing) > TOLERANCE * max(1.0, wanted):
                return False
            for variable, most in zip(self.missing, missing, strict=True):
                self.objective.SetCoefficient(variable, 0.0)
                variable.SetUb(max(0.0, most))
        self._generate(1.0)
        return True

    def _generate(self, phase: float) -> None:
        for variable, value in zip(self.variables, self.values, strict=True):
            self.objective.SetCoefficient(variable, phase * value)
        while True:
            solve(self.lp, PRECISE)
            found = [] if self.pair_rate is None else self._violated(phase, self.pair_rate)
            if not found:
                return
            for column in found:
                self._add(*column)
                self.objective.SetCoefficient(self.variables[-1], phase * self.values[-1])

    def _violated(self, phase: float, pair_rate: Floats) -> list[tuple[int, int, int]]:
        """Of each group and type the pair that is worth most beyond its price."""
        gain = np.zeros(len(self.count))
        for g, row in self.least.items():
            gain[g] = max(0.0, -row.dual_value()) / self.top[g]
        time = np.array([row.dual_value() for row in self.time])
        found: dict[tuple[int, int, int], None] = {}
        for k, row in enumerate(self.workers):
            rate = pair_rate[:, :, k]
            half = (phase * self.worth[k] + gain)[:, None] * rate - time[:, None]
            half -= (self.gpus.max(axis=1) * row.dual_value() / 2)[:, None]
            both = np.where(rate > 0, half + half.T, -np.inf)
            np.fill_diagonal(both, np.where(self.count > 1, both.diagonal(), -np.inf))
            partner = both.argmax(axis=1)
            for g in (both.max(axis=1) > TOLERANCE).nonzero()[0].tolist():
                column = (min(g, int(partner[g])), max(g, int(partner[g])), k)
                if column not in self.known:
                    found[column] = None
        return list(found)

    def allocation(self) -> Allocation:
        """Every group's time dealt out to its jobs."""
        members = [(self.group == g).nonzero()[0] for g in range(len(self.count))]
        share = np.zeros_like(self.program.rate)
        parts: list[tuple[Ints, Ints, Ints, Floats]] = []
        for (g, h, k), variable in zip(self.columns, self.variables, strict=True):
            amount = variable.solution_value()
            if amount <= 0:
                continue
            if h < 0:
                share[members[g], k] += amount / len(members[g])
            else:
                one, two, part = spread(members[g], members[h], g == h)
                parts.append((one, two, np.full(len(one), k), amount * part))
        if not parts:
            parts = [(np.zeros(0, dtype=np.int64),) * 3 + (np.zeros(0),)]
        first, second, column, fraction = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        return Allocation(
            share, np.minimum(first, second), np.maximum(first, second), column, fraction
        )
