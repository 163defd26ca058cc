"""The placement rules of the published comparison, with their whole-number scores.

Source: Q. Weng et al., Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
gradient descent, USENIX ATC'23, and the public simulator's settings of its artifact. Scores are cut
to whole numbers from 0 to 100 as there, so that many nodes are equally good; a job that asks for a
part of a GPU gets the fullest GPU that can take it, unless a rule says otherwise.
"""

import numpy as np

from .engine import Room, Rule
from .problem import WHOLE, Array, Problem


class Random(Rule):
    """A node at random among those that can take the job, and a random GPU there."""

    chooses_at_random = True

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        self.nothing = np.zeros(len(problem.requests), dtype=np.int64)
        self.random = np.random.default_rng([seed, 2])

    def scores(self, node: int, room: Room) -> Array:
        return self.nothing

    def gpu_for(self, kind: int, node: int, room: Room) -> int:
        part = int(self.asks.parts[kind])
        able = [gpu for gpu, left in enumerate(room.gpus[node]) if left >= part]
        return able[int(self.random.integers(len(able)))]


class Relative(Rule):
    """Rules that look at cores and GPUs relative to the most of any node, as published for 128
    cores and 8 GPUs."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        self.most_cpus = float(max(1, *(node.cpus or 0 for node in problem.nodes)))
        self.most_units = float(max(node.gpus for node in problem.nodes) * WHOLE)


class DotProduct(Relative):
    """The node whose free cores and GPUs have the smallest dot product with the request (after
    Tetris, SIGCOMM'14)."""

    def scores(self, node: int, room: Room) -> Array:
        cpus = self.asks.cpus / self.most_cpus * (room.cpus[node] / self.most_cpus)
        gpus = self.asks.units / self.most_units * (sum(room.gpus[node]) / self.most_units)
        return (100 * (1 - (cpus + gpus) / 2)).astype(np.int64)


class BestFit(Relative):
    """The node with the least left: half the cores, half the GPUs, each relative to the largest
    node."""

    def scores(self, node: int, room: Room) -> Array:
        cpus = (room.cpus[node] - self.asks.cpus) / self.most_cpus
        gpus = (sum(room.gpus[node]) - self.asks.units) / self.most_units
        return ((1 - (cpus + gpus) / 2) * 100).astype(np.int64)


class Clustering(Relative):
    """Jobs beside others that ask for as many GPUs (or also for a part of one); then the node with
    the fewest free."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        self.groups = np.where(self.asks.parts > 0, -1, self.asks.whole)
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


class GpuPacking(Rule):
    """First GPUs in use, then free GPUs of nodes in use, then free nodes."""

    def scores(self, node: int, room: Room) -> Array:
        left = room.gpus[node]
        free = left.count(WHOLE)
        if free == len(left):
            return np.where(self.asks.units > 0, max(33 - free, free), 0)
        scores = np.where(self.asks.whole > 0, np.maximum(50 - self.asks.whole, 33), 0)
        for kind in np.flatnonzero(self.asks.parts):
            part = self.asks.parts[kind]
            fullest = min((rest for rest in left if rest >= part), default=WHOLE)
            scores[kind] = 49 if fullest == WHOLE else max(100 - fullest * 100 // WHOLE // 10, 50)
        return scores
