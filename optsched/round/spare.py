"""What is free before anyone is preempted, and so which options need others to leave."""

from collections.abc import Sequence

import numpy as np

from ..cluster import Cluster
from ..instance import Placement
from .model import Floats, Ints
from .patterns import NodeClass, Pattern
from .rows import Held


class SpareRoom:
    """GPUs, cores and memory of each node that nobody holds."""

    def __init__(
        self, cluster: Cluster, classes: tuple[NodeClass, ...], held: Held, blocked: Sequence[Placement]
    ) -> None:
        self._classes = classes
        count = len(cluster.nodes)
        inf = float("inf")
        self.gpus = np.array([node.gpus for node in cluster.nodes], dtype=np.int64)
        self.cpus = np.array([inf if node.cpus is None else node.cpus for node in cluster.nodes], dtype=float)
        self.memory = np.array([inf if node.memory_gib is None else node.memory_gib for node in cluster.nodes])
        gpus, cpus, memory = [0] * count, [0] * count, [0.0] * count
        for on in held.on:
            for n, g, c, m in on:
                gpus[n] += g
                cpus[n] += c
                memory[n] += m
        for placement in blocked:
            for slot in placement:
                n = cluster.node_order[slot.node]
                gpus[n] += slot.gpus
                cpus[n] += slot.cpus
        self.gpus -= np.array(gpus, dtype=np.int64)
        self.cpus -= np.array(cpus, dtype=float)
        self.memory -= np.array(memory, dtype=float)
        self._states = [
            np.unique(np.stack([self.gpus[list(one.nodes)].astype(float), self.cpus[list(one.nodes)],
                                self.memory[list(one.nodes)]], axis=1), axis=0)
            for one in classes
        ]

    def swap_costs(
        self, flat: Sequence[Pattern], preemptible: Ints, cost_s: Floats, held: Held, kept: Ints
    ) -> Floats:
        """For each pattern the seconds that preempting others for it would cost: 0 where it fits beside all that
        run, else the mean of `cost_s` over the jobs that could be preempted on its nodes, by GPUs held."""
        position = {int(j): k for k, j in enumerate(kept)}
        weight = np.zeros(len(self._classes))
        total = np.zeros(len(self._classes))
        class_of = {n: one.number for one in self._classes for n in one.nodes}
        for j in preemptible:
            for n, gpus, _, _ in held.on[position[int(j)]]:
                weight[class_of[n]] += max(gpus, 1)
                total[class_of[n]] += max(gpus, 1) * cost_s[j]
        found = np.zeros(len(flat))
        known: dict[object, float] = {}
        for i, one in enumerate(flat):
            if not one.classes:
                continue
            key = one.classes, one.slot, one.gpus, one.cpus, one.memory_gib
            if key not in known:
                on = [kind.number for kind in self._classes if kind.bit & one.classes]
                held_gpus = sum(weight[c] for c in on)
                fits = not held_gpus or self._fits(one, on)
                known[key] = 0.0 if fits else sum(total[c] for c in on) / held_gpus
            found[i] = known[key]
        return found

    def _fits(self, one: Pattern, on: list[int]) -> bool:
        if one.together:
            return any(
                bool(np.any((self._states[c][:, 0] >= one.gpus) & (self._states[c][:, 1] >= one.cpus)
                            & (self._states[c][:, 2] >= one.memory_gib)))
                for c in on
            )
        return sum(int(self.gpus[list(self._classes[c].nodes)].sum()) for c in on) >= one.gpus
