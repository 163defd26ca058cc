"""What is free before anyone is preempted, and so which options need others to leave."""

import numpy as np

from ..model.cluster import Cluster
from .deadline import Deadline
from .held import Held
from .model import Floats
from .patterns import Columns, NodeClass


class SpareRoom:
    """GPUs, cores and memory of each node that nobody holds."""

    def __init__(self, cluster: Cluster, classes: tuple[NodeClass, ...], held: Held) -> None:
        self._classes = classes
        self._held = held
        count, inf = len(cluster.nodes), float("inf")
        self.gpus = (
            np.array([node.gpus for node in cluster.nodes], dtype=np.int64) - held.taken_gpus
        )
        self.gpus -= np.bincount(held.node, weights=held.gpus, minlength=count).astype(np.int64)
        self.cpus = np.array(
            [inf if node.cpus is None else node.cpus for node in cluster.nodes], dtype=float
        )
        self.cpus -= held.taken_cpus + np.bincount(held.node, weights=held.cpus, minlength=count)
        memory = [inf if node.memory_gib is None else node.memory_gib for node in cluster.nodes]
        self.memory = np.array(memory, dtype=float)
        self.memory -= np.bincount(held.node, weights=held.memory_gib, minlength=count)
        self._known: dict[int, np.ndarray] = {}
        self._most = [int(self.gpus[list(one.nodes)].max()) for one in classes]
        self._free = [int(self.gpus[list(one.nodes)].sum()) for one in classes]

    def swap_costs(
        self, table: Columns, cost_s: Floats, preemptible: np.ndarray, deadline: Deadline
    ) -> Floats:
        """For each pattern the seconds that preempting others for it would cost: 0 where it fits
        beside all that run, else the mean of `cost_s` (by running job) over the jobs that could be
        preempted on its nodes, by GPUs held."""
        held = self._held
        share = np.maximum(held.gpus, 1) * preemptible[held.owner]
        count = len(self._classes)
        weight = np.bincount(held.node_class, weights=share, minlength=count).tolist()
        total = np.bincount(
            held.node_class, weights=share * cost_s[held.owner], minlength=count
        ).tolist()
        known: dict[object, float] = {}
        members: dict[int, list[int]] = {}
        found = []
        for key in table.key:
            if key not in known:
                deadline.check()
                mask, together, gpus, cpus, memory_gib = key
                if mask not in members:
                    members[mask] = [
                        kind.number for kind in self._classes if kind.bit & table.masks[mask]
                    ]
                on = members[mask]
                held_gpus = sum(weight[c] for c in on)
                fits = not held_gpus or self._fits(gpus, cpus, memory_gib, on, together=together)
                known[key] = 0.0 if fits else sum(total[c] for c in on) / held_gpus
            found.append(known[key])
        return np.array(found, dtype=float)

    def _fits(
        self, gpus: int, cpus: int, memory_gib: float, on: list[int], *, together: bool
    ) -> bool:
        if not together:
            return sum(self._free[c] for c in on) >= gpus
        return any(
            self._most[c] >= gpus and self._fits_class(gpus, cpus, memory_gib, c) for c in on
        )

    def _fits_class(self, gpus: int, cpus: int, memory_gib: float, c: int) -> bool:
        if c not in self._known:
            nodes = list(self._classes[c].nodes)
            self._known[c] = np.unique(
                np.stack(
                    [self.gpus[nodes].astype(float), self.cpus[nodes], self.memory[nodes]], axis=1
                ),
                axis=0,
            )
        state = self._known[c]
        return bool(
            np.any((state[:, 0] >= gpus) & (state[:, 1] >= cpus) & (state[:, 2] >= memory_gib))
        )
