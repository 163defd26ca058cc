"""The best allocation under Pollux's objective.

With exponent -1 the best power mean is the least sum of inverse speedups: a sum over jobs of what
their configuration costs, so that a linear program in binaries says what the published genetic
search looks for.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ..parts.gpu_pool import Quota
from .model import solve
from .state import LEAST_SPEEDUP, Best, Candidate, Parts, State, Ways, cost_of

Floats = NDArray[np.float64]

ROUNDING = 1e-9


def pack(state: State, sizes: list[tuple[int, bool]]) -> tuple[tuple[Parts, ...], bool]:
    """Return places for gangs of so many GPUs (on one GPU type), where the flag says that a job
    keeps what it holds, and whether all have one. One that does not fit gets the most that does.

    Gangs larger than a node go first, the largest before, on the emptiest nodes; the others on the
    fullest node that still holds them, the largest before.
    """
    free = [node.gpus for node in state.nodes]
    hosts = [False] * len(free)
    given: list[Parts] = [()] * len(sizes)
    whole = True
    for i, (gpus, keeps) in enumerate(sizes):
        if keeps and _fits(state.jobs[i].now, free, hosts):
            given[i] = state.jobs[i].now
            _take(given[i], free, hosts)
        elif keeps:
            sizes[i] = gpus, False
            whole = False
    largest = max(node.gpus for node in state.nodes)
    order = sorted(
        (i for i, (gpus, _) in enumerate(sizes) if gpus and not given[i]),
        key=lambda i: -sizes[i][0],
    )
    for i in order:
        gpus = sizes[i][0]
        parts = _over_several(gpus, free, hosts) if gpus > largest else _on_one(gpus, free)
        if not parts:
            whole = False
            parts = _smaller(state, i, gpus, free)
        given[i] = parts
        _take(parts, free, hosts)
    return tuple(given), whole


def _fits(parts: Parts, free: list[int], hosts: list[bool]) -> bool:
    return all(gpus <= free[node] and not (len(parts) > 1 and hosts[node]) for node, gpus in parts)


def _take(parts: Parts, free: list[int], hosts: list[bool]) -> None:
    for node, gpus in parts:
        free[node] -= gpus
        hosts[node] |= len(parts) > 1


def _over_several(gpus: int, free: list[int], hosts: list[bool]) -> Parts:
    """Return all of the emptiest nodes, and of the rest of them the fullest that holds the end."""
    parts: list[tuple[int, int]] = []
    open_nodes = [node for node, count in enumerate(free) if count and not hosts[node]]
    open_nodes.sort(key=lambda node: -free[node])
    while open_nodes:
        enough = sorted(node for node in open_nodes if gpus <= free[node])
        if enough:
            parts.append((min(enough, key=lambda node: free[node]), gpus))
            return tuple(sorted(parts))
        node = open_nodes.pop(0)
        parts.append((node, free[node]))
        gpus -= free[node]
    return ()


def _on_one(gpus: int, free: list[int]) -> Parts:
    node = min(
        (node for node, count in enumerate(free) if count >= gpus),
        key=lambda node: free[node],
        default=None,
    )
    return () if node is None else ((node, gpus),)


def _smaller(state: State, i: int, most: int, free: list[int]) -> Parts:
    """Return the best of the smaller sizes that fit on one node."""
    fitting = [_on_one(gpus, free) for _, gpus in state.jobs[i].alone if gpus < most]
    return min(fitting, key=lambda parts: state.cost(state.jobs[i], parts), default=())


def best(state: State, quotas: tuple[Quota, ...] = ()) -> Best:
    """Return the allocation of least cost. `quotas` limit the GPUs of groups of jobs.

    First only the number of GPUs counts, by dynamic programming; if what comes out can be placed,
    nothing is better. Else CP-SAT places too, without the configurations that the same programming
    shows to cost more than what could be placed.
    """
    ways = [_ways(state, job) for job in state.jobs]
    if not state.nodes or not state.jobs:
        return Best(tuple(() for _ in state.jobs), True)
    held = tuple(job.now for job in state.jobs)
    if all(map(_keeps, ways)) and state.is_sound(held):
        return Best(held, True)
    hint: tuple[Parts, ...] | None = None
    if len({node.gpu_type for node in state.nodes}) == 1 and not quotas:
        counts = _Counts(state, ways)
        hint, whole = pack(state, counts.cheapest())
        if whole:
            return Best(hint, True)
        counts.drop_dearer(state.total(hint))
    return solve(state, ways, quotas, hint)


def _ways(state: State, job: Candidate) -> Ways:
    ways = Ways()
    if job.now and all(gpus <= state.nodes[node].gpus for node, gpus in job.now):
        ways.keep = state.cost(job, job.now)
    for kind, values, room in (
        (ways.alone, job.alone, state.by_type(max)),
        (ways.spread, job.spread, state.by_type(sum)),
    ):
        cheapest: dict[int, float] = {}
        for (gpu_type, gpus), value in sorted(values.items()):
            cost = cost_of(value * job.factor)
            if (
                gpus <= room.get(gpu_type, 0)
                and cost < cheapest.get(gpu_type, 1 / LEAST_SPEEDUP)
                and (kind is ways.alone or gpus > 1)
            ):
                kind[gpu_type, gpus] = cheapest[gpu_type] = cost
    return ways


def _keeps(way: Ways) -> bool:
    """Return whether a job can have nothing better than what it holds."""
    return way.keep is not None and way.keep <= min(
        (*way.alone.values(), *way.spread.values()), default=math.inf
    )


class _Counts:
    """The least cost by number of GPUs, when any GPUs will do: of the first jobs and of the
    last."""

    def __init__(self, state: State, ways: list[Ways]) -> None:
        self.ways = ways
        self.held = [sum(count for _, count in job.now) for job in state.jobs]
        self.total = sum(node.gpus for node in state.nodes)
        self.sizes = [_sizes(way, held) for way, held in zip(ways, self.held, strict=True)]
        self.first = self._course(self.sizes)

    def _course(self, sizes: list[dict[int, tuple[float, bool]]]) -> list[Floats]:
        """Return the least cost of the first 0, 1, 2... jobs on at most so many GPUs."""
        course = [np.zeros(self.total + 1)]
        for options in sizes:
            before = course[-1]
            after = before + options[0][0]
            for gpus, (cost, _) in options.items():
                if 0 < gpus <= self.total:
                    np.minimum(after[gpus:], before[:-gpus] + cost, out=after[gpus:])
            course.append(after)
        return course

    def cheapest(self) -> list[tuple[int, bool]]:
        """Return GPUs of each job at the least cost, and whether it keeps what it holds."""
        left = int(self.first[-1].argmin())
        picks = []
        for before, options in zip(self.first[-2::-1], self.sizes[::-1], strict=True):
            fitting = [gpus for gpus in options if gpus <= left]
            gpus = min(fitting, key=lambda gpus: (before[left - gpus] + options[gpus][0], gpus))
            picks.append((gpus, options[gpus][1]))
            left -= gpus
        return picks[::-1]

    def drop_dearer(self, limit: float) -> None:
        """Take away what no allocation of at most this cost has."""
        last = self._course(self.sizes[::-1])[::-1]
        limit += ROUNDING * limit
        for j, way in enumerate(self.ways):
            before, after = self.first[j], last[j + 1]

            def least(gpus: int, before: Floats = before, after: Floats = after) -> float:
                room = self.total - gpus
                return (
                    float((before[: room + 1] + after[room::-1]).min()) if room >= 0 else math.inf
                )

            for kind in (way.alone, way.spread):
                for size in [size for size, cost in kind.items() if cost + least(size[1]) > limit]:
                    del kind[size]
            if way.keep is not None and way.keep + least(self.held[j]) > limit:
                way.keep = None


def _sizes(way: Ways, held: int) -> dict[int, tuple[float, bool]]:
    """Return the least cost of a job by GPU count, and whether it keeps for it what it holds."""
    sizes = {0: (1 / LEAST_SPEEDUP, False)}
    for kind in (way.alone, way.spread):
        for (_, gpus), cost in kind.items():
            if gpus not in sizes or cost < sizes[gpus][0]:
                sizes[gpus] = cost, False
    if way.keep is not None and (held not in sizes or way.keep <= sizes[held][0]):
        sizes[held] = way.keep, True
    return dict(sorted(sizes.items()))
