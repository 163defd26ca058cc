"""What is free before anyone is preempted, and so which options need others to leave."""

from collections.abc import Sequence

import numpy as np

from ..cluster import Cluster
from .held import Held
from .model import Floats
from .patterns import NodeClass, Pattern


class SpareRoom:
    """GPUs, cores and memory of each node that nobody holds."""

    def __init__(self, cluster: Cluster, classes: tuple[NodeClass, ...], held: Held) -> None:
        self._classes = classes
        self._held = held
        count, inf = len(cluster.nodes), float("inf")
        self.gpus = np.array([node.gpus for node in cluster.nodes], dtype=np.int64) - held.taken_gpus
        self.gpus -= np.bincount(held.node, weights=held.gpus, minlength=count).astype(np.int64)
        self.cpus = np.array([inf if node.cpus is None else node.cpus for node in cluster.nodes], dtype=float)
        self.cpus -= held.taken_cpus + np.bincount(held.node, weights=held.cpus, minlength=count)
        self.memory = np.array([inf if node.memory_gib is None else node.memory_gib for node in cluster.nodes])
        self.memory -= np.bincount(held.node, weights=held.memory_gib, minlength=count)
        self._states = [
            np.unique(np.stack([self.gpus[list(one.nodes)].astype(float), self.cpus[list(one.nodes)],
                                self.memory[list(one.nodes)]], axis=1), axis=0)
            for one in classes
        ]

    def swap_costs(self, flat: Sequence[Pattern], cost_s: Floats, preemptible: np.ndarray) -> Floats:
        """For each pattern the seconds that preempting others for it would cost: 0 where it fits beside all that
        run, else the mean of `cost_s` (by running job) over the jobs that could be preempted on its nodes, by GPUs
        held."""
        held = self._held
        share = np.maximum(held.gpus, 1) * preemptible[held.owner]
        count = len(self._classes)
        weight = np.bincount(held.node_class, weights=share, minlength=count)
        total = np.bincount(held.node_class, weights=share * cost_s[held.owner], minlength=count)
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
