"""Optimus' allocation of workers by marginal gain."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from optsched.duration import parse_duration
from optsched.errors import InputError
from optsched.instance import Placement, Running
from optsched.modes import Option
from optsched.physics import TIME_TOLERANCE_S
from optsched.simulate.world import World

from .emptiest import Emptiest, wants_emptiest

INTERVAL = "60s"
"""As in Pollux's simulator; the paper's is ten minutes."""

Gain = tuple[float, int, str]
"""Seconds saved for each GPU, negated; place in order of arrival; job."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """GPU counts of a job on one GPU type, ascending, each with its options, the fastest first."""

    gpu_type: str | None
    options: tuple[tuple[Option, ...], ...]

    def gpus(self, step: int) -> int:
        return self.options[step][0].mode.gpus

    def rate(self, step: int) -> float:
        return self.options[step][0].rate


class Optimus:
    """At each interval every job gets its fewest GPUs, in order of arrival; what is left goes one step at a time to the
    job that saves the most seconds by it for each GPU.

    A step leads from one GPU count of an elastic job to its next and saves remaining work x (1 / rate - 1 / next
    rate), with the rates of the best spread. A job whose next step saves nothing takes no more. Rigid jobs have one
    count, so that they run in order of arrival, with what does not fit skipped. A running job whose count has changed
    is preempted and placed anew. Small gangs are placed first; one that finds no place for its count takes the
    largest smaller one that has a place. Of several GPU types a job goes to the one on which its fewest GPUs are
    fastest, of those with as many left; one that runs keeps its type while it can. Jobs that may not be preempted,
    and those with periodic checkpoints before the first of their stay, keep what they have.

    Between two allocations only jobs start that were given GPUs at the last.

    Options: `interval`, the time from one allocation to the next (default 60 s). `place`: `packed` (default) puts a
    gang on the fewest nodes, best fit; `emptiest` fills the emptiest nodes first.

    Source: Y. Peng et al., Optimus: An efficient dynamic resource scheduler for deep learning clusters, EuroSys 2018,
    section 4.1, as Pollux's public simulator has it for jobs without parameter servers.
    """

    name = "optimus"
    title = "elastic jobs get GPUs one by one where they save the most time, with preemption"

    def __init__(self, options: dict[str, str] | None = None) -> None:
        given = dict(options or {})
        self.interval_s = _interval(given.pop("interval", INTERVAL))
        self.emptiest = wants_emptiest(self.name, given.pop("place", "packed"))
        if given:
            raise InputError(f"policy optimus has no option {', '.join(given)}; it has interval and place")
        self._next_s = -math.inf
        self._given: dict[str, tuple[_Sizes, int]] = {}
        self._sizes: dict[int, tuple[tuple[Option, ...], tuple[_Sizes, ...]]] = {}

    def remaining_work_s(self, world: World, job_id: str) -> float:
        """Reference work by which a job's gain is measured."""
        return world.remaining_work_s(job_id)

    def decide(self, world: World) -> None:
        """Allocate where an interval has passed or nothing runs, then carry out what can be."""
        if world.now_s >= self._next_s - TIME_TOLERANCE_S or not (world.running or world.saving):
            self._next_s = world.now_s + self.interval_s
            self._given = self._allocate(world)
            for job_id in [one for one in world.running if not self._stays(world, one)]:
                world.preempt(job_id)
        self._start(world)
        if world.running or world.saving:
            world.wake_at(self._next_s)

    # ---------------------------------------------------------------------------------------- how many

    def _allocate(self, world: World) -> dict[str, tuple[_Sizes, int]]:
        """For each job that is to run its GPU counts and which of them it gets, in order of arrival."""
        room = _Left(world)
        movable = []
        for job_id in sorted((*world.waiting, *world.running), key=lambda one: _arrival(world, one)):
            if job_id in world.waiting or _may_move(world, job_id):
                movable.append(job_id)
            else:
                room.take(job_id, *_held(world, job_id))
        given: dict[str, tuple[_Sizes, int]] = {}
        for job_id in movable:
            for sizes in self._types(world, job_id):
                if room.take(job_id, sizes.gpu_type, sizes.gpus(0)):
                    given[job_id] = sizes, 0
                    break
        order = {job_id: i for i, job_id in enumerate(given)}
        heap = [gain for job_id in given if (gain := self._gain(world, job_id, order, *given[job_id])) is not None]
        heapify(heap)
        while heap:
            job_id = heappop(heap)[2]
            sizes, step = given[job_id]
            if room.take(job_id, sizes.gpu_type, sizes.gpus(step + 1) - sizes.gpus(step)):
                given[job_id] = sizes, step + 1
                gain = self._gain(world, job_id, order, sizes, step + 1)
                if gain is not None:
                    heappush(heap, gain)
        return given

    def _gain(self, world: World, job_id: str, order: dict[str, int], sizes: _Sizes, step: int) -> Gain | None:
        """What the next step is worth; None where there is none or it saves nothing."""
        if step + 1 == len(sizes.options):
            return None
        saved_s = self.remaining_work_s(world, job_id) * (1 / sizes.rate(step) - 1 / sizes.rate(step + 1))
        if saved_s <= 0:
            return None
        return -saved_s / (sizes.gpus(step + 1) - sizes.gpus(step)), order[job_id], job_id

    def _types(self, world: World, job_id: str) -> list[_Sizes]:
        """The job's counts by GPU type: the type it runs on first, then the fastest."""
        options = world.options(job_id)
        if id(options) not in self._sizes:
            self._sizes[id(options)] = options, _sizes(options)  # keeping the options keeps their id
        own = _held(world, job_id)[0] if job_id in world.running else None
        found = self._sizes[id(options)][1]
        return sorted(found, key=lambda sizes: (job_id not in world.running or sizes.gpu_type != own, -sizes.rate(0)))

    # ------------------------------------------------------------------------------------------- where

    def _stays(self, world: World, job_id: str) -> bool:
        """Whether a running job keeps what it holds."""
        if not _may_move(world, job_id):
            return True
        if job_id not in self._given:
            return False
        sizes, step = self._given[job_id]
        return _held(world, job_id) == (sizes.gpu_type, sizes.gpus(step))

    def _start(self, world: World) -> None:
        """Place the jobs that wait with GPUs given to them, small gangs first."""
        chosen = [job_id for job_id in self._given if job_id in world.waiting]
        emptiest = Emptiest(world) if self.emptiest and chosen else None
        for job_id in sorted(chosen, key=lambda one: self._given[one][0].gpus(self._given[one][1])):
            sizes, step = self._given[job_id]
            # What is still being saved may soon be the place for the full count.
            steps = (step,) if world.saving else range(step, -1, -1)
            found = _place(world, job_id, (option for one in steps for option in sizes.options[one]), emptiest)
            if found is not None:
                world.start(job_id, *found)
                if emptiest is not None:
                    emptiest.take(found[1])
        if not (world.running or world.saving):  # only a GPU type that was not chosen is within the budgets, say
            for job_id in sorted(world.waiting, key=lambda one: _arrival(world, one)):
                found = world.fit(job_id)
                if found is not None:
                    world.start(job_id, *found)


class _Left:
    """GPUs that are not given yet, by type and within the quotas."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gpus = Counter[str | None]()
        for node in world.cluster.nodes:
            self._gpus[node.gpu_type] += node.gpus
        self._quotas = dict(world.instance.gpu_cap)

    def take(self, job_id: str, gpu_type: str | None, gpus: int) -> bool:
        """Give GPUs to a job, if there are as many."""
        tenant = self._world.job(job_id).tenant
        quota = self._quotas.get(tenant, gpus) if tenant is not None else gpus
        if gpus > self._gpus[gpu_type] or gpus > quota:
            return False
        self._gpus[gpu_type] -= gpus
        if tenant in self._quotas:
            self._quotas[tenant] -= gpus
        return True


def _arrival(world: World, job_id: str) -> tuple[float, ...]:
    return (-world.job(job_id).priority, *world.order(job_id))


def _may_move(world: World, job_id: str) -> bool:
    """Whether a running job may be preempted and has something to show for its stay: with periodic checkpoints one of
    them, or jobs that lose their work would be resized for ever."""
    profile, entry = world.job(job_id).profile, world.entry(job_id)
    if not world.may_preempt(job_id) or not isinstance(entry, Running):
        return False
    stay_s = profile.startup_s + profile.restore_s + (profile.checkpoint_every_s or 0.0)
    return profile.checkpoint_every_s is None or world.now_s - entry.started_s >= stay_s


def _held(world: World, job_id: str) -> tuple[str | None, int]:
    """GPU type and count of a running job."""
    placement = world.hold(job_id).placement
    gpus = sum(slot.gpus for slot in placement)
    return (world.cluster.node[placement[0].node].gpu_type if gpus else None), gpus


def _sizes(options: tuple[Option, ...]) -> tuple[_Sizes, ...]:
    """Options by GPU type and count."""
    found: dict[str | None, dict[int, list[Option]]] = {}
    for option in options:
        gpu_type = option.mode.gpu_type if option.mode.gpus else None
        found.setdefault(gpu_type, {}).setdefault(option.mode.gpus, []).append(option)
    return tuple(
        _Sizes(gpu_type, tuple(tuple(by_count[count]) for count in sorted(by_count)))
        for gpu_type, by_count in found.items()
    )


def _place(
    world: World, job_id: str, options: Iterable[Option], emptiest: Emptiest | None
) -> tuple[Option, Placement] | None:
    """The first of the options that has a place now."""
    for option in options:
        placement = None if emptiest is None else emptiest.place(job_id, option, world.free)
        placement = placement or world.free.place(world.need(job_id, option))
        if placement is not None:
            return option, placement
    return None


def _interval(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if seconds < TIME_TOLERANCE_S:
        raise InputError(f"option interval of policy optimus: {text!r}; expected a length of time, as 60s or 10m")
    return seconds
