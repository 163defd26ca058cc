"""CP-SAT with one worker and counted work, so that results do not depend on the machine."""

from typing import Any


def solved(model: Any, effort: float) -> Any | None:
    """Return the solver with the best solution found within the effort (deterministic time, about
    as many seconds); None without one."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(model)
    return solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
