"""`milp`: the round as it would stand in a textbook, in PuLP, for any back end that a site has a
licence for.

x[j,o] = 1      job j runs this round by option o: kept where it is, or by a mode on fresh GPUs
q[n,s]          slots of s GPUs that are left on node n, where running jobs sit

max   sum value x
s.t.  sum_o x[j,o] <= 1                             each job (= 1 where it must be kept)
      sum take x <= capacity                        GPUs, cores, memory, resources, budgets, quotas
      sum floor(size / s) x <= free slots + sum q   gangs on one node, each node class and slot size
      s s q[n,s] + sum_kept GPUs x <= GPUs            each node where running jobs sit sum_guests x
      <= x[host,keep]                  each job that others may share GPUs with
"""

import re
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from optsched.errors import SolverUnavailableError
from optsched.plugins.options import PluginOptions, Written
from optsched.round.exact import sitters
from optsched.round.model import Ints, Kind, RoundModel, Row
from optsched.round.realise import keep_all, realise
from optsched.round.solver import RoundRequest

from ..milp import backend
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
BACKENDS = {
    "cbc": ("PULP_CBC_CMD",),
    "highs": ("HiGHS_CMD",),
    "scip": ("SCIP_PY", "SCIP_CMD", "FSCIP_CMD"),
    "gurobi": ("GUROBI", "GUROBI_CMD"),
    "cplex": ("CPLEX_PY", "CPLEX_CMD"),
}
"""Short names, with the PuLP solvers that are tried in turn; PuLP's own names are taken too."""


class Textbook:
    """The model in PuLP, one method for each kind of row. It is minimised, as not all back ends
    maximise: the objective is the value times -`scale`."""

    def __init__(self, model: RoundModel) -> None:
        import pulp

        self.model = model
        self.problem = pulp.LpProblem("round", pulp.LpMinimize)
        self.scale = LARGEST / (float(model.options.value.max(initial=0.0)) or 1.0)
        self.x = [
            self.problem.add_variable(
                f"x_{o}_{_plain(model.jobs[j].id)}_{Kind(kind).name.lower()}", cat="Binary"
            )
            for o, (j, kind) in enumerate(
                zip(model.options.job.tolist(), model.options.kind.tolist(), strict=True)
            )
        ]
        self._room, self._users = model.held.room_gpus.tolist(), sitters(model)
        self.by_pattern: dict[int, list[int]] = defaultdict(list)
        for o, pattern in enumerate(model.options.pattern.tolist()):
            self.by_pattern[pattern].append(o)
        self.problem.setObjective(
            pulp.LpAffineExpression(
                {self.x[o]: -self.scale * v for o, v in enumerate(model.options.value.tolist())}
            )
        )
        self._one_option_a_job()
        for r, row in enumerate(model.rows.limits):
            if row.what == "slots":
                self._slots(r, row)
            else:
                self._capacity(r, row)
        self._sharing()

    def _row(self, name: str, terms: dict[Any, float], sense: str, limit: float) -> None:
        import pulp

        which = {"<=": pulp.LpConstraintLE, "=": pulp.LpConstraintEQ}[sense]
        self.problem += pulp.LpConstraint(
            pulp.LpAffineExpression(terms), which, _plain(name), limit
        )

    def _one_option_a_job(self) -> None:
        model = self.model
        for j, job in enumerate(model.jobs):
            own = {self.x[o]: 1.0 for o in model.options.of(j)}
            self._row(f"job_{j}_{job.id}", own, "=" if model.must[j] else "<=", 1.0)

    def _taken(self, r: int, fresh_only: bool = False) -> dict[Any, float]:
        """What each option takes of a row."""
        model = self.model
        return {
            self.x[o]: float(model.rows.amount[k])
            for k in np.flatnonzero(model.rows.row == r)
            if not (fresh_only and model.rows.pattern[k] >= len(model.patterns.fresh))
            for o in self.by_pattern[int(model.rows.pattern[k])]
        }

    def _capacity(self, r: int, row: Row) -> None:
        self._row(f"{r}_{row.name}", self._taken(r), "<=", row.capacity)

    def _slots(self, r: int, row: Row) -> None:
        """Slots on nodes without running jobs are counted, on the others they depend on who is
        kept."""
        nodes = self.model.instance.cluster.nodes
        members = next(one for one in self.model.classes if one.bit == row.classes).nodes
        terms, free = self._taken(r, fresh_only=True), 0
        for n in members:
            room, users = self._room[n], self._users.get(n, ())
            most = room // row.slot
            if not users:
                free += most
            if not users or not most:
                continue
            name = f"{row.slot}_on_{n}_{nodes[n].name}"
            q = self.problem.add_variable(f"slots_of_{_plain(name)}", 0, most, cat="Integer")
            terms[q] = -1.0
            self._row(
                f"node_{name}",
                {q: float(row.slot)} | {self.x[o]: float(gpus) for o, gpus in users},
                "<=",
                room,
            )
            for o, gpus in users:  # implied, but the relaxation needs it
                broken = most - (room - gpus) // row.slot
                self._row(f"node_{name}_with_{o}", {q: 1.0, self.x[o]: float(broken)}, "<=", most)
        self._row(f"{r}_{row.name}", terms, "<=", free)

    def _sharing(self) -> None:
        """Who starts beside a running job needs it to be kept, and is its only guest; who stays
        alone on the GPUs of a pair needs the other to leave."""
        model = self.model
        guests: dict[int, list[int]] = defaultdict(list)
        for o in np.flatnonzero(model.options.host >= 0).tolist():
            guests[int(model.options.host[o])].append(o)
        for host, beside in guests.items():
            keep = self.x[int(model.options.first[host])]
            self._row(
                f"guests_of_{host}", {self.x[o]: 1.0 for o in beside} | {keep: -1.0}, "<=", 0.0
            )
        for o in np.flatnonzero(model.options.rival >= 0).tolist():
            keep = self.x[int(model.options.first[int(model.options.rival[o])])]
            self._row(f"alone_{o}", {self.x[o]: 1.0, keep: 1.0}, "<=", 1.0)

    def choice(self) -> Ints:
        """The option of each job in the solution, or -1."""
        chosen = np.full(len(self.model.jobs), -1, dtype=np.int64)
        for o, variable in enumerate(self.x):
            if (variable.varValue or 0.0) > 0.5:
                chosen[self.model.options.job[o]] = o
        return chosen


def _names(asked: str) -> tuple[str, ...]:
    """The PuLP solvers to try in turn."""
    return BACKENDS.get(asked.lower(), (asked,))


def _known(asked: object) -> str:
    backend.known(_names(str(asked))[-1])
    return str(asked)


class MilpRoundSolver:
    """The round model through PuLP."""

    name = "milp"
    title = "the round as a readable PuLP model, any MILP back end"
    needs = ("pulp",)

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        backend: Annotated[
            str,
            Written("a PuLP solver", _known),
            "cbc, highs, scip, gurobi, cplex, or what PuLP calls it.",
        ] = "cbc"

    def supports(self, model: RoundModel) -> str | None:
        """At most `MOST_OPTIONS` options."""
        count = len(model.options.value)
        if count > MOST_OPTIONS:
            return f"it has {count} options, a PuLP model is for at most {MOST_OPTIONS}"
        return None

    def solve(self, request: RoundRequest) -> None:
        """The plan that keeps all, then the best that the model and the nodes allow. Raises
        SolverUnavailableError for a back end that is absent or fails."""
        name = _backend((request.options or self.Options()).backend)
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
            request.report_bound(-outcome.bound / book.scale, f"milp ({name})")


def _plain(name: str) -> str:
    """A name that every file format of every back end takes."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", name)[:100]


def _backend(asked: str) -> str:
    names = _names(asked)
    for name in names[:-1]:
        try:
            return backend.choose(name)
        except SolverUnavailableError:
            continue
    return backend.choose(names[-1])


SOLVER = MilpRoundSolver()
