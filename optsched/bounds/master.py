"""The linear program over schedules of jobs that says which prices to try next: the dual side of
column generation (Dantzig and Wolfe, Operations Research 8, 1960).

A column is what a group of jobs buys at some prices, with its weighted completions. The program
mixes the columns of each group so that no cell of the market, a row in an interval, is overbooked;
the duals of the cells are prices at which no known column is better than the mix. Whatever it says
is only a proposal: the bound is computed from prices alone.
"""

from typing import Any

import numpy as np

from .mode_table import Floats

LARGEST = 1e4
"""What the objective is scaled to."""
NEGLIGIBLE = 1e-9
"""Shares of a cell that the program does not see."""
MOST_ITERATIONS = 20_000
"""Far more than the simplex method takes from the last basis on, unless it cycles there for ever:
then it begins anew without scaling, where it has not been seen to cycle."""


class Master:
    """The program over the columns of so many groups; `there` is what each cell offers, `value` a
    bound in hand, by which the objective is scaled."""

    def __init__(self, there: Floats, groups: int, value: float) -> None:
        from ortools.linear_solver import pywraplp

        self._solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        self._optimal = pywraplp.Solver.OPTIMAL
        self._there = there
        self._scale = LARGEST / max(abs(value), 1e-9)
        self._objective = self._solver.Objective()
        self._objective.SetMinimization()
        infinity = self._solver.infinity()
        self._cells = [self._solver.Constraint(-infinity, 1.0) for _ in range(there.size)]
        self._groups = [self._solver.Constraint(1.0, 1.0) for _ in range(groups)]
        self._excess, self._spare = (
            [self._solver.NumVar(0.0, infinity, "") for _ in self._cells] for _ in range(2)
        )
        for cell, excess, spare in zip(self._cells, self._excess, self._spare, strict=True):
            cell.SetCoefficient(excess, -1.0)
            cell.SetCoefficient(spare, 1.0)

    def add(self, group: int, cost: float, bought: Floats) -> None:
        """Add what a group buys of each cell, at `cost` besides the prices."""
        column = self._solver.NumVar(0.0, self._solver.infinity(), "")
        self._objective.SetCoefficient(column, cost * self._scale)
        self._groups[group].SetCoefficient(column, 1.0)
        share = (bought / self._there).ravel()
        for cell in np.flatnonzero(share > NEGLIGIBLE).tolist():
            self._cells[cell].SetCoefficient(column, float(share[cell]))

    def solve(self, least: Floats, most: Floats) -> tuple[float, Floats] | None:
        """Return the value of the best mix where what is overbooked, or idle, is bought and sold at
        the `most` and the `least` price, and the prices between these that support it; None where
        the program could not be solved."""
        worth = self._there * self._scale
        for variables, prices in ((self._excess, most), (self._spare, -least)):
            for variable, price in zip(variables, (prices * worth).ravel().tolist(), strict=True):
                self._objective.SetCoefficient(variable, price)
        if not (self._ends("") or self._ends("use_scaling: false")):
            return None
        duals = np.array([-cell.dual_value() for cell in self._cells]).reshape(least.shape)
        return self._objective.Value() / self._scale, np.clip(duals / worth, least, most)

    def _ends(self, parameters: str) -> bool:
        """Solve the program with parameters of GLOP; return whether an optimum was found."""
        limit = f"max_number_of_iterations: {MOST_ITERATIONS}"
        self._solver.SetSolverSpecificParametersAsString(f"{limit} {parameters}")
        return bool(self._solver.Solve() == self._optimal)
