"""How much a place slows a job down, by linear regression on what was seen in the run."""

from collections import deque

import numpy as np

from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.model.job import Mode
from optsched.physics.contention import channel_gbps, channel_loads

FEATURES = (
    "constant",
    "uplink load",
    "uplink overload",
    "memory load",
    "memory overload",
    "further nodes",
    "further racks",
    "share of its nodes' GPUs held by others",
)
SINGULAR = 1e-9
"""Relative size of a singular value of the normal equations that is taken for 0: features that
never differed."""
LEAST_SEEN = 2 * len(FEATURES)
"""Observations before anything is predicted."""

Features = tuple[float, ...]


def features(
    world: World, job_id: str, mode: Mode, placement: Placement, *, holds: bool
) -> Features:
    """Return what describes a place for a job, with the job's own demands; `holds` says that it is
    there already."""
    job, cluster = world.job(job_id), world.cluster
    uplink = memory = 0.0
    for channel, gbps in channel_loads(cluster, job, mode, placement).items():
        kind, name = channel
        load = world.uplink_load_gbps(name) if kind == "uplink" else world.memory_load_gbps(name)
        share = (load + (0.0 if holds else gbps)) / channel_gbps(cluster, channel)
        if kind == "uplink":
            uplink = max(uplink, share)
        else:
            memory = max(memory, share)
    all_gpus = sum(cluster.node[slot.node].gpus for slot in placement)
    free = sum(world.free.gpus_on(slot.node) for slot in placement)
    others = all_gpus - free - (mode.gpus if holds else 0)
    racks = {cluster.node[slot.node].rack for slot in placement}
    return (
        1.0,
        uplink,
        max(0.0, uplink - 1.0),
        memory,
        max(0.0, memory - 1.0),
        max(0.0, len(placement) - 1.0),
        max(0.0, len(racks) - 1.0),
        others / all_gpus if all_gpus else 0.0,
    )


class InterferenceModel:
    """Least squares over the last observations; predicts 1 until there are enough."""

    def __init__(self, history: int) -> None:
        self._seen: deque[tuple[Features, float]] = deque()
        self._history = history
        self._squares = np.zeros((len(FEATURES), len(FEATURES)))
        self._products = np.zeros(len(FEATURES))
        self._weights: Features | None = None
        self.observations = 0

    def observe(self, place: Features, slowdown: float) -> None:
        """A job at such a place is slowed down so much."""
        self._seen.append((place, slowdown))
        self._count(place, slowdown, 1.0)
        if len(self._seen) > self._history:
            self._count(*self._seen.popleft(), -1.0)
        self.observations += 1

    def _count(self, place: Features, slowdown: float, times: float) -> None:
        """Sums of the normal equations: fitting then costs the same however much was seen."""
        row = np.array(place)
        self._squares += times * np.outer(row, row)
        self._products += times * slowdown * row

    def fit(self) -> None:
        """Fit anew; of equally good fits the one with the smallest weights."""
        if len(self._seen) < LEAST_SEEN:
            return
        found = np.linalg.lstsq(self._squares, self._products, rcond=SINGULAR)[0]
        self._weights = tuple(float(weight) for weight in found)

    def predict(self, place: Features) -> float:
        """The slow-down at such a place, at least 1."""
        if self._weights is None:
            return 1.0
        return max(
            1.0, sum(weight * value for weight, value in zip(self._weights, place, strict=True))
        )
