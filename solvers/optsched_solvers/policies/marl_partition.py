"""One scheduler for each rack; a job goes to the one where it is predicted to be slowed down
least."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from optsched.driver.view import Fit
from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, PositiveDuration

from .parts.interference_model import InterferenceModel, features
from .parts.list_scheduling import ListScheduling
from .parts.spread_choices import spread_choices
from .sources import SOURCES

ALIKE = 1e-9
"""Predictions this close are the same."""


class MarlPartition(ListScheduling):
    """First come first served, skipping; each rack has a scheduler of its own, nodes without a rack
    have one together.

    Each scheduler offers the best of all places in its part that differ in what they share; the job
    is forwarded to the one with the lowest predicted slow-down, of equal ones with the fewest
    nodes, then with the most GPUs left. A gang that fits into no part is placed over several by
    best fit. The prediction is a linear regression on what running jobs were seen to lose, fitted
    again at most every `interval` seconds on the last `history` observations.
    """

    name = "marl-partition"
    title = "one scheduler a rack, each job to that with the lowest slow-down predicted from what was seen"  # noqa: E501
    source = SOURCES[name]

    @dataclass(frozen=True, kw_only=True)
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
        """Observations, the mean absolute error of predictions when first checked, and where jobs
        went."""
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
                key = round(times / ALIKE) * ALIKE, len(placement), -left
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
    """The nodes of each rack, and those without one."""
    parts: dict[str | None, list[str]] = {}
    for node in world.cluster.nodes:
        parts.setdefault(node.rack, []).append(node.name)
    return list(parts.values())
