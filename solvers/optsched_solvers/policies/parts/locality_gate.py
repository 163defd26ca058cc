"""How far a waiting job may be spread, by how long it has waited: one node at first, later one
rack, then anywhere."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from optsched.driver import Fit, Need, Room, World
from optsched.frozen import frozen
from optsched.model import Elastic, Job, Profile
from optsched.physics import TIME_TOLERANCE_S, Span, rate
from optsched.physics.catalogue import Catalogue
from optsched.physics.modes import Option

LEVELS: tuple[Span, ...] = ("node", "rack", "cluster")
"""The narrowest first."""


@frozen
class Patience:
    """How long a job insists on a narrow place: on one node until it has waited `rack_s`, on one
    rack until `cluster_s`. Infinite: for ever, as far as it fits there at all."""

    rack_s: float
    cluster_s: float

    def widest(self, wait_s: float) -> Span:
        """Return the widest level after such a wait."""
        if wait_s >= self.cluster_s - TIME_TOLERANCE_S:
            return "cluster"
        return "rack" if wait_s >= self.rack_s - TIME_TOLERANCE_S else "node"


class _Way(NamedTuple):
    """An option kept within `level`; `open` where its gang fits no narrower one even in the empty
    cluster."""

    option: Option
    need: Need
    level: Span
    open: bool


class LocalityGate:
    """Finds the fastest place that a job's patience allows now, and says when it allows more.

    A gang too large for one node (or one rack) even in the empty cluster need not wait for the next
    level. Of equally fast places the narrower is taken. What one job is refused, others of the same
    `World.demand`, profile and widest level are refused too, until something comes free.
    """

    def __init__(self) -> None:
        self._ways_of: dict[tuple[int, Profile, int | Elastic], tuple[_Way, ...]] = {}

    def find(
        self, world: World, job_id: str, patience: Patience, wait_s: float, room: Room | None = None
    ) -> Fit | None:
        """Return the fastest option allowed after such a wait that fits `room` (default: what is
        free now), and its place."""
        widest = LEVELS.index(patience.widest(wait_s))
        free = world.free if room is None else room
        for way in self._ways(world, job_id):
            if not way.open and LEVELS.index(way.level) > widest:
                continue
            if way.need.gpus and way.need.gpus > free.pool_gpus[way.need.pool]:
                continue
            placement = free.place(way.need)
            if placement is not None:
                return way.option, placement
        return None

    def opens_s(self, world: World, job_id: str, patience: Patience, wait_s: float) -> float:
        """Return when the job, if it goes on waiting, may use the next wider level; infinite where
        that never changes."""
        after_s = math.inf
        for way in self._ways(world, job_id):
            if way.open or way.level == "node":
                continue
            wanted_s = (
                patience.cluster_s
                if way.level == "cluster"
                else min(patience.rack_s, patience.cluster_s)
            )
            if wanted_s > wait_s + TIME_TOLERANCE_S:
                after_s = min(after_s, wanted_s - wait_s)
        return world.now_s + after_s

    def _ways(self, world: World, job_id: str) -> tuple[_Way, ...]:
        job = world.job(job_id)
        if job.modes:  # their rates depend on the job's own work
            return self._make(world, job)
        key = world.demand(job_id).number, job.profile, job.gpus  # what its rates depend on
        if key not in self._ways_of:
            self._ways_of[key] = self._make(world, job)
        return self._ways_of[key]

    def _make(self, world: World, job: Job) -> tuple[_Way, ...]:
        ranked: list[tuple[float, int, _Way]] = []
        options, catalogue = world.options(job.id), Catalogue.of(world.cluster)
        for option in options:
            narrower = [
                LEVELS.index(other.spread)
                for other in options
                if LEVELS.index(other.spread) < LEVELS.index(option.spread)
                and other.mode == option.mode
            ]
            need, mode = world.need(job.id, option), option.mode
            spreads = mode.gpus > 1 and option.needs_node
            able = [level for level in LEVELS if catalogue.fits_within(job, mode, level)]
            for level in LEVELS[max(narrower, default=-1) + 1 : LEVELS.index(option.spread) + 1]:
                if spreads and level not in able:
                    continue  # not even in the empty cluster
                alone = not spreads or level == able[0]
                way = _Way(option, kept_within(need, level), level, alone)
                ranked.append((-rate(job, mode, mode.gpu_type, level), LEVELS.index(level), way))
        ranked.sort(key=lambda entry: entry[:2])
        return tuple(way for _, _, way in ranked)


@lru_cache(maxsize=5000)
def kept_within(need: Need, level: Span) -> Need:
    """Return the same need spread over no more than `level`; one object for equal ones, by which a
    room remembers."""
    return need if need.spread == level else replace(need, spread=level)


@lru_cache(maxsize=5000)
def within(need: Need, nodes: int) -> Need:
    """Return the need on these nodes only, a mask; one object for equal ones, by which a room
    remembers."""
    return replace(need, nodes=need.nodes & nodes) if need.nodes & ~nodes else need
