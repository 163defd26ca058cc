"""Allocating the whole cluster anew at each interval, and bringing what runs to what was
allocated."""

import math
from collections.abc import Iterable
from typing import Annotated

from optsched.driver import Fit, World
from optsched.model import Running
from optsched.physics import TIME_TOLERANCE_S
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, PositiveDuration, declared_options

from .demand_queue import in_order
from .gang_counts import GangCounts, by_type
from .gang_placement import Emptiest, PlaceOption
from .gpu_pool import GpuPool
from .starting import start_what_fits

Grant = tuple[Option, ...]
"""Ways to carry out what a job was given, the one wanted most first."""


@declared_options
class IntervalOption(PluginOptions):
    """For policies that decide at intervals."""

    interval_s: Annotated[PositiveDuration, "Time from one allocation to the next."] = 60.0


@declared_options
class ReallocationOptions(PlaceOption, IntervalOption):
    """For policies that decide at intervals what jobs get, and place them either way."""


class Reallocation:
    """Base of the policies that decide at each interval what every job gets; `allocate` is the
    rule.

    A running job whose mode is the first of its grant stays where it is; the others that run are
    preempted. Waiting jobs with a grant are then started, small gangs first, as soon as there is a
    place; one that finds none for the first GPU count of its grant takes the next, once nobody is
    saving any more. Jobs that may not be preempted, and those with periodic checkpoints before the
    first of their stay, keep what they have. Between two allocations only jobs start that were
    given something at the last.
    """

    name = ""
    title = ""

    def __init__(self, options: IntervalOption) -> None:
        self.interval_s = options.interval_s
        self.emptiest = isinstance(options, PlaceOption) and options.place == "emptiest"
        self._next_s = -math.inf
        self._grants: dict[str, Grant] = {}

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Return what each job gets that is to run: a grant for each, of `movable` jobs only. Those
        are the jobs that wait or may be preempted, in order of priority and arrival; `pool` is what
        others do not keep."""
        raise NotImplementedError

    def decide(self, world: World) -> None:
        """Allocate where an interval has passed or nothing runs, then carry out what can be."""
        if world.now_s >= self._next_s - TIME_TOLERANCE_S or world.idle:
            self._next_s = world.now_s + self.interval_s
            self._reallocate(world)
        self._start(world)
        if not world.idle:
            world.wake_at(self._next_s)

    def _reallocate(self, world: World) -> None:
        pool = GpuPool(world)
        movable = []
        for job_id in in_order(world, (*world.waiting, *world.running)):
            if job_id in world.waiting or may_move(world, job_id):
                movable.append(job_id)
            else:
                pool.hold(job_id, *held(world, job_id))
        self._grants = self.allocate(world, movable, pool)
        for job_id in movable:
            if job_id in world.running and not self.stays(world, job_id):
                world.preempt(job_id)

    def stays(self, world: World, job_id: str) -> bool:
        """Return whether a running job keeps what it holds: the GPU type and count that its grant
        wants most."""
        grant = self._grants.get(job_id)
        if not grant:
            return False
        mode = grant[0].mode
        return held(world, job_id) == (mode.gpu_type if mode.gpus else None, mode.gpus)

    def _start(self, world: World) -> None:
        """Place the jobs that wait with a grant, small gangs first."""
        chosen = [job_id for job_id in self._grants if job_id in world.waiting]
        emptiest = Emptiest(world) if self.emptiest and chosen else None
        for job_id in sorted(chosen, key=lambda option: self._grants[option][0].mode.gpus):
            grant = self._grants[job_id]
            if world.saving:  # what is still being saved may soon be the place for the full count
                grant = tuple(option for option in grant if option.mode.gpus == grant[0].mode.gpus)
            fit = _place(world, job_id, grant, emptiest)
            if fit is not None:
                world.start(job_id, *fit)
                if emptiest is not None:
                    emptiest.take(fit[1])
        if world.idle:  # only what was not granted is within the budgets, say
            start_what_fits(world)


def may_move(world: World, job_id: str) -> bool:
    """Return whether a running job may be preempted and has something to show for its stay: with
    periodic checkpoints one of them, or jobs that lose their work would be moved for ever."""
    if not world.may_preempt(job_id):
        return False
    profile = world.profile(job_id)
    if profile.checkpoint_every_s is None:
        return True
    entry = world.entry(job_id)
    stay_s = profile.startup_s + profile.restore_s + profile.checkpoint_every_s
    return isinstance(entry, Running) and world.now_s - entry.started_s >= stay_s


def types_of(world: World, job_id: str) -> list[GangCounts]:
    """Return the job's counts by GPU type: the type it runs on first, then the fastest."""
    own = held(world, job_id)[0] if job_id in world.running else None
    waits = job_id in world.waiting
    types = by_type(world.options(job_id))
    return sorted(types, key=lambda counts: (waits or counts.gpu_type != own, -counts.rate(0)))


def held(world: World, job_id: str) -> tuple[str | None, int]:
    """Return GPU type and count of a running job."""
    placement = world.placement(job_id)
    gpus = sum(slot.gpus for slot in placement)
    return (world.cluster.node[placement[0].node].gpu_type if gpus else None), gpus


def _place(
    world: World, job_id: str, options: Iterable[Option], emptiest: Emptiest | None
) -> Fit | None:
    """Return the first of the options that has a place now."""
    for option in options:
        placement = None if emptiest is None else emptiest.place(job_id, option, world.free)
        placement = placement or world.free.place(world.need(job_id, option))
        if placement is not None:
            return option, placement
    return None


def is_left_alone(world: World, job_id: str) -> bool:
    """Return whether a running job is none of an elastic policy's business: it shares its GPUs, or
    has none."""
    if job_id not in world.running:
        return False
    hold = world.hold(job_id)
    return hold.partner is not None or not any(slot.gpus for slot in hold.placement)


class ElasticReallocation(Reallocation):
    """Base of the policies that give GPUs to gangs of any size and leave alone who shares them."""

    def stays(self, world: World, job_id: str) -> bool:
        """Return whether a running job keeps its GPU type and count, or is none of this policy's
        business."""
        return is_left_alone(world, job_id) or super().stays(world, job_id)

    def set_apart(
        self, world: World, movable: list[str], pool: GpuPool
    ) -> tuple[dict[str, Grant], list[str]]:
        """Return the grants of jobs that are left alone or use no GPUs, and the other jobs."""
        grants: dict[str, Grant] = {}
        jobs = []
        for job_id in movable:
            options = world.options(job_id)
            if is_left_alone(world, job_id):
                grants[job_id] = options
                pool.hold(job_id, *held(world, job_id))
            elif any(option.mode.gpus for option in options):
                jobs.append(job_id)
            else:
                grants[job_id] = options
        return grants, jobs


class SolvedReallocation(ElasticReallocation):
    """Base of those that solve a program in each round."""

    _rounds = _proven = 0

    def facts(self) -> dict[str, float | str]:
        """Return how many rounds there were, and how many were solved to the optimum."""
        return {"rounds": self._rounds, "proven_rounds": self._proven}

    def solved(self, proven: bool) -> None:
        """Count a round."""
        self._rounds += 1
        self._proven += proven
