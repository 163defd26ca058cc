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
        requests = problem.requests
        per_job = float(problem.shares @ np.array([one.gpu_units for one in requests])) / WHOLE
        self.sizes = []
        for size in sorted({one.gpus for one in requests if one.gpus > 1}, reverse=True):
            kinds = [kind for kind, one in enumerate(requests) if one.gpus == size]
            cpus = max(requests[kind].cpus for kind in kinds)
            self.sizes.append((size, cpus, float(problem.shares[kinds].sum()) / per_job))
        self.cpus = np.array([one.cpus for one in requests])
        self.part = np.array([one.part for one in requests])
        self.whole = np.array([0 if one.part else one.gpus for one in requests])
        self.kept: list[list[int]] = [[] for _ in self.sizes]
        self.came = 0

    def changed(self, room: Room) -> list[int]:
        """Told of an arrival: the nodes that have come into the reserve or left it."""
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
        """What the scores of each kind lose on a node."""
        found = np.zeros(len(self.part), dtype=np.int64)
        gpus = room.gpus[node]
        free = gpus.count(WHOLE)
        in_use = max((left for left in gpus if left < WHOLE), default=0)
        takes = np.where(self.part > in_use, 1, self.whole)
        for (size, cpus, _), kept in zip(self.sizes, self.kept, strict=True):
            if node in kept and free >= size and room.cpus[node] >= cpus:
                spoils = (free - takes < size) | (room.cpus[node] - self.cpus < cpus)
                found += np.where(spoils & (self.whole < size), REJECTED, 0)
        return found
