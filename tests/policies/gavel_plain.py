"""Gavel's programs as published, one row a job and one column a combination: what ours must
equal."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from ortools.linear_solver import pywraplp

from optsched_solvers.policies.gavel.program import Program

Combination = tuple[int, ...]


class Plain:
    """The base constraints over jobs and, if the program has them, pairs; throughput(m, X) of each
    job."""

    def __init__(self, program: Program) -> None:
        self.lp = pywraplp.Solver.CreateSolver("GLOP")
        jobs, types = program.rate.shape
        infinity = self.lp.infinity()
        time = [self.lp.Constraint(0.0, 1.0) for _ in range(jobs)]
        workers = [self.lp.Constraint(0.0, float(n)) for n in program.workers]
        self.x: dict[tuple[Combination, int], pywraplp.Variable] = {}
        self.rates: list[dict[tuple[Combination, int], float]] = [{} for _ in range(jobs)]
        singles: list[Combination] = [(i,) for i in range(jobs)]
        both: list[Combination] = (
            list(combinations(range(jobs), 2)) if program.pairs is not None else []
        )
        for combination in singles + both:
            for k in range(types):
                rates = rates_of(program, combination, k)
                if min(rates) <= 0:
                    continue
                x = self.x[combination, k] = self.lp.NumVar(0.0, infinity, "")
                workers[k].SetCoefficient(x, float(program.gpus[combination[0], k]))
                for i, rate in zip(combination, rates, strict=True):
                    time[i].SetCoefficient(x, 1.0)
                    self.rates[i][combination, k] = rate

    def throughput(self, i: int) -> pywraplp.LinearExpr:
        return sum(
            (rate * self.x[at] for at, rate in self.rates[i].items()),
            0.0 * self.lp.NumVar(0, 0, ""),
        )

    def best(self, objective: pywraplp.LinearExpr) -> float | None:
        """Its maximum, None where the constraints cannot be met."""
        self.lp.Maximize(objective)
        return float(self.lp.Objective().Value()) if self.lp.Solve() == self.lp.OPTIMAL else None


def rates_of(program: Program, combination: Combination, k: int) -> list[float]:
    if len(combination) == 1:
        return [float(program.rate[combination[0], k])]
    assert program.pairs is not None
    i, j = combination
    if program.gpus[i, k] != program.gpus[j, k]:
        return [0.0]
    a, b = program.pairs.kind_of_job[i], program.pairs.kind_of_job[j]
    return [float(program.pairs.pair_rate[a, b, k]), float(program.pairs.pair_rate[b, a, k])]


def max_min(program: Program, weight: np.ndarray) -> float:
    """max min_m (sf_m / w_m) throughput(m, X) / throughput(m, X_equal), X_equal = N_j / sum N."""
    plain = Plain(program)
    least = plain.lp.NumVar(0.0, plain.lp.infinity(), "")
    part = program.workers / program.workers.sum()
    for i, rate in enumerate(program.rate):
        unit = float(program.gpus[i, 0] / weight[i] / (rate @ part))
        plain.lp.Add(unit * plain.throughput(i) >= least)
    found = plain.best(least)
    assert found is not None
    return found


def reaches(program: Program, need: np.ndarray) -> bool:
    """Whether throughput(m, X) >= need_m for all m: the largest common factor, so that no
    feasibility is at the edge of the solver's tolerance."""
    plain = Plain(program)
    factor = plain.lp.NumVar(0.0, 10.0, "")
    for i, own in enumerate(need):
        plain.lp.Add(float(1.0 / own) * plain.throughput(i) >= factor)
    found = plain.best(factor)
    assert found is not None
    return found >= 1.0


def bisected(feasible: Callable[[float], bool], low: float, high: float, to: float = 2e-6) -> float:
    """The smallest feasible number."""
    assert feasible(high)
    while high > low * (1 + to):
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high


def largest_sum(program: Program, price: np.ndarray, need: np.ndarray) -> float | None:
    """max sum_m sum_j T[m][j] / cost_j X[m][j], throughput(m, X) >= need_m."""
    plain = Plain(program)
    value = 0.0 * plain.lp.NumVar(0, 0, "")
    for i, rates in enumerate(plain.rates):
        value = value + sum(rate / float(price[at[1]]) * plain.x[at] for at, rate in rates.items())
        if need[i] > 0:
            plain.lp.Add(plain.throughput(i) >= float(need[i]))
    return plain.best(value)


def filled(program: Program, weights: Callable[[list[bool]], list[float]]) -> np.ndarray:
    """Normalised throughputs after water filling; who is saturated is asked of each job by a
    program of its own."""
    jobs = len(program.rate)
    part = program.workers / program.workers.sum()
    unit = [float(1.0 / (rate @ part)) for rate in program.rate]
    level, done = np.zeros(jobs), [False] * jobs
    while not all(done):
        weight = [0.0 if is_done else own for own, is_done in zip(weights(done), done, strict=True)]
        plain = Plain(program)
        rise = plain.lp.NumVar(0.0, plain.lp.infinity(), "")
        for i in range(jobs):
            own = weight[i] / float(program.gpus[i, 0])
            plain.lp.Add(unit[i] * plain.throughput(i) >= float(level[i]) * (1 - 1e-9) + own * rise)
        rose = plain.best(rise)
        assert rose is not None
        level = level + np.array(weight) / program.gpus[:, 0] * rose
        for i in range(jobs):
            if weight[i] > 0:
                plain = Plain(program)
                for j in range(jobs):
                    plain.lp.Add(unit[j] * plain.throughput(j) >= float(level[j]) * (1 - 1e-9))
                most = plain.best(unit[i] * plain.throughput(i))
                assert most is not None
                done[i] = most <= level[i] * (1 + 1e-5) + 1e-6
    return level
