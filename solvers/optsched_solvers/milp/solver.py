"""Solver `milp`: the whole horizon as a readable PuLP model."""

import math
import tempfile
import time
from pathlib import Path

from optsched.errors import InputError
from optsched.instance import Instance
from optsched.objectives import Objective, level_value
from optsched.plan import Plan
from optsched.solver import Guarantee, Report, Request

from ..realise import Choice, make_placement, realise
from . import backend
from .alternatives import Ways, find_ways
from .grid import Grid, Start, make_grid
from .levels import LevelModel, build_level, level_of
from .model import Model

MAX_JOBS = 60
MAX_VARIABLES = 60_000
MAX_ENTRIES = 1_500_000
ENTRIES_PER_S = 30_000
"""Entries in capacity rows for each second of the time limit: what CBC still solves at the root."""

WRITE_S = 1e-5
"""Seconds that PuLP takes to hand over one entry and that the back end's time limit must leave."""

NODES_PER_S = 50
"""With one worker, branch-and-bound nodes allowed for each second of the time limit: a count gives the same
result on every machine, a clock does not. The clock still stops what is slower than that."""

OPTIONS = ("backend", "max_variables")

MARGIN = 2e-7
"""Bounds are lowered by this fraction: what a solver's tolerances may hide."""


class MilpSolver:
    """Time-indexed mixed-integer program through PuLP, on any of its back ends.

    Exact where all times lie on a grid of few ticks (see `ticks`), else a valid bound and a plan made to fit
    in exact seconds. Options: `backend` (a PuLP solver, default the bundled CBC), `max_variables` (binaries).
    """

    name = "milp"
    title = "time-indexed model in PuLP: small instances, any MILP back end"
    needs = ("pulp",)
    guarantee: Guarantee = "exact"

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        """At most `MAX_JOBS` jobs, none of which share GPUs now."""
        if len(instance.jobs) > MAX_JOBS:
            return f"it has {len(instance.jobs)} jobs, a time-indexed model is for at most {MAX_JOBS}"
        sharing = next((entry.job for entry in instance.running if entry.mode.share_with is not None), None)
        if sharing is not None:
            return f"running job {sharing} shares its GPUs, which this model does not know"
        ways = find_ways(instance)
        if all(ways.of.values()) and make_grid(ways, objective, None, MAX_VARIABLES, MAX_ENTRIES) is None:
            count = sum(map(len, ways.of.values()))
            return f"its jobs can run in {count} ways, too many even on a grid of 60 ticks"
        return None

    def solve(self, request: Request, report: Report) -> None:
        """See `Solver.solve`. Raises InputError for a bad option, SolverUnavailable for a back end that is
        absent or fails."""
        until = time.monotonic() + request.time_limit_s
        max_variables = _max_variables(request.options)
        name = backend.choose(request.options.get("backend", backend.DEFAULT))
        instance = request.instance
        if not instance.jobs:
            report.plan(Plan())
            for number in range(len(request.objective.levels)):
                report.bound(number, 0.0, "there are no jobs")
            return
        ways = find_ways(instance)
        stuck = next((job_id for job_id, found in ways.of.items() if not found), None)
        if stuck is not None:
            report.infeasible(f"job {stuck} fits nowhere on the cluster")
            return
        max_entries = int(min(MAX_ENTRIES, max(1.0, request.time_limit_s) * ENTRIES_PER_S))
        grid = make_grid(ways, request.objective, request.incumbent, max_variables, max_entries)
        if grid is None:
            report.note("milp: even a grid of 60 ticks makes a model too large for this time limit")
            return
        if not grid.tick.exact or not ways.exact:
            report.note(_inexact(ways, grid))
        model = Model(ways, grid)
        with tempfile.TemporaryDirectory(prefix="optsched-milp-") as folder:
            _Search(request, report, model, name, until, Path(folder)).run()


class _Search:
    """Solves level after level; each keeps the values found before it."""

    def __init__(
        self, request: Request, report: Report, model: Model, name: str, until: float, folder: Path
    ) -> None:
        self.request = request
        self.report = report
        self.model = model
        self.name = name
        self.until = until
        self.folder = folder

    def run(self) -> None:
        """Report a plan and a bound for each level, while levels are proved."""
        proved = True
        for number, level in enumerate(self.request.objective.levels):
            built = build_level(self.model, level, number)
            outcome = self._solve(built)
            if outcome.status == "infeasible":
                if number == 0 and self.request.incumbent is None:
                    self.report.infeasible("the time-indexed model, a relaxation, has no solution")
                return
            chosen = self.model.chosen() if outcome.status in ("optimal", "feasible") else None
            found = None if chosen is None else level_of(self.model, level, chosen)
            bound = self._bound(built, outcome, found)
            if bound is not None and proved:
                self.report.bound(number, bound, f"time-indexed model ({self.name})")
            if chosen is None or found is None:
                return
            plan = realise(self.request.instance, self._choices(chosen))
            if plan is not None:
                self.report.plan(plan)
            if outcome.status != "optimal":
                return
            # Later bounds hold among plans that keep this level's value: that of the plan, not of the grid.
            kept = found if plan is None else max(found, level_value(level, self.request.instance, plan))
            proved = proved and plan is not None and bound is not None and kept - bound <= 1e-6 * abs(kept)
            slack = 1e-6 * max(abs(kept), 1e-3)
            self.model.add(built.expression, "<=", (kept - built.constant + slack) * built.scale)

    def _solve(self, built: LevelModel) -> backend.Outcome:
        import pulp

        problem = self.model.problem
        problem.setObjective(pulp.LpAffineExpression(built.expression))
        left_s = 0.97 * (self.until - time.monotonic()) - WRITE_S * self.model.grid.entries
        if left_s <= 0:
            return backend.Outcome("unknown", None)
        max_nodes = None
        if self.request.workers == 1:
            max_nodes = max(1, int(NODES_PER_S * self.request.time_limit_s))
        return backend.run(
            problem, self.name, left_s, self.request.workers, self.request.seed, max_nodes, self.folder
        )

    def _bound(self, built: LevelModel, outcome: backend.Outcome, found: float | None) -> float | None:
        """The level's bound: a whole expression is rounded up to its next whole value."""
        if outcome.status == "optimal" and found is not None:
            return found - MARGIN * abs(found)
        if outcome.bound is None:
            return None
        expression = math.ceil(outcome.bound - 1e-3) if built.whole else outcome.bound
        value = built.value(expression)
        value -= MARGIN * abs(value)
        return value if found is None else min(value, found)

    def _choices(self, chosen: dict[str, Start]) -> list[Choice]:
        """What the grid decided: the order of starts, and the nodes, or the bins where these hold several."""
        bins, order = self.model.ways.bins, self.request.instance.cluster.node_order
        found = []
        for job_id, start in chosen.items():
            each = start.alternative
            parts = [(bins[b].nodes, gpus) for b, gpus in each.split]
            placement = None
            if all(len(names) == 1 for names, _ in parts):
                gpus_of = sorted(((names[0], gpus) for names, gpus in parts), key=lambda pair: order[pair[0]])
                placement = make_placement(self.request.instance.job[job_id], each.mode, gpus_of)
            found.append(Choice(
                job_id=job_id, order_key=(start.tick, start.completion_s), option=each.option,
                placement=placement, parts=tuple(parts), preempted=each.preempted,
            ))
        return found


def _max_variables(options: dict[str, str]) -> int:
    unknown = next((key for key in options if key not in OPTIONS), None)
    if unknown is not None:
        raise InputError(f"solver milp has no option {unknown!r}; choose from {', '.join(OPTIONS)}")
    text = options.get("max_variables", str(MAX_VARIABLES))
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"option max_variables: {text!r} is not a positive whole number")
    return int(text)


def _inexact(ways: Ways, grid: Grid) -> str:
    reasons = []
    if not grid.tick.exact:
        reasons.append(f"times are rounded down to {grid.tick.length_s:g} s")
    if not ways.exact:
        reasons.append("alike nodes are counted together")
    return f"milp: {' and '.join(reasons)}, so its bound holds but its plan may lie above it"
