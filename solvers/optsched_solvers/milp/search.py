"""The search over one grid: level after level, each keeping the values found before it."""

import math
import time
from pathlib import Path

from optsched.bounds.yardstick import yardsticks
from optsched.model import Plan
from optsched.objectives import level_value, values
from optsched.plugins.solver import Report, Request
from optsched.verify import verify

from ..scheduling.plans import plan_of
from ..scheduling.schedule_generation import generate
from . import backend
from .grid import Start
from .levels import LevelModel, build_level, level_of
from .model import Model

NODES_PER_S = 50
"""With one worker, branch-and-bound nodes allowed for each second of the time limit: a count gives
the same result on every machine, a clock does not. The clock still stops what is slower than
that."""

WRITE_S = 1e-5
"""Seconds that PuLP takes to hand over one entry and that the back end's time limit must leave."""

MARGIN = 2e-7
"""Bounds are lowered by this fraction of what lies above the certain part: what a solver's
tolerances may hide."""

TOLERANCES = 1e-3, 1e-6
"""The same in units of the expression, whose largest coefficient is 1e5: of its value, and of a row
over it."""


class Search:
    """Plans and bounds found on one grid after another.

    `incumbent` is the best plan so far; `closed` says that a plan met its bound at every level.
    """

    def __init__(
        self, request: Request, report: Report, name: str, until: float, folder: Path
    ) -> None:
        self.request = request
        self.report = report
        self.name = name
        self.until = until
        self.folder = folder
        self.incumbent = request.incumbent
        self._yardsticks = yardsticks(request.instance, request.objective, any_plan=False)
        self.closed = False
        self._bounds: dict[int, float] = {}

    def over(self, model: Model) -> bool:
        """Report a plan and a bound for each level over one grid; return whether a finer grid would
        be of no use."""
        instance = self.request.instance
        proved = True
        for number, level in enumerate(self.request.objective.levels):
            built = build_level(model, level, number)
            outcome = self._solve(model, built)
            if outcome.status == "infeasible":
                if number == 0 and self.incumbent is None:
                    self.report.infeasible("the time-indexed model, a relaxation, has no solution")
                return True
            chosen = model.chosen() if outcome.status in ("optimal", "feasible") else None
            reached = None if chosen is None else level_of(model, level, chosen)
            bound = _bound(built, outcome, reached)
            if bound is not None and number == 0 and self.incumbent is not None:
                # The windows leave out plans that are worse than the incumbent.
                bound = min(bound, level_value(level, instance, self.incumbent))
            if bound is not None and proved and bound > self._bounds.get(number, -math.inf):
                self._bounds[number] = bound
                self.report.bound(number, bound, f"time-indexed model ({self.name})")
            if chosen is None or reached is None:
                return True
            plan = _realise(model, chosen)
            if plan is not None:
                self.report.plan(plan)
                self._keep(plan)
            if outcome.status != "optimal":
                return True
            # Later bounds hold among plans that keep this level's value: that of the plan, not of
            # the grid.
            kept = reached if plan is None else max(reached, level_value(level, instance, plan))
            yardstick = self._yardsticks[number]
            proved = proved and plan is not None and yardstick.is_closed(kept, bound)
            most = (yardstick.keeps(kept) - built.constant) * built.scale
            model.add(built.expression, "<=", most + TOLERANCES[1])
        self.closed = proved
        return proved

    def _keep(self, plan: Plan) -> None:
        """Make a better plan the incumbent: the next grid's windows rest on it, so it must be a
        true plan."""
        instance, objective = self.request.instance, self.request.objective
        reached = verify(instance, plan, objective).values
        if reached is not None and (
            self.incumbent is None or reached < values(objective, instance, self.incumbent)
        ):
            self.incumbent = plan

    def _solve(self, model: Model, built: LevelModel) -> backend.Outcome:
        import pulp

        problem = model.problem
        problem.setObjective(pulp.LpAffineExpression(built.expression))
        left_s = 0.97 * (self.until - time.monotonic()) - WRITE_S * model.grid.entries
        if left_s <= 0:
            return backend.Outcome("unknown", None)
        max_nodes = None
        if self.request.workers == 1:
            max_nodes = max(1, int(NODES_PER_S * self.request.time_limit_s))
        return backend.run(
            problem,
            self.name,
            left_s,
            self.request.workers,
            self.request.seed,
            max_nodes,
            self.folder,
        )


def _bound(built: LevelModel, outcome: backend.Outcome, reached: float | None) -> float | None:
    """Return the level's bound: a whole expression is rounded up to its next whole value."""
    if outcome.status == "optimal" and reached is not None:
        return reached if built.whole else _lowered(built, reached)
    if outcome.bound is None:
        return None
    expression = math.ceil(outcome.bound - 1e-3) if built.whole else outcome.bound
    value = _lowered(built, built.value(expression))
    return value if reached is None else min(value, reached)


def _lowered(built: LevelModel, value: float) -> float:
    """Return a value of the level less what the solver's tolerances may hide of it, which is never
    below its constant."""
    return max(
        built.constant, value - MARGIN * (value - built.constant) - TOLERANCES[0] / built.scale
    )


def _realise(model: Model, chosen: list[Start]) -> Plan | None:
    """Return the plan in which each job, in the order of its starts on the grid, starts as early as
    it fits on the nodes chosen for it, or on any of its bins where these hold several.

    If jobs that start together on the grid fit together there, none starts later than on the grid
    but for the rounding up of its start to a tick of the schedule.
    """
    problem = model.ways.problem
    order = sorted(range(len(chosen)), key=lambda j: (chosen[j].tick, chosen[j].completion_s))
    rank = {j: float(k) for k, j in enumerate(order)}
    schedule = generate(
        problem,
        [rank[j] for j in range(len(chosen))],
        frozenset(start.way.activity.index for start in chosen if start.way.preempts),
        {j: (start.way.which,) for j, start in enumerate(chosen)},
        {
            j: {n: gpus for b, gpus in start.way.split for n in model.ways.bins[b]}
            for j, start in enumerate(chosen)
            if start.way.split
        },
    )
    return None if schedule is None else plan_of(problem, schedule)
