"""Nodes that are kept for jobs of several GPUs: as many as are expected before the cluster is
full."""

import numpy as np

from .engine import Room
from .problem import WHOLE, Array, Problem

EVERY = 20
"""After so many arrivals the reserve is looked at again."""
REJECTED = 1 << 50
"""What a score loses on a node that the job would spoil; it still goes there if it fits nowhere
else."""


class Reserve:
    """For each number of GPUs above one that jobs ask for, the nodes that could still take any such
    job, once these are no more than are expected to be needed: the GPUs that are free, times such
    jobs for each GPU that all jobs ask for.
    """

    def __init__(self, problem: Problem) -> None:
        self.asks = asks = problem.asks
        per_job = float(problem.shares @ asks.units) / WHOLE
        self.sizes = []
        for size in sorted({*asks.whole.tolist()} - {0, 1}, reverse=True):
            kinds = np.flatnonzero(asks.whole == size)
            share = float(problem.shares[kinds].sum())
            self.sizes.append((size, int(asks.cpus[kinds].max()), share / per_job))
        self.kept: list[list[int]] = [[] for _ in self.sizes]
        self.came = 0

    def changed(self, room: Room) -> list[int]:
        """Take note of an arrival; return the nodes that have come into the reserve or left it."""
        self.came += 1
        if self.came % EVERY != 1 or not self.sizes:
            return []
        free = sum(map(sum, room.gpus)) / WHOLE
        changed: set[int] = set()
        for i, (size, cpus, per_gpu) in enumerate(self.sizes):
            able = [
                node
                for node, gpus in enumerate(room.gpus)
                if room.cpus[node] >= cpus and gpus.count(WHOLE) >= size
            ]
            most = int(free * per_gpu) + 1
            before = set(self.kept[i])
            if len(able) > most:
                able = (
                    sorted(able, key=lambda node: (node not in before, node))[:most]
                    if before
                    else []
                )
            changed |= before ^ set(able)
            self.kept[i] = able
        return sorted(changed)

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
