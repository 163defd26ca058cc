"""The linear relaxation of a round solved exactly, by column generation: prices that no others
beat, and a solution in which few jobs are torn between options."""

from collections.abc import Callable
from typing import Any

import numpy as np

from optsched.round.model import Floats, Ints, RoundModel

MOST_TURNS = 40
FIRST_COLUMNS = 2
"""Options of each job, the best by prices, with which the linear program begins."""
LONGEST_S = 3600.0


class Master:
    """max value x  s.t.  all rows, one option a job, x >= 0: over the options that were added."""

    def __init__(self, model: RoundModel, unit: float) -> None:
        """State the rows; `unit` is what values are measured in."""
        from ortools.linear_solver import pywraplp

        self._model, self._unit = model, unit
        self._program = pywraplp.Solver.CreateSolver("GLOP")
        self._solved = pywraplp.Solver.OPTIMAL
        none = -self._program.infinity()
        self._rows = [
            self._program.RowConstraint(none, amount, "") for amount in model.rows.capacity.tolist()
        ]
        self._jobs = [
            self._program.RowConstraint(1.0 if must else none, 1.0, "")
            for must in model.must.tolist()
        ]
        self._program.Objective().SetMaximization()
        self._has = np.zeros(len(model.options.value), dtype=bool)
        self._options: list[int] = []
        self._taken: list[Any] = []

    def add(self, options: Ints) -> bool:
        """Add the options that are not there yet; False where all are."""
        model, program = self._model, self._program
        new = np.unique(options[~self._has[options]])
        self._has[new] = True
        columns = [program.NumVar(0.0, program.infinity(), "") for _ in range(len(new))]
        value, jobs = model.options.value[new] / self._unit, model.options.job[new]
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

    def solve(self, left_s: float) -> tuple[float, Floats, Floats] | None:
        """Return the value of the solution, the prices of the rows and how much is taken of each
        option; None where it is not found in time."""
        self._program.SetTimeLimit(int(1e3 * min(max(left_s, 1e-3), LONGEST_S)))
        if self._program.Solve() != self._solved:
            return None
        prices = np.array([max(0.0, row.dual_value()) for row in self._rows]) * self._unit
        weights = np.zeros(len(self._has))
        weights[self._options] = [column.solution_value() for column in self._taken]
        return self._program.Objective().Value() * self._unit, prices, np.clip(weights, 0.0, 1.0)


def by_columns(
    model: RoundModel, prices: Floats, unit: float, tolerance: float, left_s: Callable[[], float]
) -> tuple[Floats, float, Floats | None, int]:
    """Return the best prices found, the bound that they prove, what the last linear program takes
    of each option (None without any), and how often all options were priced. Ends when the
    bound is within `tolerance` of the linear program.

    In each turn the options that are best at its prices join, and those that are best half-way to
    the best prices so far, which keeps prices from leaping (Wentges, International Transactions in
    Operational Research 4, 1997).
    """
    master = Master(model, unit)
    master.add(_best_options(model, model.reduced_values(prices), FIRST_COLUMNS))
    bound, weights, priced = model.bound(prices), None, 1
    for _ in range(MOST_TURNS):
        solution = master.solve(left_s()) if left_s() > 0 else None
        if solution is None:
            break
        value, duals, weights = solution
        new = []
        for trial in (duals, (duals + prices) / 2):
            reduced = model.reduced_values(trial)
            best = model.best_reduced(reduced)
            proved, priced = float(np.sum(model.rows.capacity * trial) + best.sum()), priced + 1
            new.append(_best_options(model, reduced, 1))
            if proved < bound:
                prices, bound = trial, proved
        if bound - value <= tolerance or not master.add(np.concatenate(new)):
            break
    return prices, bound, weights, priced


def _best_options(model: RoundModel, reduced: Floats, count: int) -> Ints:
    """Return the `count` options of each job that have the largest reduced value; of jobs that may
    stay out only those above 0, but for the first of them."""
    options = model.options
    order = np.lexsort((-reduced, options.job))
    rank = np.arange(len(order)) - options.first[:-1][options.job]
    best = order[rank < count]
    return best[(reduced[best] > 0) | model.must[options.job[best]]] if count == 1 else best
