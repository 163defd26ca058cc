"""The time-indexed model (Sousa and Wolsey, 1992): one binary for each job, alternative and start
tick.

    x[j,a,t] = 1     job j starts alternative a at tick t
    sum_{a,t} x[j,a,t] = 1                                             each job runs once
    sum_{j,a,t holding at tau} demand x[j,a,t] <= capacity             each capacity and tick tau
    sum_{a,t} budget x[j,a,t] <= budget                                each budget
    sum_{start of k <= tau} x + sum_{end of i > tau} x <= 1            i before k, each tick tau

A running job continues (its only start is now) or is preempted: that choice holds its nodes until
it is saved, and starts another alternative, with set-up, afterwards.
"""

from collections import defaultdict
from typing import Any

from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.physics import hold_to_save_s

from .alternatives import Ways
from .grid import Grid, Start

AMOUNT_TOLERANCE = 1e-6
"""What the verifier forgives of fractional amounts; the model must forgive it too for its bound to
hold."""

MAX_PRECEDENCE_ENTRIES = 400_000
"""Beyond so many, precedence is one weaker row for each pair: sum end x[i] <= sum start x[k]."""

Expression = dict[Any, float]
"""Coefficient by variable."""


class Model:
    """Variables and rows that hold under every objective; `starts` lists each job's variables."""

    def __init__(self, ways: Ways, grid: Grid) -> None:
        import pulp

        self.ways = ways
        self.grid = grid
        self.instance: Instance = ways.instance
        self.problem = pulp.LpProblem("optsched", pulp.LpMinimize)
        self.starts: dict[str, list[tuple[Start, Any]]] = {}
        for j, job in enumerate(self.instance.jobs):
            self.starts[job.id] = [
                (start, self.problem.add_variable(f"x_{j}_{i}_{start.tick}", cat="Binary"))
                for i, start in enumerate(grid.of[job.id])
            ]
            self.add({var: 1.0 for _, var in self.starts[job.id]}, "=", 1.0)
        self._capacity()
        self._budgets()
        self._precedence()

    def add(self, expression: Expression, sense: str, limit: float) -> None:
        """Add a row; `sense` is "<=" or "="."""
        import pulp

        which = pulp.LpConstraintLE if sense == "<=" else pulp.LpConstraintEQ
        self.problem += pulp.LpConstraint(pulp.LpAffineExpression(expression), which, rhs=limit)

    def continuous(self, name: str) -> Any:
        """A new variable of at least 0."""
        return self.problem.add_variable(name, lowBound=0)

    def binary(self, name: str) -> Any:
        """A new variable of 0 or 1."""
        return self.problem.add_variable(name, cat="Binary")

    def chosen(self) -> dict[str, Start] | None:
        """Each job's start in the solution; None where the values are not those of a schedule."""
        found = {}
        for job_id, starts in self.starts.items():
            taken = [start for start, var in starts if (var.varValue or 0.0) > 0.5]
            if len(taken) != 1:
                return None
            found[job_id] = taken[0]
        return found

    def _held(self, job: Job, start: Start) -> list[tuple[int, float, range]]:
        """(row of the table, amount, ticks) of all that one start holds."""
        each = start.alternative
        found = [
            (key, amount, range(start.tick, start.end))
            for key, amount in self.ways.demand(job, each.mode, each.split)
        ]
        if each.preempted:
            entry = self.instance.running_job[job.id]
            saving = range(self.grid.tick.floor(hold_to_save_s(job)))
            split = self.ways.running_split(entry.placement)
            found += [
                (key, amount, saving) for key, amount in self.ways.demand(job, entry.mode, split)
            ]
        return [(key, amount, ticks) for key, amount, ticks in found if amount > 0 and ticks]

    def _capacity(self) -> None:
        rows: dict[tuple[int, int], Expression] = defaultdict(lambda: defaultdict(float))
        most: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
        begins: set[tuple[int, int]] = set()
        for job in self.instance.jobs:
            for start, var in self.starts[job.id]:
                for key, amount, ticks in self._held(job, start):
                    begins.add((key, ticks[0]))
                    for tick in ticks:
                        row = rows[key, tick]
                        row[var] += amount
                        most[key, tick][job.id] = max(most[key, tick].get(job.id, 0.0), row[var])
        for at, row in rows.items():
            # Where nothing begins, the tick before says as much; where all fits at once, any tick
            # does.
            if at not in begins:
                continue
            held = self.ways.table.rows[at[0]]
            capacity = held.capacity + held.slack(AMOUNT_TOLERANCE)
            if sum(most[at].values()) > capacity:
                self.add(row, "<=", capacity)

    def _budgets(self) -> None:
        for name, budget in self.instance.cluster.budgets.items():
            row = {
                var: start.alternative.mode.budgets[name]
                for starts in self.starts.values()
                for start, var in starts
                if start.alternative.mode.budgets.get(name)
            }
            if row:
                self.add(row, "<=", budget + AMOUNT_TOLERANCE * max(1.0, budget))

    def _precedence(self) -> None:
        pairs = [
            (
                self.starts[before],
                [(self._first_tick(job, start), var) for start, var in self.starts[job.id]],
            )
            for job in self.instance.jobs
            for before in dict.fromkeys(job.after)
        ]
        entries = sum((len(a) + len(b)) * len({tick for tick, _ in b}) // 2 for a, b in pairs)
        for before, after in pairs:
            if entries > MAX_PRECEDENCE_ENTRIES:
                row: Expression = {var: float(start.end) for start, var in before}
                row.update((var, -float(tick)) for tick, var in after)
                self.add(row, "<=", 0.0)
                continue
            latest = max(start.end for start, _ in before)
            for tau in sorted({tick for tick, _ in after}):
                if tau < latest:
                    row = {var: 1.0 for start, var in before if start.end > tau}
                    row.update((var, 1.0) for tick, var in after if tick <= tau)
                    self.add(row, "<=", 1.0)

    def _first_tick(self, job: Job, start: Start) -> int:
        """When the job first holds anything: a preempted one that is saved does so now."""
        return 0 if start.alternative.preempted and hold_to_save_s(job) > 0 else start.tick
