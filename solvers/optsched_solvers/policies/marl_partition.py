"""One scheduler for each rack; a job goes to the one where it is predicted to be slowed down
least."""

from collections import deque
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from annotated_types import Ge

from optsched.driver import Fit, World
from optsched.model import Mode, Placement
from optsched.physics.contention import channel_gbps, channel_loads
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, PositiveDuration, declared_options

from .parts.list_scheduling import ListScheduling
from .parts.spread_choices import spread_choices

ALIKE = 1e-9
"""Predictions this close are the same."""


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
        """Observe that a job at such a place is slowed down so much."""
        self._seen.append((place, slowdown))
        self._count(place, slowdown, 1.0)
        if len(self._seen) > self._history:
            self._count(*self._seen.popleft(), -1.0)
        self.observations += 1

    def _count(self, place: Features, slowdown: float, times: float) -> None:
        """Update the sums of the normal equations: fitting then costs the same however much was
        seen."""
        row = np.array(place)
        self._squares += times * np.outer(row, row)
        self._products += times * slowdown * row

    def fit(self) -> None:
        """Fit anew; of equally good fits the one with the smallest weights."""
        if len(self._seen) < LEAST_SEEN:
            return
        weights = np.linalg.lstsq(self._squares, self._products, rcond=SINGULAR)[0]
        self._weights = tuple(float(weight) for weight in weights)

    def predict(self, place: Features) -> float:
        """Return the slow-down at such a place, at least 1."""
        if self._weights is None:
            return 1.0
        return max(
            1.0, sum(weight * value for weight, value in zip(self._weights, place, strict=True))
        )


class MarlPartition(ListScheduling):
    """First come first served, skipping; each rack has a scheduler of its own, nodes without a rack
    have one together.

    Each scheduler offers the best of all places in its part that differ in what they share; the job
    is forwarded to the one with the lowest predicted slow-down, of equal ones with the fewest
    nodes, then with the fewest GPUs left, so that others have room for wide gangs. A gang that fits
    into no part is placed over several by best fit. The prediction is a linear regression on what
    running jobs were seen to lose, fitted again at most every `interval` seconds on the last
    `history` observations.
    """

    name = "marl-partition"
    title = "one scheduler a rack, each job to that with the lowest slow-down predicted from what was seen"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        interval_s: Annotated[
            PositiveDuration, "Time after which the prediction is fitted again."
        ] = 300.0
        history: Annotated[int, Ge(1), "How many of the last observations it is fitted on."] = 2000

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._interval_s = options.interval_s
        self._model = InterferenceModel(options.history)
        self._parts: list[list[str]] = []
        self._known: dict[str, tuple[float, float]] = {}
        self._look_at_s = 0.0
        self._errors, self._checked = 0.0, 0
        self._forwarded = self._over_parts = 0

    def decide(self, world: World) -> None:
        """See how jobs run, then forward those that fit somewhere."""
        if not self._parts:
            self._parts = _parts(world)
            self._look_at_s = world.now_s
        if world.now_s >= self._look_at_s:
            self._look_at_s = world.now_s + self._interval_s
            self._look(world)
        super().decide(world)

    def find(self, world: World, job_id: str) -> Fit | None:
        """Return where the job goes, and keep by how much it is predicted to be slowed down."""
        fitted = world.fit(job_id)
        if fitted is None:
            return None
        option, placement, predicted = self._forward(world, job_id, fitted)
        self._known[job_id] = world.fastest(job_id).rate / option.rate, predicted
        return option, placement

    def facts(self) -> dict[str, float]:
        """Return observations, the mean absolute error of predictions when first checked, and where
        jobs went."""
        error = round(self._errors / self._checked, 6) if self._checked else 0.0
        return {
            "partitions": len(self._parts),
            "observations": self._model.observations,
            "prediction_error": error,
            "forwarded": self._forwarded,
            "over_partitions": self._over_parts,
        }

    def _look(self, world: World) -> None:
        """Observe all running jobs, and how good the predictions for those were that are seen
        first."""
        for job_id in list(self._known):
            if job_id not in world.running:
                del self._known[job_id]
                continue
            own, predicted = self._known[job_id]
            hold = world.hold(job_id)
            if hold.partner is not None or not hold.need.gpus:
                continue
            seen = max(1.0, world.fastest(job_id).rate / world.rate_now(job_id) / own)
            place = features(world, job_id, world.running_mode(job_id), hold.placement, holds=True)
            self._model.observe(place, seen)
            if predicted > 0.0:
                self._errors += abs(predicted - seen)
                self._checked += 1
                self._known[job_id] = own, 0.0
        self._model.fit()

    def _forward(self, world: World, job_id: str, fitted: Fit) -> tuple[Option, Placement, float]:
        """Return where the job goes, and by how much it is predicted to be slowed down there."""
        best: tuple[tuple[float, int, int], Option, Placement, float] | None = None
        fastest = world.fastest(job_id).rate
        for part in self._parts:
            left = sum(world.free.gpus_on(name) for name in part)
            for option, placement in _offers(world, job_id, part, left):
                predicted = self._model.predict(
                    features(world, job_id, option.mode, placement, holds=False)
                )
                times = predicted * fastest / option.rate
                key = round(times / ALIKE) * ALIKE, len(placement), left
                if best is None or key < best[0]:
                    best = key, option, placement, predicted
        if best is None:
            self._over_parts += 1
            option, placement = fitted
            return (
                option,
                placement,
                self._model.predict(features(world, job_id, option.mode, placement, holds=False)),
            )
        self._forwarded += 1
        return best[1], best[2], best[3]


def _offers(world: World, job_id: str, part: list[str], left: int) -> Iterator[Fit]:
    for option in world.options(job_id):
        if option.mode.gpus <= left:
            for placement in spread_choices(world, job_id, option, part):
                yield option, placement


def _parts(world: World) -> list[list[str]]:
    """Return the nodes of each rack, and those without one."""
    parts: dict[str | None, list[str]] = {}
    for node in world.cluster.nodes:
        parts.setdefault(node.rack, []).append(node.name)
    return list(parts.values())
