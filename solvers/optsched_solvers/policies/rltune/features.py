"""The seven features of RLTune, as its public philly_env_base_v2.py computes them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEATURES = 7
VISIBLE_JOBS = 128
"""Jobs of the queue that the scorer sees."""
MOST_WAIT_S = 12 * 3600.0
NEARLY = 1.0 - 1e-5
HARDLY = 1e-5


@dataclass(frozen=True, slots=True)
class Present:
    """The cluster now: GPUs free and in all, nodes with some but not all GPUs free and in all, GPUs
    of the largest."""

    free_gpus: int
    gpus: int
    fragmented: int
    nodes: int
    per_node: int


def features(
    present: Present, waits_s: Floats, gpus: Floats, tiers: Sequence[tuple[int, int]]
) -> Floats:
    """One row a visible job: waiting time, GPUs, demand over supply, availability in the near
    future, fragmentation, ways to schedule, can be scheduled now. `tiers` has the number of ways of
    tiers 1 and 2 of each."""
    rows = np.empty((len(gpus), FEATURES))
    rows[:, 0] = np.minimum(waits_s / MOST_WAIT_S, NEARLY)
    rows[:, 1] = np.minimum(gpus / present.per_node, NEARLY)
    rows[:, 2] = np.minimum(gpus / max(present.free_gpus, 1e-5) / max(present.gpus, 1), NEARLY)
    others = gpus.sum() - gpus
    left = (present.free_gpus - gpus) - others
    rows[:, 3] = np.clip((left + present.gpus) / (2.0 * present.gpus + 1e-5), 0.0, NEARLY)
    rows[:, 4] = present.fragmented / max(present.nodes, 1e-5)
    first = np.array([one for one, _ in tiers])
    ways = np.minimum(first, 2) + np.array([min(two, 1) for _, two in tiers])
    rows[:, 5] = np.where(ways > 0, np.minimum(ways / 3.0, NEARLY), HARDLY)
    rows[:, 6] = np.where(first > 0, np.where(ways >= 2, NEARLY * 1.5, NEARLY), HARDLY)
    return rows
