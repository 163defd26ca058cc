"""CP-SAT with one worker and counted work, so that results do not depend on the machine."""

from typing import Any


def solved(model: Any, effort: float) -> tuple[Any | None, bool]:
    """Return the solver with the best solution found within the effort (deterministic time, about
    as many seconds), None without one, and whether that is proven optimal."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(model)
    solution = solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return solution, status == cp_model.OPTIMAL
