"""What is kept for jobs that fit on few nodes: nodes for jobs of several GPUs, and GPU types for
jobs bound to them, as much as such jobs are expected to need before the cluster is full."""

import math

import numpy as np

from .engine import Room
from .problem import WHOLE, Array, Problem

REJECTED = 1 << 50
"""What a score loses on a node that the job would spoil; it still goes there if it fits nowhere
else."""
DEVIATIONS = 3.0
"""Standard deviations by which more jobs of several GPUs may come than are expected."""
MARGIN = 1.2
"""What is free of a GPU type is never used to the last part, so that more is kept than is asked
for."""


class Reserve:
    """For each number of GPUs above one that jobs ask for, the nodes that could still take any such
    job, once these are no more than may be needed: the GPUs that are free, times such jobs for each
    GPU that all jobs ask for, and `DEVIATIONS` of so many arrivals (Poisson's) more.
    """

    def __init__(self, problem: Problem) -> None:
        self.asks = asks = problem.asks
        per_job = float(np.sum(problem.shares * asks.units)) / WHOLE
        self.sizes = []
        for size in sorted({*asks.whole.tolist()} - {0, 1}, reverse=True):
            kinds = np.flatnonzero(asks.whole == size)
            share = float(problem.shares[kinds].sum())
            self.sizes.append((size, int(asks.cpus[kinds].max()), share / per_job))
        self.kept: list[list[int]] = [[] for _ in self.sizes]

    def changed(self, room: Room) -> set[int]:
        """Return the nodes that have come into the reserve or left it."""
        if not self.sizes:
            return set()
        free = sum(map(sum, room.gpus)) / WHOLE
        changed: set[int] = set()
        for i, (size, cpus, per_gpu) in enumerate(self.sizes):
            able = [
                node
                for node, gpus in enumerate(room.gpus)
                if room.cpus[node] >= cpus and gpus.count(WHOLE) >= size
            ]
            expected = free * per_gpu
            most = int(expected + DEVIATIONS * math.sqrt(expected)) + 1
            before = set(self.kept[i])
            if len(able) > most:
                able = (
                    sorted(able, key=lambda node: (node not in before, node))[:most]
                    if before
                    else []
                )
            changed |= before ^ set(able)
            self.kept[i] = able
        return changed

    def lost(self, node: int, room: Room) -> Array:
        """Return what the scores of each kind lose on a node."""
        lost = np.zeros(len(self.asks.parts), dtype=np.int64)
        gpus = room.gpus[node]
        free = gpus.count(WHOLE)
        in_use = max((left for left in gpus if left < WHOLE), default=0)
        takes = np.where(self.asks.parts > in_use, 1, self.asks.whole)
        for (size, cpus, _), kept in zip(self.sizes, self.kept, strict=True):
            if node in kept and free >= size and room.cpus[node] >= cpus:
                spoils = (free - takes < size) | (room.cpus[node] - self.asks.cpus < cpus)
                lost += np.where(spoils & (self.asks.whole < size), REJECTED, 0)
        return lost


class TypeReserve:
    """For each set of GPU types that jobs are bound to, whether so little is free of these types
    that the jobs bound to them are expected to need it all: what is free of all types, times the
    share of what all jobs ask for that such jobs ask for.
    """

    def __init__(self, problem: Problem) -> None:
        units = problem.shares * problem.asks.units
        types = [node.gpu_type for node in problem.nodes]
        bound_to = [
            frozenset(request.gpu_types if request.gpus else ()) for request in problem.requests
        ]
        self.sets = []
        for allowed in sorted({*bound_to} - {frozenset()}, key=sorted):
            inside = np.array([bool(own) and own <= allowed for own in bound_to])
            nodes = np.array(
                [i for i, gpu_type in enumerate(types) if gpu_type in allowed], dtype=np.int64
            )
            self.sets.append((nodes, ~inside, MARGIN * float(units[inside].sum() / units.sum())))
        self.lost = np.zeros((len(types), len(bound_to)), dtype=np.int64)
        """What the score of each node (row) loses for each kind."""
        self.scarce = [False] * len(self.sets)

    def changed(self, room: Room) -> set[int]:
        """Return the nodes whose types have become scarce or plenty."""
        free = [sum(gpus) for gpus in room.gpus] if self.sets else []
        total = sum(free)
        changed: set[int] = set()
        for i, (nodes, outside, share) in enumerate(self.sets):
            scarce = sum(free[node] for node in nodes) <= share * total
            if scarce != self.scarce[i]:
                self.scarce[i] = scarce
                self.lost[np.ix_(nodes, outside)] += REJECTED if scarce else -REJECTED
                changed |= {*nodes.tolist()}
        return changed
