"""One CP-SAT model over the whole instance, level by level."""

import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

from optsched.engine.incumbent import is_better
from optsched.objectives import SumOfJobs
from optsched.plugins.solver import Constrain, Report, ignore

from ..scheduling.evaluate import Evaluator
from ..scheduling.plans import plan_of
from ..scheduling.problem import Choice, Problem, Schedule
from ..scheduling.schedule_generation import (
    canonical,
    preempted_in,
    replay,
    returns_beside_partner,
    start_in_order,
)
from .clock import Budget
from .model import Model
from .objective import LevelExpression, build


@dataclass(slots=True)
class Incumbent:
    """The best schedule so far and its value; `offer` reports what improves it."""

    problem: Problem
    evaluator: Evaluator
    report: Report
    schedule: Schedule | None = None
    values: tuple[float, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def offer(self, schedule: Schedule | None) -> bool:
        """Keep and report `schedule` if it is better."""
        if schedule is None:
            return False
        values = self.evaluator.values(schedule)
        with self._lock:
            if self.schedule is not None and not is_better(
                values, self.values, self.evaluator.yardsticks
            ):
                return False
            self.schedule, self.values = schedule, values
            self.report.plan(plan_of(self.problem, schedule))
        return True


def solve_whole(
    problem: Problem,
    incumbent: Incumbent,
    report: Report,
    budget: Budget,
    detailed: bool,
    outside: Callable[[int], float | None] = lambda level: None,
    constrain: Constrain | None = None,
    hint: Schedule | None = None,
) -> bool:
    """Minimise every level in turn; returns whether all were proved in the model.

    `outside` gives a bound proved elsewhere for a level, `hint` a schedule to start from. Model
    times are rounded down, so its bound holds for the true problem; each solution is put on real
    nodes in exact time by serial schedule generation. With side constraints (`constrain`) times are
    rounded up, so that every solution is a schedule that meets them.
    """
    model = Model(problem, "up" if constrain else "down", detailed, constrain=constrain)
    first = hint if incumbent.schedule is None else incumbent.schedule
    if problem.instance.jobs and first is not None:
        model.hint(first)
    is_least = True
    for k, level in enumerate(problem.objective.levels):
        expression = build(model, level, is_least)
        known = outside(k)
        least = None if known is None or not expression.exact else expression.least(known)
        if least is not None:
            model.cp.add(expression.expression >= least)
        model.cp.minimize(expression.expression)
        best = _solve_level(problem, model, expression, k, incumbent, report, budget)
        if best is None:
            return False
        most: int | None = best
        if incumbent.schedule is not None:
            # Later bounds hold among plans that keep the value found, which may be above that of
            # the rounded model.
            value, yardstick = incumbent.values[k], incumbent.evaluator.yardsticks[k]
            is_least = is_least and yardstick.is_closed(value, expression.value(best))
            off_grid = 0.0 if is_least else expression.off_grid
            kept = expression.most(yardstick.keeps(value) + off_grid)
            most = None if kept is None else max(best, kept)
            model.hint(incumbent.schedule)
        if most is not None:
            model.cp.add(expression.expression <= most)
    return True


def _solve_level(
    problem: Problem,
    model: Model,
    expression: LevelExpression,
    level: int,
    incumbent: Incumbent,
    report: Report,
    budget: Budget,
) -> int | None:
    """Solve for the current objective; its optimal integer value, or None where it was not
    proved."""
    solvers = _racers(problem, level, budget)
    if report.log is not ignore:
        for solver in solvers:
            solver.parameters.log_search_progress = True
            solver.parameters.log_to_stdout = False
            solver.log_callback = report.log
    statuses: dict[int, Any] = {}

    def run(which: int) -> None:
        solver = solvers[which]
        solver.best_bound_callback = lambda bound: report.bound(
            level, _proved(expression, bound), "cpsat"
        )
        statuses[which] = solver.solve(model.cp, _Listener(problem, model, incumbent))
        if statuses[which] in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
            for other in solvers:
                if other is not solver:
                    other.stop_search()

    threads = [
        threading.Thread(target=run, args=(which,), daemon=True) for which in range(1, len(solvers))
    ]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    for solver in solvers:
        budget.used(solver)
    if cp_model.MODEL_INVALID in statuses.values():
        raise RuntimeError(f"CP-SAT refuses the model: {model.cp.validate()}")
    which = min(
        statuses,
        key=lambda i: (statuses[i] != cp_model.OPTIMAL, statuses[i] != cp_model.INFEASIBLE, i),
    )
    solver, status = solvers[which], statuses[which]
    if status == cp_model.INFEASIBLE:
        if level == 0:
            report.infeasible("CP-SAT proved that its model of the instance has no solution")
        return None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        incumbent.offer(realise(problem, model, solver.value))
    report.bound(level, _proved(expression, solver.best_objective_bound), "cpsat")
    return int(solver.value(expression.expression)) if status == cp_model.OPTIMAL else None


def _racers(problem: Problem, level: int, budget: Budget) -> list[cp_model.CpSolver]:
    """The CP-SAT searches to run side by side; the first proof ends all.

    A maximum over jobs is proved fastest by one worker without linear relaxation (its conflicts
    explain a makespan best), so it gets a core of its own beside the usual portfolio; a sum needs
    the relaxation.
    """
    portfolio = cp_model.CpSolver()
    budget.configure(portfolio)
    if any(isinstance(term, SumOfJobs) for _, term in problem.objective.levels[level]):
        return [portfolio]
    no_relaxation = cp_model.CpSolver()
    budget.configure(no_relaxation, workers=1)
    no_relaxation.parameters.linearization_level = 0
    if budget.workers == 1:
        return [no_relaxation]
    portfolio.parameters.num_workers = max(1, min(budget.workers, os.cpu_count() or 1) - 1)
    return [no_relaxation, portfolio]


def _proved(expression: LevelExpression, bound: float) -> float:
    """The bound on the value that follows from CP-SAT's on the integer objective, which comes as a
    double."""
    return expression.value(math.ceil(bound - 1e-6 - 1e-15 * abs(bound)))


class _Listener(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Puts each solution on real nodes while the search goes on."""

    def __init__(self, problem: Problem, model: Model, incumbent: Incumbent) -> None:
        super().__init__()
        self._problem, self._model, self._incumbent = problem, model, incumbent

    def on_solution_callback(self) -> None:
        self._incumbent.offer(realise(self._problem, self._model, self.value))


def realise(problem: Problem, model: Model, value: Callable[[Any], Any]) -> Schedule | None:
    """The schedule of a solution on real nodes, every length rounded up, in the order of its
    starts."""
    choices, complete = model.read(value)
    if model.constrained:
        return _constrained(problem, model, choices)
    if complete and problem.tick.exact and model.exact_amounts:
        schedule = [canonical(problem, a, choices[a.index]) for a in problem.activities]
        if not problem.partner:
            return schedule
        if not any(
            returns_beside_partner(problem, problem.activities[i], schedule[i], schedule[k])
            for i, k in problem.partner.items()
        ):
            return problem.with_matching_alternatives(schedule)
    if complete and problem.partner:
        return start_in_order(problem, choices, preempted_in(problem, choices))
    return replay(problem, choices) or replay(problem, choices, anywhere=choices)


def _constrained(problem: Problem, model: Model, choices: dict[int, Choice]) -> Schedule | None:
    """The schedule of a solution under side constraints; None where its true lengths break one."""
    schedule = [canonical(problem, a, choices[a.index]) for a in problem.activities]
    as_found = all(schedule[j] == choice for j, choice in choices.items())
    return schedule if as_found or model.admits(schedule) else None
