"""The best allocation under Pollux's objective.

With exponent -1 the best power mean is the least sum of inverse speedups: a sum over jobs of what
their configuration costs, so that a linear program in binaries says what the published genetic
search looks for.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ..parts.configuration_choice import Configuration, choose
from ..parts.gpu_pool import Quota
from .model import SCALE, solve
from .state import LEAST_SPEEDUP, Best, Candidate, Parts, Size, State, Ways, cost_of

Floats = NDArray[np.float64]
Pick = tuple[Size, bool]
"""What a job gets, and whether it keeps for it what it holds."""
Sizes = dict[Size, tuple[float, bool]]
"""What a job may get: the least cost by size, and whether it keeps for it what it holds."""

ROUNDING = 1e-9
NOTHING: Size = (-1, 0)


def pack(state: State, picks: list[Pick]) -> tuple[Parts, ...]:
    """Return places for gangs of these sizes. One that does not fit gets the most that does.

    Gangs larger than a node go first, the largest before, on the emptiest nodes; the others on the
    fullest node that still holds them, the largest before.
    """
    free = {
        gpu_type: [node.gpus if node.gpu_type == gpu_type else 0 for node in state.nodes]
        for gpu_type in {node.gpu_type for node in state.nodes}
    }
    hosts = [False] * len(state.nodes)
    given: list[Parts] = [()] * len(picks)
    for i, ((gpu_type, _), keeps) in enumerate(picks):
        if keeps and _fits(state.jobs[i].now, free[gpu_type], hosts):
            given[i] = state.jobs[i].now
            _take(given[i], free[gpu_type], hosts)
    largest = state.by_type(max)
    order = sorted(
        (i for i, ((_, gpus), _) in enumerate(picks) if gpus and not given[i]),
        key=lambda i: -picks[i][0][1],
    )
    for i in order:
        (gpu_type, gpus), _ = picks[i]
        here = free[gpu_type]
        parts = (
            _over_several(gpus, here, hosts) if gpus > largest[gpu_type] else _on_one(gpus, here)
        )
        parts = parts or _smaller(state, i, picks[i][0], here)
        given[i] = parts
        _take(parts, here, hosts)
    return tuple(given)


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


def _smaller(state: State, i: int, most: Size, free: list[int]) -> Parts:
    """Return the best of the smaller sizes on the same GPU type that fit on one node."""
    sizes = [size for size in state.jobs[i].alone if size[0] == most[0] and size < most]
    fitting = [_on_one(gpus, free) for _, gpus in sizes]
    return min(fitting, key=lambda parts: state.cost(state.jobs[i], parts), default=())


def best(state: State, quotas: tuple[Quota, ...] = ()) -> Best:
    """Return the allocation of least cost. `quotas` limit the GPUs of groups of jobs.

    First only the numbers of GPUs count, by dynamic programming; with several GPU types or quotas
    as a multiple-choice knapsack. If what comes out can be placed, nothing is better. Else CP-SAT
    places too, without the configurations that the dynamic programming shows to cost more than what
    could be placed.
    """
    ways = [_ways(state, job) for job in state.jobs]
    if not state.nodes or not state.jobs:
        return Best(tuple(() for _ in state.jobs), True)
    held = tuple(job.now for job in state.jobs)
    if all(map(_keeps, ways)) and state.is_sound(held) and _within(held, quotas):
        return Best(held, True)
    sizes = [_sizes(state, job, way) for job, way in zip(state.jobs, ways, strict=True)]
    one_row = len({node.gpu_type for node in state.nodes}) == 1 and not quotas
    counts = _Counts(state, ways, sizes) if one_row else None
    picks, proven = (counts.cheapest(), True) if counts else _choose(state, sizes, quotas)
    least = math.fsum(options[size][0] for options, (size, _) in zip(sizes, picks, strict=True))
    hint = pack(state, picks)
    if proven and state.total(hint) <= least + ROUNDING * least:
        return Best(hint, True)
    if counts:
        counts.drop_dearer(state.total(hint))
    return solve(state, ways, quotas, hint)


def _within(given: tuple[Parts, ...], quotas: tuple[Quota, ...]) -> bool:
    return all(
        sum(count for j in members for _, count in given[j]) <= most for members, most in quotas
    )


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

    def __init__(self, state: State, ways: list[Ways], sizes: list[Sizes]) -> None:
        self.ways = ways
        self.held = [sum(count for _, count in job.now) for job in state.jobs]
        self.total = sum(node.gpus for node in state.nodes)
        self.sizes = sizes
        self.first = self._course(self.sizes)

    def _course(self, sizes: list[Sizes]) -> list[Floats]:
        """Return the least cost of the first 0, 1, 2... jobs on at most so many GPUs."""
        course = [np.zeros(self.total + 1)]
        for options in sizes:
            before = course[-1]
            after = before + options[NOTHING][0]
            for (_, gpus), (cost, _) in options.items():
                if 0 < gpus <= self.total:
                    np.minimum(after[gpus:], before[:-gpus] + cost, out=after[gpus:])
            course.append(after)
        return course

    def cheapest(self) -> list[Pick]:
        """Return what each job gets at the least cost."""
        left = int(self.first[-1].argmin())
        picks = []
        for before, options in zip(self.first[-2::-1], self.sizes[::-1], strict=True):
            fitting = [size for size in options if size[1] <= left]
            size = min(fitting, key=lambda size: (before[left - size[1]] + options[size][0], size))
            picks.append((size, options[size][1]))
            left -= size[1]
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


def _sizes(state: State, job: Candidate, way: Ways) -> Sizes:
    """Return the least cost of a job by size, and whether it keeps for it what it holds."""
    sizes = {NOTHING: (1 / LEAST_SPEEDUP, False)}
    for kind in (way.alone, way.spread):
        for size, cost in kind.items():
            if size not in sizes or cost < sizes[size][0]:
                sizes[size] = cost, False
    if way.keep is not None:
        held = state.nodes[job.now[0][0]].gpu_type, sum(count for _, count in job.now)
        if held not in sizes or way.keep <= sizes[held][0]:
            sizes[held] = way.keep, True
    return dict(sorted(sizes.items()))


def _choose(state: State, sizes: list[Sizes], quotas: tuple[Quota, ...]) -> tuple[list[Pick], bool]:
    """Return what each job gets at the least cost when any GPUs of a type will do, within the
    quotas, and whether that is proven."""
    room = state.by_type(sum)
    row = {gpu_type: k for k, gpu_type in enumerate(room)}
    limited: list[list[int]] = [[] for _ in sizes]
    for k, (members, _) in enumerate(quotas, start=len(row)):
        for j in members:
            limited[j].append(k)
    jobs = [
        [
            Configuration(
                cost,
                tuple(
                    (k, size[1])
                    for k in (row.get(size[0]), *limited[j])
                    if k is not None and size[1]
                ),
            )
            for size, (cost, _) in options.items()
        ]
        for j, options in enumerate(sizes)
    ]
    choice = choose(jobs, [*room.values(), *(most for _, most in quotas)], SCALE / LEAST_SPEEDUP)
    picks = [[*options.items()][i] for options, i in zip(sizes, choice.chosen, strict=True)]
    return [(size, keeps) for size, (_, keeps) in picks], choice.proven
