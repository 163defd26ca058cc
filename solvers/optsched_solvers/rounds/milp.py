"""`milp`: the program of `optsched.round.exact` in PuLP, under the names of jobs and capacities,
for any back end that a site has a licence for."""

import re
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from optsched.plugins.options import PluginOptions, declared_options
from optsched.round.exact import program
from optsched.round.model import Ints, Kind, RoundModel
from optsched.round.realise import keep_all, realise
from optsched.round.solver import RoundRequest

from ..milp import backend
from ..milp.backend import Backend
from ..native.highs import NOTHING
from ..native.within import within

MOST_OPTIONS = 60_000
"""So many are 5,000 jobs on 8,192 GPUs, which CBC solves in 37 s, 2 of them for writing the model;
two cores."""
LARGEST = 1e6
"""What the largest value is scaled to: far above the absolute tolerances of all back ends."""
WRITE_S = 2e-5
"""Seconds that PuLP takes to hand over one option, which the back end's time limit must leave."""
LEAST_S = 0.1
"""No back end is started with less time than this."""


class Textbook:
    """The whole program in PuLP. It is minimised, as not all back ends maximise: the objective is
    the value, but for what is certain, times -`scale`."""

    def __init__(self, model: RoundModel) -> None:
        import pulp

        self._model, self._stated = model, program(model)
        stated, kinds = self._stated, model.options.kind.tolist()
        largest = float(model.options.value.max(initial=0.0))
        self._scale = LARGEST / max(largest, NOTHING) if largest > 0 else 1.0
        self.problem = pulp.LpProblem("round", pulp.LpMinimize)
        self._x = [
            self.problem.add_variable(
                _plain(f"x_{o}_{model.jobs[j].id}_{Kind(kinds[o]).name.lower()}"), cat="Binary"
            )
            for o, j in enumerate(model.options.job.tolist())
        ]
        self._x += [
            self.problem.add_variable(_plain(name), 0, most, cat="Integer")
            for name, most in zip(stated.slots, stated.upper[len(self._x) :].tolist(), strict=True)
        ]
        costs = (-self._scale * stated.value).tolist()
        self.problem.setObjective(pulp.LpAffineExpression(dict(zip(self._x, costs, strict=True))))
        names = [f"job_{j}_{model.jobs[j].id}" for j in stated.jobs.tolist()] + stated.rows
        terms: list[dict[Any, float]] = [{} for _ in names]
        for row, column, amount in zip(
            stated.row.tolist(), stated.column.tolist(), stated.amount.tolist(), strict=True
        ):
            terms[row][self._x[column]] = amount
        for name, own, low, high in zip(
            names, terms, stated.low.tolist(), stated.high.tolist(), strict=True
        ):
            sense = pulp.LpConstraintEQ if low == high else pulp.LpConstraintLE
            self.problem += pulp.LpConstraint(
                pulp.LpAffineExpression(own), sense, _plain(name), high
            )

    def choice(self) -> Ints:
        """Return the option of each job in the solution, or -1."""
        values = np.array([variable.varValue or 0.0 for variable in self._x])
        return self._stated.choice(self._model, None, values)

    def bound(self, cost: float) -> float:
        """Return the bound on the value that follows from one on the cost."""
        return self._stated.offset - cost / self._scale


class MilpRoundSolver:
    """The round model through PuLP."""

    name = "milp"
    title = "the round as a readable PuLP model, any MILP back end"
    needs = ("pulp",)

    @declared_options
    class Options(PluginOptions):
        backend: Annotated[Backend, "cbc, highs, scip, gurobi, cplex, or what PuLP calls it."] = (
            "cbc"
        )

    def supports(self, model: RoundModel) -> str | None:
        """Support at most `MOST_OPTIONS` options."""
        count = len(model.options.value)
        if count > MOST_OPTIONS:
            return f"it has {count} options, a PuLP model is for at most {MOST_OPTIONS}"
        return None

    def solve(self, request: RoundRequest) -> None:
        """Offer the plan that keeps all, then the best that the model and the nodes allow. Raises
        SolverUnavailableError for a back end that is absent or fails."""
        name = backend.choose((request.options or self.Options()).backend)
        model = request.model
        request.report_packing(keep_all(model, request.deadline))
        if request.left_s() < LEAST_S + WRITE_S * len(model.options.value):
            request.note("milp: too little time for a back end")
            return
        book = Textbook(model)
        left_s = request.left_s()
        limit_s = 0.9 * left_s - WRITE_S * len(model.options.value)
        with tempfile.TemporaryDirectory(
            prefix="optsched-round-", ignore_cleanup_errors=True
        ) as folder:
            outcome = within(
                left_s,
                lambda: backend.run(
                    book.problem, name, limit_s, 1, request.seed, None, Path(folder)
                ),
            )
        if outcome is None:
            request.note(f"milp: {name} found nothing in time")
            return
        if outcome.status in ("optimal", "feasible"):
            chosen = book.choice()
            realise(request, chosen, model.options.value)
            if outcome.status == "optimal":
                request.report_bound(model.worth(chosen), f"milp ({name})")
        if outcome.bound is not None:
            request.report_bound(book.bound(outcome.bound), f"milp ({name})")


def _plain(name: str) -> str:
    """Return a name that every file format of every back end takes."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", name)[:100]


SOLVER = MilpRoundSolver()
