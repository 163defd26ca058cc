"""The placement rules of the published comparison, with their whole-number scores.

Source: Q. Weng et al., Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
gradient descent, USENIX ATC'23, and the public simulator's settings of its artifact. Scores are cut
to whole numbers from 0 to 100 as there, so that many nodes are equally good; a job that asks for a
part of a GPU gets the fullest GPU that can take it, unless a rule says otherwise.
"""

from collections.abc import Iterable

import numpy as np

from .engine import Room
from .problem import WHOLE, Array, Problem


class Published:
    """What the rules share."""

    chooses_at_random = False

    def __init__(self, problem: Problem, seed: int) -> None:
        requests = problem.requests
        self.cpus = np.array([one.cpus for one in requests], dtype=float)
        self.units = np.array([one.gpu_units for one in requests], dtype=np.int64)
        self.parts = np.array([one.part for one in requests], dtype=np.int64)
        self.whole = np.array([0 if one.part else one.gpus for one in requests], dtype=np.int64)
        self.nothing = np.zeros(len(requests), dtype=np.int64)
        self.random = np.random.default_rng([seed, 2])
        most = max((node.cpus or 0 for node in problem.nodes), default=0)
        # Published for 128 cores and 8 GPUs, the most of any node of the trace.
        self.most_cpus = float(max(most, 1))
        self.most_units = float(max(node.gpus for node in problem.nodes) * WHOLE)

    def gpu_for(self, kind: int, node: int, room: Room) -> int:
        left, part = room.gpus[node], int(self.parts[kind])
        return min(
            (gpu for gpu in range(len(left)) if left[gpu] >= part), key=lambda gpu: (left[gpu], gpu)
        )

    def arrived(self, kind: int, room: Room) -> Iterable[int]:
        return ()

    def placed(self, kind: int, node: int, room: Room) -> None:
        pass


class Random(Published):
    """A node at random among those that can take the job, and a random GPU there."""

    chooses_at_random = True

    def scores(self, node: int, room: Room) -> Array:
        return self.nothing

    def gpu_for(self, kind: int, node: int, room: Room) -> int:
        part = int(self.parts[kind])
        able = [gpu for gpu, left in enumerate(room.gpus[node]) if left >= part]
        return able[int(self.random.integers(len(able)))]


class DotProduct(Published):
    """The node whose free cores and GPUs have the smallest dot product with the request (after
    Tetris, SIGCOMM'14)."""

    def scores(self, node: int, room: Room) -> Array:
        cpus = self.cpus / self.most_cpus * (room.cpus[node] / self.most_cpus)
        gpus = self.units / self.most_units * (sum(room.gpus[node]) / self.most_units)
        return (100 * (1 - (cpus + gpus) / 2)).astype(np.int64)


class BestFit(Published):
    """The node with the least left: half the cores, half the GPUs, each relative to the largest
    node."""

    def scores(self, node: int, room: Room) -> Array:
        cpus = (room.cpus[node] - self.cpus) / self.most_cpus
        gpus = (sum(room.gpus[node]) - self.units) / self.most_units
        return ((1 - (cpus + gpus) / 2) * 100).astype(np.int64)


class Clustering(Published):
    """Jobs beside others that ask for as many GPUs (or also for a part of one); then the node with
    the fewest free."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        self.groups = np.where(self.parts > 0, -1, self.whole)
        self.here: list[set[int]] = [set() for _ in problem.nodes]

    def scores(self, node: int, room: Room) -> Array:
        fullness = 25 * (int(self.most_units) - sum(room.gpus[node])) // int(self.most_units)
        here = self.here[node]
        base = np.where(
            np.isin(self.groups, list(here)), 75 if len(here) == 1 else 50, 0 if here else 25
        )
        return np.where(self.groups == 0, 0, base + fullness).astype(np.int64)

    def placed(self, kind: int, node: int, room: Room) -> None:
        if self.groups[kind]:
            self.here[node].add(int(self.groups[kind]))


class GpuPacking(Published):
    """First GPUs in use, then free GPUs of nodes in use, then free nodes."""

    def scores(self, node: int, room: Room) -> Array:
        left = room.gpus[node]
        free = left.count(WHOLE)
        if free == len(left):
            return np.where(self.units > 0, max(33 - free, free), 0)
        found = self.nothing.copy()
        for kind in np.flatnonzero(self.parts):
            part = self.parts[kind]
            fullest = min((rest for rest in left if rest >= part), default=WHOLE)
            found[kind] = 49 if fullest == WHOLE else max(100 - fullest * 100 // WHOLE // 10, 50)
        return np.where(self.whole > 0, np.maximum(50 - self.whole, 33), found)
