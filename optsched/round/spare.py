"""Free capacity before anyone is preempted, and so the options that need others to leave."""

from functools import cache

import numpy as np

from .deadline import Deadline
from .held import Held
from .model import Bools, Floats
from .patterns import Columns, Key, NodeClass


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
    runs = held.owner < held.running
    owner, node_class = held.owner[runs], held.node_class[runs]
    share = np.maximum(held.gpus[runs], 1) * preemptible[owner]
    weight = np.bincount(node_class, weights=share, minlength=len(classes)).tolist()
    total = np.bincount(node_class, weights=share * cost_s[owner], minlength=len(classes)).tolist()
    left = np.stack(
        [
            held.room_gpus - held.on_nodes(held.gpus),
            held.room_cpus - held.on_nodes(held.cpus),
            held.room_memory_gib - held.on_nodes(held.memory_gib),
        ],
        axis=1,
    )
    states = [_distinct(left[list(kind.nodes)]) for kind in classes]
    free = [int(left[list(kind.nodes), 0].sum()) for kind in classes]
    members = {mask: [kind.number for kind in classes if kind.bit & mask] for mask in table.masks}

    @cache
    def seconds(key: Key) -> float:
        deadline.check()
        mask, together, *need = key
        held_gpus = sum(weight[c] for c in members[mask])
        if together:
            fits = any(bool((states[c] >= need).all(axis=1).any()) for c in members[mask])
        else:
            fits = sum(free[c] for c in members[mask]) >= need[0]
        return 0.0 if fits or not held_gpus else sum(total[c] for c in members[mask]) / held_gpus

    return np.array([seconds(key) for key in table.key], dtype=float)


def _distinct(rows: Floats) -> Floats:
    """Return the rows of which no two are equal."""
    rows = rows[np.lexsort(rows.T)]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return rows[first]
