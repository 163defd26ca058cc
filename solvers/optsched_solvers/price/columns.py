"""The linear relaxation of a round solved exactly, by column generation: prices that no others
beat, and a solution in which few jobs are torn between options."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from optsched.round.model import NO_OPTION, Floats, Ints, RoundModel

MOST_TURNS = 40
LEFT_OUT = 0.3
"""Part of what jobs could gain by options that are not there, or of the tolerance, of which none
is added in a turn: where many jobs gain little each."""
LONGEST_S = 3600.0


class Master:
    """max value x  s.t.  all rows, one option a job, x >= 0: over the options that were added. The
    other jobs stay at the options `fixed` (or -1) until options of theirs are added."""

    def __init__(self, model: RoundModel, fixed: Ints, unit: float) -> None:
        """State the rows; `unit` is what values are measured in."""
        from ortools.linear_solver import pywraplp

        self._model, self._unit, self._fixed = model, unit, fixed.copy()
        self._program = pywraplp.Solver.CreateSolver("GLOP")
        self._solved = pywraplp.Solver.OPTIMAL
        none = -self._program.infinity()
        self._rows = [self._program.RowConstraint(none, 0.0, "") for _ in model.rows.limits]
        self._jobs: dict[int, Any] = {}
        self._program.Objective().SetMaximization()
        self._has = np.zeros(len(model.options.value), dtype=bool)
        self._options: list[int] = []
        self._taken: list[Any] = []

    def missing(self, reduced: Floats, allowed: float) -> Ints:
        """Return the options by which jobs would gain most on what they have here, at these reduced
        values. All others together gain no more than what is `allowed`, or than a small part."""
        model, stays = self._model, self._fixed >= 0
        here = np.where(self._has, reduced, -np.inf)
        here[self._fixed[stays]] = reduced[self._fixed[stays]]
        most = np.maximum.reduceat(here, model.options.first[:-1])
        most = np.where(stays | model.must, most, np.maximum(most, 0.0))
        gain = model.best_reduced(reduced) - most
        order = np.argsort(gain, kind="stable")
        jobs = order[np.cumsum(gain[order]) > LEFT_OUT * max(allowed, float(gain.sum()))]
        options = np.concatenate([model.best_options(reduced)[jobs], self._fixed[jobs]])
        return options[options >= 0]

    def add(self, options: Ints) -> bool:
        """Add the options that are not there yet, with those at which their jobs were fixed; False
        where all are."""
        model, program = self._model, self._program
        options = options[~self._has[options]]
        freed = self._fixed[model.options.job[options]]
        new = np.unique(np.concatenate([options, freed[freed >= 0]]))
        self._has[new] = True
        columns = [program.NumVar(0.0, program.infinity(), "") for _ in range(len(new))]
        value, jobs = model.options.value[new] / self._unit, model.options.job[new]
        self._free(np.unique(jobs))
        for column, worth, j in zip(columns, value.tolist(), jobs.tolist(), strict=True):
            program.Objective().SetCoefficient(column, worth)
            self._jobs[j].SetCoefficient(column, 1.0)
        entry, position = model.rows.entries(model.options.pattern[new])
        for k, r, amount in zip(
            position.tolist(),
            model.rows.row[entry].tolist(),
            model.rows.amount[entry].tolist(),
            strict=True,
        ):
            self._rows[r].SetCoefficient(columns[k], amount)
        self._options += new.tolist()
        self._taken += columns
        return bool(len(new))

    def _free(self, jobs: Ints) -> None:
        """Give jobs rows of their own, and what they were fixed at back."""
        none = -self._program.infinity()
        for j in jobs.tolist():
            if j not in self._jobs:
                least = 1.0 if self._model.must[j] else none
                self._jobs[j] = self._program.RowConstraint(least, 1.0, "")
        self._fixed[jobs] = NO_OPTION
        left = self._model.rows.capacity - self._model.usage(self._fixed[self._fixed >= 0])
        for row, amount in zip(self._rows, left.tolist(), strict=True):
            row.SetUb(amount)

    def solve(self, left_s: float) -> tuple[float, Floats, Floats] | None:
        """Return the value of the solution, the prices of the rows and how much is taken of each
        option; None where it is not found in time."""
        self._program.SetTimeLimit(int(1e3 * min(max(left_s, 1e-3), LONGEST_S)))
        if self._program.Solve() != self._solved:
            return None
        prices = np.array([max(0.0, row.dual_value()) for row in self._rows]) * self._unit
        weights = np.zeros(len(self._has))
        fixed = self._fixed[self._fixed >= 0]
        weights[fixed] = 1.0
        weights[self._options] = [column.solution_value() for column in self._taken]
        value = self._program.Objective().Value() * self._unit
        value += float(self._model.options.value[fixed].sum())
        return value, prices, np.clip(weights, 0.0, 1.0)


def by_columns(
    model: RoundModel,
    prices: Floats,
    unit: float,
    tolerances: Sequence[float],
    left_s: Callable[[], float],
    plan: Ints | None = None,
    enough: float = -np.inf,
) -> Iterator[tuple[Floats, float, Floats | None, int]]:
    """Yield, when the bound is within each of the `tolerances` of the linear program, and in the
    end or once the bound is `enough`, the best prices found, the bound that they prove, what the
    last linear program takes of each option (None without any), and how often all options were
    priced.

    In each turn the options that are best at its prices join, and those that are best half-way to
    the best prices so far, which keeps prices from leaping (Wentges, International Transactions in
    Operational Research 4, 1997). With a `plan`, the option of each job (or -1) in a choice that
    fits all rows, jobs stay at that outside of the linear program as long as it is their best.
    """
    master = _master(model, prices, unit, tolerances[0], plan)
    bound, weights, priced = model.bound(prices), None, 1
    *coarse, finest = tolerances
    for _ in range(MOST_TURNS):
        solution = master.solve(left_s()) if left_s() > 0 else None
        if solution is None:
            break
        value, duals, weights = solution
        duals = np.minimum(duals, model.dearest)
        new = []
        for trial in (duals, (duals + prices) / 2):
            reduced = model.reduced_values(trial)
            best = model.best_reduced(reduced)
            proved, priced = float(np.sum(model.rows.capacity * trial) + best.sum()), priced + 1
            new.append(master.missing(reduced, (*coarse, finest)[0]))
            if proved < bound:
                prices, bound = trial, proved
        if coarse and bound - value <= coarse[0]:
            del coarse[0]
            yield prices, bound, weights, priced
        if bound <= max(enough, value + finest) or not master.add(np.concatenate(new)):
            break
    yield prices, bound, weights, priced


def _master(
    model: RoundModel, prices: Floats, unit: float, allowed: float, plan: Ints | None
) -> Master:
    """Return the linear program over the best two options of all jobs; with a plan, over those of
    jobs that had rather do something else."""
    reduced = model.reduced_values(prices)
    if plan is not None:
        master = Master(model, plan, unit)
        master.add(master.missing(reduced, allowed))
        return master
    master = Master(model, np.full(len(model.jobs), NO_OPTION), unit)
    _, best = model.options.best(reduced)
    reduced[best] = -np.inf
    _, second = model.options.best(reduced)
    master.add(np.concatenate([best, second]))
    return master
