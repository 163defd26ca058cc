"""An upper bound on the GPUs that any rule can allocate, even one that knows all arrivals and
refuses some.

A linear program over classes of equal nodes and kinds of jobs: how many jobs of a kind go to a
class, and how many GPUs of a class hold which pattern of parts. Nodes of a class are taken
together, which only helps. Patterns are found as they are needed (Gilmore and Gomory, 1961). Its
dual values are the certificate: `certificate` recomputes from them a bound that holds whatever they
are, so that nothing depends on the solver.
"""

from collections import Counter
from typing import Any

from ..errors import OptschedError
from ..frozen import record
from .certificate import (
    GRID,
    ClassPrices,
    best_pattern,
    certified_units,
    node_classes,
    size_on_grid,
)
from .problem import WHOLE, Array, NodeClass, Problem, Request

ENOUGH = 1e-7
"""A pattern worth no more than this beyond its GPU does not enter."""
ROUNDS = 500
PARAMETERS = (
    "use_dual_simplex: false",
    "use_dual_simplex: true",
    "use_dual_simplex: false use_preprocessing: false",
)


@record
class PackingBound:
    """No rule allocates more than `units` millionths of GPUs; `prices` prove it."""

    units: float
    prices: tuple[ClassPrices, ...]


def upper_bound(problem: Problem, order: Array) -> PackingBound:
    """Return the bound for the jobs in `order`, in whichever order they come. Raises OptschedError
    where the solver fails."""
    counts = Counter(int(problem.kinds[job]) for job in order)
    classes = node_classes(problem.nodes)
    prices = _Program(problem, classes, counts).solved()
    return PackingBound(
        units=certified_units(problem.nodes, problem.requests, dict(counts), prices), prices=prices
    )


class _Rows:
    """The constraints of one class of nodes: its GPUs, cores and memory, and the room for each part
    of a GPU. Cores and memory are counted in what the largest job takes, so that numbers are of one
    size; a row that is not modelled is None."""

    def __init__(self, solver: Any, problem: Problem, kind: NodeClass, nodes: int) -> None:
        self.solver = solver
        asks = problem.asks
        self.scale_cpus, self.scale_kib = (
            max(1.0, float(each.max())) for each in (asks.cpus, asks.memory_kib)
        )
        self.gpus = self._at_most(nodes * kind.gpus)
        self.cpus = (
            None if kind.cpus is None else self._at_most(nodes * kind.cpus / self.scale_cpus)
        )
        self.memory = None
        if kind.memory_kib is not None:
            self.memory = self._at_most(nodes * kind.memory_kib / self.scale_kib)
        self.parts: dict[int, Any] = {}

    def _at_most(self, amount: float) -> Any:
        return self.solver.Constraint(-self.solver.infinity(), amount)

    def add_jobs(self, asked: Request, arrived: Any) -> None:
        """Add the number of jobs of a kind, of those that `arrived`, that go to the class."""
        jobs = self.solver.NumVar(0, self.solver.infinity(), "")
        self.solver.Objective().SetCoefficient(jobs, asked.gpu_units / WHOLE)
        arrived.SetCoefficient(jobs, 1)
        if self.cpus is not None:
            self.cpus.SetCoefficient(jobs, asked.cpus / self.scale_cpus)
        if self.memory is not None:
            self.memory.SetCoefficient(jobs, asked.memory_kib / self.scale_kib)
        if not asked.part:
            self.gpus.SetCoefficient(jobs, asked.gpus)
            return
        if asked.part not in self.parts:
            self.parts[asked.part] = self._at_most(0)
        self.parts[asked.part].SetCoefficient(jobs, 1)

    def add_pattern(self, pattern: dict[int, int]) -> None:
        """Add the number of GPUs that hold so many of these parts."""
        column = self.solver.NumVar(0, self.solver.infinity(), "")
        self.gpus.SetCoefficient(column, 1)
        for part, count in pattern.items():
            self.parts[part].SetCoefficient(column, -count)

    def prices(self) -> ClassPrices:
        """Return the dual values."""
        return ClassPrices(
            per_gpu=_price(self.gpus),
            per_cpu=_price(self.cpus) / self.scale_cpus,
            per_kib=_price(self.memory) / self.scale_kib,
            per_part={part: _price(row) for part, row in self.parts.items()},
        )


def _price(row: Any) -> float:
    return 0.0 if row is None else max(0.0, float(row.dual_value()))


class _Program:
    """The linear program; GPUs are counted in GPUs."""

    def __init__(
        self, problem: Problem, classes: dict[NodeClass, int], counts: Counter[int]
    ) -> None:
        from ortools.linear_solver import pywraplp

        self.optimal = pywraplp.Solver.OPTIMAL
        self.solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        self.solver.Objective().SetMaximization()
        arrived = {kind: self.solver.Constraint(0, count) for kind, count in sorted(counts.items())}
        self.rows = []
        for node_class, nodes in classes.items():
            rows = _Rows(self.solver, problem, node_class, nodes)
            for kind, row in arrived.items():
                asked = problem.requests[kind]
                if asked.gpus and node_class.takes(asked):
                    rows.add_jobs(asked, row)
            self.rows.append(rows)
        for rows in self.rows:
            for part in rows.parts:
                rows.add_pattern({part: GRID // size_on_grid(part)})

    def solved(self) -> tuple[ClassPrices, ...]:
        """Return the dual values once no pattern helps any more."""
        prices: tuple[ClassPrices, ...] = ()
        for _ in range(ROUNDS):
            if not self._is_solved():
                if prices:
                    break  # earlier prices prove a bound as well
                raise OptschedError("the linear program of the bound was not solved by GLOP")
            prices = tuple(rows.prices() for rows in self.rows)
            better = False
            for rows, own in zip(self.rows, prices, strict=True):
                worth, pattern = best_pattern(own.per_part)
                if worth > own.per_gpu + ENOUGH:
                    rows.add_pattern(pattern)
                    better = True
            if not better:
                break
        return prices

    def _is_solved(self) -> bool:
        """Solve, by the other simplex method where one stops on its numbers."""
        for parameters in PARAMETERS:
            self.solver.SetSolverSpecificParametersAsString(parameters)
            if self.solver.Solve() == self.optimal:
                return True
        return False
