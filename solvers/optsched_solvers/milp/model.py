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

from ..scheduling.problem import Activity
from .alternatives import Ways, over_bins
from .grid import Grid, Start

AMOUNT_TOLERANCE = 1e-6
"""What the verifier forgives of fractional amounts; the model must forgive it too for its bound to
hold."""

MAX_PRECEDENCE_ENTRIES = 400_000
"""Beyond so many, precedence is one weaker row for each pair: sum end x[i] <= sum start x[k]."""

Expression = dict[Any, float]
"""Coefficient by variable."""


class Model:
    """Variables and rows that hold under every objective; `starts` lists each job's variables, by
    index."""

    def __init__(self, ways: Ways, grid: Grid) -> None:
        import pulp

        self.ways, self.grid, self.activities = ways, grid, ways.problem.activities
        self.problem = pulp.LpProblem("optsched", pulp.LpMinimize)
        self.starts: list[list[tuple[Start, Any]]] = []
        for j, own in enumerate(grid.of):
            variables = [
                (start, self.problem.add_variable(f"x_{j}_{i}_{start.tick}", cat="Binary"))
                for i, start in enumerate(own)
            ]
            self.starts.append(variables)
            self.add({var: 1.0 for _, var in variables}, "=", 1.0)
        self._capacity()
        self._budgets()
        self._precedence()

    def add(self, expression: Expression, sense: str, limit: float) -> None:
        """Add a row; `sense` is "<=" or "="."""
        import pulp

        which = pulp.LpConstraintLE if sense == "<=" else pulp.LpConstraintEQ
        self.problem += pulp.LpConstraint(pulp.LpAffineExpression(expression), which, rhs=limit)

    def continuous(self, name: str) -> Any:
        """Return a new variable of at least 0."""
        return self.problem.add_variable(name, lowBound=0)

    def binary(self, name: str) -> Any:
        """Return a new variable of 0 or 1."""
        return self.problem.add_variable(name, cat="Binary")

    def chosen(self) -> list[Start] | None:
        """Return each job's start in the solution; None where the values are not those of a
        schedule."""
        taken = [
            [start for start, var in starts if (var.varValue or 0.0) > 0.5]
            for starts in self.starts
        ]
        return [start for (start,) in taken] if all(len(own) == 1 for own in taken) else None

    def _held(self, activity: Activity, start: Start) -> list[tuple[int, float, range]]:
        """Return (row of the table, amount, ticks) of all that one start holds."""
        ways, way, hold = self.ways, start.way, activity.hold
        stays = [(way.alternative.mode, way.split, range(start.tick, start.end))]
        if hold is not None and way.preempts:
            saving = range(self.grid.tick.floor(hold.seconds))
            stays.append((hold.mode, over_bins(ways.bins, hold.rooms), saving))
        return [
            (key, amount, ticks)
            for mode, split, ticks in stays
            for key, amount in ways.demand(activity, mode, split)
            if amount > 0 and ticks
        ]

    def _capacity(self) -> None:
        rows: dict[tuple[int, int], Expression] = defaultdict(lambda: defaultdict(float))
        most: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        begins: set[tuple[int, int]] = set()
        for activity, starts in zip(self.activities, self.starts, strict=True):
            j = activity.index
            for start, var in starts:
                for key, amount, ticks in self._held(activity, start):
                    begins.add((key, ticks[0]))
                    for tick in ticks:
                        row = rows[key, tick]
                        row[var] += amount
                        most[key, tick][j] = max(most[key, tick].get(j, 0.0), row[var])
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
        for name, budget in self.ways.problem.instance.cluster.budgets.items():
            row = {
                var: amount
                for starts in self.starts
                for start, var in starts
                if (amount := start.way.alternative.mode.budgets.get(name))
            }
            if row:
                self.add(row, "<=", budget + AMOUNT_TOLERANCE * max(1.0, budget))

    def _precedence(self) -> None:
        pairs = [
            (
                self.starts[i],
                [(_first_tick(activity, start), var) for start, var in self.starts[activity.index]],
            )
            for activity in self.activities
            for i in activity.before
        ]
        entries = sum((len(a) + len(b)) * len({tick for tick, _ in b}) // 2 for a, b in pairs)
        for before, after in pairs:
            if entries > MAX_PRECEDENCE_ENTRIES:
                row: Expression = {var: float(start.end) for start, var in before}
                row.update((var, -float(tick)) for tick, var in after)
                self.add(row, "<=", 0.0)
            else:
                self._each_tick(before, after)

    def _each_tick(self, before: list[tuple[Start, Any]], after: list[tuple[int, Any]]) -> None:
        """Forbid ticks at which the first is yet to end and the second has begun."""
        latest = max(start.end for start, _ in before)
        for tau in sorted({tick for tick, _ in after if tick < latest}):
            row: Expression = {var: 1.0 for start, var in before if start.end > tau}
            row.update((var, 1.0) for tick, var in after if tick <= tau)
            self.add(row, "<=", 1.0)


def _first_tick(activity: Activity, start: Start) -> int:
    """Return when the job first holds anything: a preempted one that is saved does so now."""
    hold = activity.hold
    if hold is not None and hold.seconds > 0 and start.way.preempts:
        return 0
    return start.tick
