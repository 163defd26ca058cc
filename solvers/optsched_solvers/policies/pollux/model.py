"""Pollux's allocation with the places of all gangs, as a CP-SAT model."""

from collections import defaultdict
from typing import Any

from ..parts.configuration_choice import solved
from ..parts.gpu_pool import Quota
from .state import LEAST_SPEEDUP, Best, Parts, Size, State, Ways

SCALE = 1e6
IDLE = 1 / LEAST_SPEEDUP
Row = list[tuple[int, Any]]
"""Terms: coefficient and variable."""


def solve(
    state: State, ways: list[Ways], quotas: tuple[Quota, ...], hint: tuple[Parts, ...] | None
) -> Best:
    """Return the allocation of least cost that has a place, with `quotas` on the GPUs of groups of
    jobs.

    A job keeps what it holds, gets a fresh gang on one node, or one over several, whose parts go to
    distinct nodes. Gangs of equal size, and parts of equal size, are alike: nodes say only how many
    of which they take.
    """
    return _Model(state, ways, quotas, hint).solve()


class _Model:
    def __init__(
        self,
        state: State,
        ways: list[Ways],
        quotas: tuple[Quota, ...],
        hint: tuple[Parts, ...] | None,
    ) -> None:
        from ortools.sat.python import cp_model

        self.model: Any = cp_model.CpModel()
        self.state = state
        self.used: list[Row] = [[] for _ in state.nodes]
        self.hosts: list[Row] = [[] for _ in state.nodes]
        self.keep: dict[int, Any] = {}
        self.fresh: list[dict[tuple[Size, bool], Any]] = []
        self.part: list[dict[Size, Any]] = []
        self.gangs: dict[Size, Row] = defaultdict(list)
        self.parts: dict[Size, Row] = defaultdict(list)
        self.on_node: dict[Size, dict[int, Any]] = defaultdict(dict)
        self.part_on: dict[Size, dict[int, Any]] = defaultdict(dict)
        self.cost: Row = []
        self.gpus: list[Row] = []
        for j, way in enumerate(ways):
            self._job(j, way)
        self._nodes()
        for members, most in quotas:
            self._at_most([term for j in members for term in self.gpus[j]], most)
        self.model.Minimize(_sum(self.cost))
        if hint is not None:
            self._hint(hint)

    def _at_most(self, row: Row, most: int) -> None:
        if row:
            self.model.Add(_sum(row) <= most)

    def _job(self, j: int, way: Ways) -> None:
        """Let a job keep what it holds, or get a fresh gang of some size, or nothing."""
        model, now = self.model, self.state.jobs[j].now
        choices: Row = []
        gpus: Row = []
        if way.keep is not None:
            self.keep[j] = stays = model.NewBoolVar("")
            choices.append((round((way.keep - IDLE) * SCALE), stays))
            gpus.append((sum(count for _, count in now), stays))
            for node, count in now:
                self.used[node].append((count, stays))
                if len(now) > 1:
                    self.hosts[node].append((1, stays))
        fresh: dict[tuple[Size, bool], Any] = {}
        spread: dict[int, Row] = defaultdict(list)
        for kind, several in ((way.alone, False), (way.spread, True)):
            for size, cost in kind.items():
                fresh[size, several] = chosen = model.NewBoolVar("")
                choices.append((round((cost - IDLE) * SCALE), chosen))
                gpus.append((size[1], chosen))
                if several:
                    spread[size[0]].append((size[1], chosen))
                else:
                    self.gangs[size].append((1, chosen))
        if choices:
            model.AddAtMostOne(variable for _, variable in choices)
        self.cost += choices
        self.gpus.append(gpus)
        self.fresh.append(fresh)
        self.part.append(
            {size: count for row in spread.items() for size, count in self._split(*row)}
        )

    def _split(self, gpu_type: int, row: Row) -> list[tuple[Size, Any]]:
        """Return the counts of parts, by size, of a gang over at least two nodes."""
        most = max(gpus for gpus, _ in row)
        pieces = []
        for d in range(1, self.state.by_type(max)[gpu_type] + 1):
            pieces.append(((gpu_type, d), self.model.NewIntVar(0, most // d, "")))
            self.parts[gpu_type, d].append((1, pieces[-1][1]))
        self.model.Add(_sum([(size[1], count) for size, count in pieces]) == _sum(row))
        self.model.Add(
            _sum([(1, count) for _, count in pieces]) >= 2 * sum(chosen for _, chosen in row)
        )
        return pieces

    def _nodes(self) -> None:
        model = self.model
        for n, node in enumerate(self.state.nodes):
            fitting = [
                [size for size in sizes if size[0] == node.gpu_type and size[1] <= node.gpus]
                for sizes in (self.gangs, self.parts)
            ]
            for size in fitting[0]:
                self.on_node[size][n] = count = model.NewIntVar(0, node.gpus // size[1], "")
                self.used[n].append((size[1], count))
            for size in fitting[1]:
                self.part_on[size][n] = here = model.NewBoolVar("")
                self.used[n].append((size[1], here))
                self.hosts[n].append((1, here))
            self._at_most(self.used[n], node.gpus)
            if len(self.hosts[n]) > 1:
                model.AddAtMostOne(variable for _, variable in self.hosts[n])
        for rows, places in ((self.gangs, self.on_node), (self.parts, self.part_on)):
            for size, row in rows.items():
                model.Add(_sum(row) == sum(places[size].values()))

    def _hint(self, hint: tuple[Parts, ...]) -> None:
        for j, parts in enumerate(hint):
            now = self.state.jobs[j].now
            if j in self.keep:
                self.model.AddHint(self.keep[j], parts == now)
            gpus = sum(count for _, count in parts)
            size = (self.state.nodes[parts[0][0]].gpu_type, gpus) if parts else (-1, 0)
            for known, variable in self.fresh[j].items():
                chosen = parts != now and known == (size, len(parts) > 1)
                self.model.AddHint(variable, chosen)

    def solve(self) -> Best:
        solver, optimal = solved(self.model)
        if solver is None:
            return Best(tuple(() for _ in self.state.jobs), False)
        places, pieces = (
            {
                size: [n for n, count in on.items() for _ in range(solver.Value(count))][::-1]
                for size, on in by_size.items()
            }
            for by_size in (self.on_node, self.part_on)
        )
        given: list[Parts] = []
        for j, job in enumerate(self.state.jobs):
            parts: Parts = job.now if j in self.keep and solver.Value(self.keep[j]) else ()
            for (size, several), chosen in self.fresh[j].items():
                if solver.Value(chosen) and several:
                    cut = [d for d, n in self.part[j].items() for _ in range(solver.Value(n))]
                    parts = tuple(sorted((pieces[d].pop(), d[1]) for d in cut))
                elif solver.Value(chosen):
                    parts = ((places[size].pop(), size[1]),)
            given.append(parts)
        return Best(tuple(given), optimal)


def _sum(row: Row) -> Any:
    return sum(weight * variable for weight, variable in row)
