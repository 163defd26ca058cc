"""Solver `milp`: the whole horizon as a readable PuLP model."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from optsched.model import Instance, Plan
from optsched.objectives import Objective
from optsched.physics.unplanned import unplanned
from optsched.plugins.options import PluginOptions, declared_options
from optsched.plugins.solver import Guarantee, Report, Request

from ..scheduling.problem import Problem
from . import backend
from .alternatives import Ways, find_ways
from .backend import DEFAULT, Backend
from .grid import Grid, make_grid
from .model import Model
from .search import Search

MAX_JOBS = 60
MAX_VARIABLES = 60_000
MAX_ENTRIES = 1_500_000
ENTRIES_PER_S = 30_000
"""Entries in capacity rows for each second of the time limit: what CBC still solves at the root."""

COARSE_SHARES = (64, 16, 4)
"""Grids that are not exact get these shares of the entries in turn: each plan found makes the next
model smaller."""


class MilpSolver:
    """Time-indexed mixed-integer program through PuLP, on any of its back ends.

    Exact where all times lie on a grid of few ticks (see `ticks`), else a valid bound and a plan
    made to fit in exact seconds.
    """

    name = "milp"
    title = "time-indexed model in PuLP: small instances, any MILP back end"
    needs = ("pulp",)
    guarantee: Guarantee = "exact"

    @declared_options
    class Options(PluginOptions):
        backend: Annotated[Backend, "cbc, highs, scip, gurobi, cplex, or what PuLP calls it."] = (
            DEFAULT
        )
        max_variables: Annotated[int, Ge(1), "Most binary variables of a model."] = MAX_VARIABLES

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        """Support at most `MAX_JOBS` jobs, none of which share GPUs now, use the uplinks of racks
        or exceed a node's memory bandwidth."""
        if len(instance.jobs) > MAX_JOBS:
            return (
                f"it has {len(instance.jobs)} jobs, a time-indexed model is for at most {MAX_JOBS}"
            )
        sharing = next(
            (entry.job for entry in instance.running if entry.mode.share_with is not None), None
        )
        if sharing is not None:
            return f"running job {sharing} shares its GPUs, which this model does not know"
        if (fault := unplanned(instance)) is not None:
            return fault
        if any(window.to_s > instance.now_s for window in instance.cluster.windows):
            return "there are windows, which its model does not know"
        if objective.tariffs(instance.cluster):
            return "what use costs changes over time, and it starts each job as early as it can"
        ways = find_ways(Problem(instance, objective))
        if all(ways.of) and make_grid(ways, None, MAX_VARIABLES, MAX_ENTRIES, MAX_ENTRIES) is None:
            count = sum(map(len, ways.of))
            return f"its jobs can run in {count} ways, too many even on a grid of 60 ticks"
        return None

    def solve(self, request: Request, report: Report) -> None:
        """See `Solver.solve`. Raises SolverUnavailableError for a back end that is absent or that
        fails."""
        options = request.options or self.Options()
        until = time.monotonic() + request.time_limit_s
        name = backend.choose(options.backend)
        instance = request.instance
        if not instance.jobs:
            report.plan(Plan())
            for number in range(len(request.objective.levels)):
                report.bound(number, 0.0, "there are no jobs")
            return
        problem = Problem(instance, request.objective)
        stuck = next((a.job.id for a in problem.activities if not a.alternatives), None)
        if stuck is not None:
            report.infeasible(f"job {stuck} fits nowhere on the cluster")
            return
        ways = find_ways(problem)
        max_entries = int(min(MAX_ENTRIES, max(1.0, request.time_limit_s) * ENTRIES_PER_S))
        with tempfile.TemporaryDirectory(prefix="optsched-milp-") as folder:
            search = Search(request, report, name, until, Path(folder))
            grid: Grid | None = None
            for share in COARSE_SHARES:
                finer = make_grid(
                    ways, search.incumbent, options.max_variables, max_entries, max_entries // share
                )
                if finer is None or (grid is not None and finer.tick == grid.tick):
                    continue
                grid = finer
                if search.over(Model(ways, grid)) or (grid.tick.exact and ways.exact):
                    break
        if grid is None:
            report.note("milp: even a grid of 60 ticks makes a model too large for this time limit")
        elif not search.closed and not (grid.tick.exact and ways.exact):
            report.note(_inexact(ways, grid))


def _inexact(ways: Ways, grid: Grid) -> str:
    reasons = []
    if not grid.tick.exact:
        reasons.append(f"times are rounded down to {grid.tick.length_s:g} s")
    if not ways.exact:
        reasons.append("alike nodes are counted together")
    return f"milp: {' and '.join(reasons)}, so its bound holds but its plan may lie above it"
