"""What is free before anyone is preempted, and so which options need others to leave."""

import numpy as np

from .deadline import Deadline
from .held import Held
from .model import Bools, Floats
from .patterns import Columns, NodeClass


def swap_costs(
    classes: tuple[NodeClass, ...],
    held: Held,
    table: Columns,
    cost_s: Floats,
    preemptible: Bools,
    deadline: Deadline,
) -> Floats:
    """Return for each pattern the seconds that preempting others for it would cost: 0 where it fits
    beside all that run, else the mean of `cost_s` (by running job) over the jobs that could be
    preempted on its nodes, by GPUs held."""
    spare = _Spare(classes, held)
    runs = held.owner < held.running
    owner, node_class = held.owner[runs], held.node_class[runs]
    share = np.maximum(held.gpus[runs], 1) * preemptible[owner]
    weight = np.bincount(node_class, weights=share, minlength=len(classes)).tolist()
    total = np.bincount(node_class, weights=share * cost_s[owner], minlength=len(classes)).tolist()
    known: dict[object, float] = {}
    members: dict[int, list[int]] = {}
    for key in table.key:
        if key not in known:
            deadline.check()
            mask, together, gpus, cpus, memory_gib = key
            if mask not in members:
                members[mask] = [kind.number for kind in classes if kind.bit & table.masks[mask]]
            on = members[mask]
            held_gpus = sum(weight[c] for c in on)
            fits = not held_gpus or (
                spare.has_on_one(gpus, cpus, memory_gib, on)
                if together
                else sum(spare.free[c] for c in on) >= gpus
            )
            known[key] = 0.0 if fits else sum(total[c] for c in on) / held_gpus
    return np.array([known[key] for key in table.key], dtype=float)


class _Spare:
    """GPUs, cores and memory of nodes that nobody holds; `free` GPUs by class."""

    def __init__(self, classes: tuple[NodeClass, ...], held: Held) -> None:
        gpus = held.room_gpus - held.on_nodes(held.gpus)
        cpus = held.room_cpus - held.on_nodes(held.cpus)
        memory = held.room_memory_gib - held.on_nodes(held.memory_gib)
        self._left = np.stack([gpus, cpus, memory], axis=1)
        self._classes = classes
        self._known: dict[int, Floats] = {}
        self._most = [int(gpus[list(kind.nodes)].max()) for kind in classes]
        self.free = [int(gpus[list(kind.nodes)].sum()) for kind in classes]

    def has_on_one(self, gpus: int, cpus: int, memory_gib: float, on: list[int]) -> bool:
        """Return whether one node of these classes has so much."""
        need = np.array([gpus, cpus, memory_gib])
        return any(
            self._most[c] >= gpus and bool((self._states(c) >= need).all(axis=1).any()) for c in on
        )

    def _states(self, c: int) -> Floats:
        """Return what is left of the nodes of a class, each state once."""
        if c not in self._known:
            self._known[c] = np.unique(self._left[list(self._classes[c].nodes)], axis=0)
        return self._known[c]
