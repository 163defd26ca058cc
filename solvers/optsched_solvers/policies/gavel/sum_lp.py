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

from .active import Floats, grouped
from .glop import PRECISE, maximisation, solve
from .max_min_pairs import deal_out
from .pair_columns import PairLp
from .program import Allocation, Program, allocation

TOLERANCE = 1e-7
"""Relative: of a column's worth beyond its price, and of what may be missing of a need."""


def largest_sum(program: Program, price: Floats, need: Floats | None = None) -> Allocation | None:
    """Return shares with the largest sum of throughput / price; None where the needs cannot all be
    met."""
    master = _Master(program, price, np.zeros(len(program.kind)) if need is None else need)
    return master.allocation() if master.solve() else None


class _Master(PairLp):
    """The program over the columns so far."""

    def __init__(self, program: Program, price: Floats, need: Floats) -> None:
        self.program, pairs = program, program.pairs
        label = program.kind if pairs is None else pairs.kind_of_job
        first, self.group, self.count = grouped(label, need)
        self.rate, self.gpus = program.rate[first], program.gpus[first]
        self.pair_rate: Floats | None = None
        if pairs is not None:
            self.pair_rate = pairs.pair_rate[np.ix_(label[first], label[first])]
        scale = float((self.rate / price).max())
        self.worth = 1.0 / (price * scale)
        top = self.rate.max(axis=1)
        super().__init__(maximisation(), self.count, program.workers)
        self.objective = self.lp.Objective()
        self.missing: list[Any] = []
        self.top = np.where(top > 0, top, 1.0)
        for g, least in enumerate((need[first] / self.top).tolist()):
            if least > 0:
                self.gain[g] = self.lp.Constraint(float(self.count[g]) * least, self.lp.infinity())
                self.missing.append(self.lp.NumVar(0.0, self.lp.infinity(), ""))
                self.gain[g].SetCoefficient(self.missing[-1], 1.0)
        self.values: list[float] = []
        for g, k in zip(*(part.tolist() for part in (self.rate > 0).nonzero()), strict=True):
            self._add(g, -1, k, [self.rate[g, k]])

    def _add(self, g: int, h: int, k: int, rates: list[float]) -> None:
        """Add a column in which its groups have these rates."""
        self.enter(
            (g, h, k),
            [float(rate / self.top[own]) for rate, own in zip(rates, (g, h), strict=False)],
            float(self.gpus[g, k]),
        )
        self.values.append(float(self.worth[k]) * float(sum(rates)))

    def solve(self) -> bool:
        """Return whether the needs can be met; the solution then has the largest sum."""
        if self.missing:
            for variable in self.missing:
                self.objective.SetCoefficient(variable, -1.0)
            self._generate(0.0)
            wanted = sum(row.lb() for row in self.gain.values())
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
            if self.pair_rate is None:
                return
            violated = self._violated(phase, self.pair_rate)
            if not violated:
                return
            for g, h, k in violated:
                self._add(g, h, k, [self.pair_rate[g, h, k], self.pair_rate[h, g, k]])
                self.objective.SetCoefficient(self.variables[-1], phase * self.values[-1])

    def _violated(self, phase: float, pair_rate: Floats) -> list[tuple[int, int, int]]:
        """Return of each group and type the pair that is worth most beyond its price."""
        gain = np.zeros(len(self.count))
        for g, row in self.gain.items():
            gain[g] = max(0.0, -row.dual_value()) / self.top[g]
        time = np.array([row.dual_value() for row in self.time])
        violated: dict[tuple[int, int, int], None] = {}
        for k, row in enumerate(self.workers):
            rate = pair_rate[:, :, k]
            half = (phase * self.worth[k] + gain)[:, None] * rate - time[:, None]
            half -= (self.gpus.max(axis=1) * row.dual_value() / 2)[:, None]
            both = np.where(rate > 0, half + half.T, -np.inf)
            np.fill_diagonal(both, np.where(self.count > 1, both.diagonal(), -np.inf))
            partner = both.argmax(axis=1)
            for g in (both.max(axis=1) > TOLERANCE).nonzero()[0].tolist():
                violated[min(g, int(partner[g])), max(g, int(partner[g])), k] = None
        known = set(self.columns)
        return [column for column in violated if column not in known]

    def allocation(self) -> Allocation:
        """Return every group's time dealt out to its jobs."""
        return allocation(deal_out(self.used(), self.group), self.program.rate.shape)
