"""One CP-SAT model over the whole instance, level by level."""

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ortools.sat.python import cp_model

from optsched.objectives import SumOfJobs
from optsched.plugins.solver import Constrain, ignore

from ..scheduling.problem import Schedule
from ..scheduling.schedule_generation import (
    canonical,
    replay,
    returns_beside_partner,
    start_in_order,
)
from .model import Model
from .objective import LevelExpression, build
from .progress import Progress


def solve_whole(
    progress: Progress,
    detailed: bool,
    constrain: Constrain | None = None,
    hint: Schedule | None = None,
    share: float = 1.0,
) -> bool:
    """Minimise every level in turn, each with an equal part of a `share` of what is left; return
    whether all were proved in the model.

    `hint` is a schedule to start from. Model times are rounded down, so its bound holds for the
    true problem; each solution is put on real nodes in exact time by serial schedule generation.
    With side constraints (`constrain`) times are rounded up, so that every solution is a schedule
    that meets them.
    """
    problem = progress.problem
    model = Model(problem, detailed, constrain)
    first = hint if progress.schedule is None else progress.schedule
    if problem.instance.jobs and first is not None:
        model.hint(first)
    is_least, all_proved = True, True
    for k, level in enumerate(problem.objective.levels):
        expression = build(model, level, is_least)
        if k in progress.proved and expression.exact and problem.windows.is_whole:
            least = expression.least(progress.proved[k])
            if least is not None:
                model.cp.add(expression.expression >= least)
        model.cp.minimize(expression.expression)
        best = _solve_level(progress, model, expression, k, share)
        all_proved = all_proved and best is not None
        if best is None and (progress.schedule is None or progress.budget.left_s() <= 0):
            return False
        most = best
        if progress.schedule is not None:
            # Later bounds hold among plans that keep the value found, which may be above that of
            # the rounded model.
            value, yardstick = progress.values[k], progress.evaluator.yardsticks[k]
            is_least = (
                is_least and best is not None and yardstick.is_closed(value, expression.value(best))
            )
            off_grid = 0.0 if is_least else expression.off_grid
            kept = expression.most(yardstick.keeps(value) + off_grid)
            most = kept if best is None or kept is None else max(best, kept)
            model.hint(progress.schedule)
        if most is not None:
            model.cp.add(expression.expression <= most)
    return all_proved


def _solve_level(
    progress: Progress, model: Model, expression: LevelExpression, level: int, share: float
) -> int | None:
    """Solve for the current objective, in a level's part of a `share` of what is left; return its
    optimal integer value, or None where it was not proved."""
    report, solver = progress.report, _solver(progress, level, share)
    if report.log is not ignore:
        solver.parameters.log_search_progress = True
        solver.parameters.log_to_stdout = False
        solver.log_callback = report.log
    solver.best_bound_callback = lambda bound: report.bound(
        level, _proved(expression, bound), "cpsat"
    )
    status = solver.solve(model.cp, _Listener(progress, model))
    progress.budget.used(solver)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {model.cp.validate()}")
    if status == cp_model.INFEASIBLE:
        if level == 0:
            report.infeasible("CP-SAT proved that its model of the instance has no solution")
        return None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        progress.offer(realise(model, solver.value))
    bound = _proved(expression, solver.best_objective_bound)
    report.bound(level, bound, "cpsat")
    if level == 0:  # later ones hold among plans that keep what was found before
        progress.proved[0] = max(bound, progress.proved.get(0, -math.inf))
    return int(solver.value(expression.expression)) if status == cp_model.OPTIMAL else None


def _solver(progress: Progress, level: int, share: float) -> cp_model.CpSolver:
    """Return a CP-SAT search with the strategies that suit a level.

    A sum needs the linear relaxation. For a maximum over jobs, whose conflicts explain it best
    without one, one strategy refutes value after value from below, the next improves on the best
    plan, and large neighbourhoods are searched beside them; all share bounds and plans.
    """
    solver, budget = cp_model.CpSolver(), progress.budget
    budget.configure(solver, share / (len(progress.problem.objective.levels) - level))
    if any(isinstance(term, SumOfJobs) for _, term in progress.problem.objective.levels[level]):
        return solver
    parameters = solver.parameters
    if budget.workers == 1:
        parameters.linearization_level = 0
    else:
        parameters.num_workers = max(3, min(budget.workers, os.cpu_count() or 1))
        parameters.extra_subsolvers.extend(["objective_lb_search_no_lp", "no_lp"])
        parameters.use_overload_checker_in_cumulative = True
    return solver


def _proved(expression: LevelExpression, bound: float) -> float:
    """Return the bound on the value that follows from CP-SAT's on the integer objective, which
    comes as a double."""
    return expression.value(math.ceil(bound - 1e-6 - 1e-15 * abs(bound)))


class _Listener(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Puts each solution on real nodes while the search goes on."""

    def __init__(self, progress: Progress, model: Model) -> None:
        super().__init__()
        self._progress, self._model = progress, model

    def on_solution_callback(self) -> None:
        self._progress.offer(realise(self._model, self.value))


def realise(model: Model, value: Callable[[Any], Any]) -> Schedule | None:
    """Return the schedule of a solution on real nodes, every length rounded up, in the order of its
    starts; None under side constraints of which its true lengths break one."""
    problem = model.problem
    choices, complete = model.read(value)
    schedule = list(map(partial(canonical, problem), problem.activities, choices))
    if model.constrained:
        return schedule if schedule == choices or model.admits(schedule) else None
    if complete and problem.tick.exact and model.exact_amounts and problem.windows.is_whole:
        if not problem.partner:
            return schedule
        if not any(
            returns_beside_partner(problem, problem.activities[i], schedule[i], schedule[k])
            for i, k in problem.partner.items()
        ):
            return problem.with_matching_alternatives(schedule)
    if complete:
        return start_in_order(problem, choices)
    return replay(problem, choices) or replay(problem, choices, anywhere=True)
