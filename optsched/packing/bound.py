"""An upper bound on the GPUs that any rule can allocate, even one that knows all arrivals and
refuses some.

A linear program over classes of equal nodes and kinds of jobs: how many jobs of a kind go to a
class, and how many GPUs of a class hold which pattern of parts. Nodes of a class are taken
together, which only helps. Patterns are found as they are needed (Gilmore and Gomory, 1961). Its
dual values are the certificate: `certificate` recomputes from them a bound that holds whatever they
are, so that nothing depends on the solver.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..errors import OptschedError
from .certificate import (
    GRID,
    ClassPrices,
    NodeClass,
    best_pattern,
    certified_units,
    node_classes,
    size_on_grid,
)
from .problem import WHOLE, Array, Problem

ENOUGH = 1e-7
"""A pattern worth no more than this beyond its GPU does not enter."""
ROUNDS = 500
WAYS = (
    "use_dual_simplex: false",
    "use_dual_simplex: true",
    "use_dual_simplex: false use_preprocessing: false",
)


@dataclass(frozen=True, slots=True)
class PackingBound:
    """No rule allocates more than `units` millionths of GPUs; `prices` prove it."""

    units: float
    prices: tuple[ClassPrices, ...]


def upper_bound(problem: Problem, order: Array) -> PackingBound:
    """The bound for the jobs in `order`, in whichever order they come. Raises OptschedError where
    the solver fails."""
    counts = Counter(int(problem.kinds[job]) for job in order)
    classes = node_classes(problem.nodes)
    prices = _Program(problem, classes, counts).solved()
    return PackingBound(
        units=certified_units(problem.nodes, problem.requests, dict(counts), prices), prices=prices
    )


class _Program:
    """The linear program; GPUs are counted in GPUs, cores and memory in what the largest job takes,
    so that numbers are of one size."""

    def __init__(
        self, problem: Problem, classes: dict[NodeClass, int], counts: Counter[int]
    ) -> None:
        from ortools.linear_solver import pywraplp

        self.status = pywraplp.Solver
        self.solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        self.classes = list(classes)
        solver, infinity, requests = self.solver, self.solver.infinity(), problem.requests
        self.scale_cpus = max(1.0, max((one.cpus for one in requests), default=1))
        self.scale_memory = max(1.0, max((one.memory_kib for one in requests), default=1))
        self.gpus: list[Any] = []
        self.cpus: list[Any] = []
        self.memory: list[Any] = []
        self.parts: list[dict[int, Any]] = []
        arrived = {kind: solver.Constraint(0, count) for kind, count in sorted(counts.items())}
        solver.Objective().SetMaximization()
        for one, nodes in classes.items():
            gpus = solver.Constraint(-infinity, nodes * one.gpus)
            cpus = (
                None
                if one.cpus is None
                else solver.Constraint(-infinity, nodes * one.cpus / self.scale_cpus)
            )
            memory = None
            if one.memory_kib is not None:
                memory = solver.Constraint(-infinity, nodes * one.memory_kib / self.scale_memory)
            parts: dict[int, Any] = {}
            for kind in arrived:
                asked = requests[kind]
                if not asked.gpus or not one.takes(asked):
                    continue
                jobs = solver.NumVar(0, infinity, "")
                solver.Objective().SetCoefficient(jobs, asked.gpu_units / WHOLE)
                arrived[kind].SetCoefficient(jobs, 1)
                if cpus is not None:
                    cpus.SetCoefficient(jobs, asked.cpus / self.scale_cpus)
                if memory is not None:
                    memory.SetCoefficient(jobs, asked.memory_kib / self.scale_memory)
                if asked.part:
                    if asked.part not in parts:
                        parts[asked.part] = solver.Constraint(-infinity, 0)
                    parts[asked.part].SetCoefficient(jobs, 1)
                else:
                    gpus.SetCoefficient(jobs, asked.gpus)
            self.gpus.append(gpus)
            self.cpus.append(cpus)
            self.memory.append(memory)
            self.parts.append(parts)
        for own in range(len(self.classes)):
            for part in self.parts[own]:
                self._add(own, {part: GRID // size_on_grid(part)})

    def _add(self, own: int, pattern: dict[int, int]) -> None:
        column = self.solver.NumVar(0, self.solver.infinity(), "")
        self.gpus[own].SetCoefficient(column, 1)
        for part, count in pattern.items():
            self.parts[own][part].SetCoefficient(column, -count)

    def solved(self) -> tuple[ClassPrices, ...]:
        """The dual values once no pattern helps any more."""
        prices: tuple[ClassPrices, ...] = ()
        for _ in range(ROUNDS):
            if not self._is_solved():
                if prices:
                    break  # earlier prices prove a bound as well
                raise OptschedError("the linear program of the bound was not solved by GLOP")
            prices = self._prices()
            better = False
            for own, found in enumerate(prices):
                worth, pattern = best_pattern(found.per_part)
                if worth > found.per_gpu + ENOUGH:
                    self._add(own, pattern)
                    better = True
            if not better:
                break
        return prices

    def _is_solved(self) -> bool:
        """Solve, by the other simplex method where one stops on its numbers."""
        for parameters in WAYS:
            self.solver.SetSolverSpecificParametersAsString(parameters)
            if self.solver.Solve() == self.status.OPTIMAL:
                return True
        return False

    def _prices(self) -> tuple[ClassPrices, ...]:
        def price(row: Any, scale: float = 1.0) -> float:
            return 0.0 if row is None else max(0.0, float(row.dual_value())) / scale

        return tuple(
            ClassPrices(
                per_gpu=price(gpus),
                per_cpu=price(cpus, self.scale_cpus),
                per_kib=price(memory, self.scale_memory),
                per_part={part: price(row) for part, row in parts.items()},
            )
            for gpus, cpus, memory, parts in zip(
                self.gpus, self.cpus, self.memory, self.parts, strict=True
            )
        )
