"""What `cpsat` does with its time: start schedules, then the whole model, neighbourhoods and prices by size."""

from optsched.solver import Report, Request

from ..evaluate import Evaluator
from ..problem import Problem
from .clock import Budget
from .direct import Incumbent, solve_whole


def search(request: Request, report: Report) -> None:
    problem = Problem(request.instance, request.objective)
    budget = Budget(request.time_limit_s, request.workers, request.seed)
    incumbent = Incumbent(problem, Evaluator(problem), report)
    if request.incumbent is not None:
        incumbent.offer(problem.schedule(request.incumbent))
    solve_whole(problem, incumbent, report, budget, True)
