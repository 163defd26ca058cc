"""Solving with GLOP a linear program that is known to have an optimum."""

from typing import Any

PRECISE = "primal_feasibility_tolerance:1e-9 dual_feasibility_tolerance:1e-9"
CONTINUED = f"use_preprocessing:false {PRECISE}"
"""Without presolve GLOP goes on from the last basis."""
ANEW = (
    "use_preprocessing:true",
    "use_preprocessing:true use_dual_simplex:true primal_feasibility_tolerance:1e-7",
)
"""What to try, from scratch, where rounding stops it."""


def maximisation() -> Any:
    """Return an empty linear program whose objective is to be maximised."""
    from ortools.linear_solver import pywraplp

    lp = pywraplp.Solver.CreateSolver("GLOP")
    lp.Objective().SetMaximization()
    return lp


def solve(lp: Any, parameters: str) -> None:
    """Solve from the last basis, or anew. Raises RuntimeError where GLOP finds no optimum in any
    way."""
    from ortools.linear_solver import pywraplp

    lp.SetSolverSpecificParametersAsString(parameters)
    status = lp.Solve()
    for other in ANEW:
        if status != pywraplp.Solver.OPTIMAL:
            scratch = pywraplp.MPSolverParameters()
            scratch.SetIntegerParam(scratch.INCREMENTALITY, scratch.INCREMENTALITY_OFF)
            lp.SetSolverSpecificParametersAsString(other)
            status = lp.Solve(scratch)
    if status != pywraplp.Solver.OPTIMAL:
        raise RuntimeError(f"GLOP ended with status {status} on a feasible, bounded linear program")
