"""Waiting jobs on the GPUs of running ones: who has GPUs to itself, who may join whom, and in what
order that is tried."""

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from optsched.driver import World
from optsched.model import Mode, Sharing
from optsched.physics import beyond_gpu_memory, sharing_rate
from optsched.physics.modes import Option, with_less_gpu_memory

from .demand_queue import DemandQueue, arrival_key
from .starting import start_fitting

ALL_MEMORY = Mode(gpus=1)
"""What a job that does not choose takes."""

Kind = tuple[int, str | None, Sharing | None]
"""Jobs of one kind fit at the same instants, and go equally well with the same partners."""


class Join(NamedTuple):
    """A waiting job under `option` on the GPUs of a running one."""

    option: Option
    partner: str


class Singles:
    """Running jobs that have their GPUs to themselves, by their number of GPUs, the first started
    first.

    `latest` counts how often a job came to be one.
    """

    def __init__(self) -> None:
        self.latest = 0
        self._of_size: dict[int, dict[str, int]] = {}
        self._size: dict[str, int] = {}
        self._partner: dict[str, str] = {}
        self._looked = False

    def catch_up(self, world: World, released: list[str]) -> None:
        """Learn who runs at the first decision, and at each later one who has left."""
        if not self._looked:
            self._looked = True
            for job_id in world.running:
                partner = world.hold(job_id).partner
                if partner is None:
                    self.started(world, job_id)
                else:
                    self._partner[job_id] = partner
        for job_id in released:
            if job_id not in world.running:
                self._drop(job_id)
                partner = self._partner.pop(job_id, None)
                if (
                    partner is not None
                    and self._partner.pop(partner, None) == job_id
                    and partner in world.running
                ):
                    self.started(world, partner)

    def started(self, world: World, job_id: str) -> None:
        """Note that the job now has GPUs of its own."""
        if gpus := world.hold(job_id).need.gpus:
            self._size[job_id] = gpus
            self.latest += 1
            self._of_size.setdefault(gpus, {})[job_id] = self.latest

    def joined(self, job_id: str, partner: str) -> None:
        """Note that the job was started beside `partner`."""
        self._drop(partner)
        self._partner[job_id], self._partner[partner] = partner, job_id

    def _drop(self, job_id: str) -> None:
        if job_id in self._size:
            del self._of_size[self._size.pop(job_id)][job_id]

    def of(self, gpus: int) -> list[str]:
        """Return those with so many GPUs."""
        return list(self._of_size.get(gpus, ()))

    def newer(self, gpus: int, than: int) -> list[str]:
        """Return those that came to be one after `latest` was `than`, the last first."""
        members = self._of_size.get(gpus, {})
        return list(takewhile(lambda job_id: members[job_id] > than, reversed(members)))

    def has(self, job_id: str) -> bool:
        """Return whether the job is one of them."""
        return job_id in self._size

    def sizes(self) -> list[int]:
        """Return the numbers of GPUs that any of them has, ascending."""
        return sorted(gpus for gpus, members in self._of_size.items() if members)


def joins(world: World, job_id: str, singles: Singles) -> Iterator[Join]:
    """Return ways to start a waiting job on the GPUs of a running one: the fastest option first,
    then who started first, heedless of whether the GPUs have the memory for both."""
    tried = set()
    for option in world.options(job_id):
        for partner in singles.of(option.mode.gpus):
            if partner not in tried and world.may_share(job_id, option, partner, heedless=True):
                tried.add(partner)
                yield Join(option, partner)


def way_beside(
    world: World, job_id: str, partner: str, *, sub_batches: bool = False
) -> Option | None:
    """Return the fastest option by which a waiting job may start on the GPUs of a running one, with
    `sub_batches` also in less GPU memory."""
    gpus = world.hold(partner).need.gpus
    for option in world.options(job_id):
        if option.mode.gpus == gpus:
            for own in ways_in_memory(world, job_id, option, sub_batches=sub_batches):
                if world.may_share(job_id, own, partner):
                    return own
    return None


def ways_in_memory(
    world: World, job_id: str, option: Option, *, sub_batches: bool
) -> tuple[Option, ...]:
    """Return an option, and with `sub_batches` the same in less GPU memory, the fastest first."""
    return with_less_gpu_memory(world.job(job_id), option) if sub_batches else (option,)


def fits_memory(world: World, job_id: str, partner: str, mode: Mode = ALL_MEMORY) -> bool:
    """Return whether the GPUs of a running job have the memory for both, the waiting one in
    `mode`."""
    job, other = world.job(job_id), world.job(partner)
    beside, placement = world.running_mode(partner), world.placement(partner)
    return beyond_gpu_memory(world.cluster, job, mode, other, beside, placement) is None


def duty(world: World, job_id: str) -> float | None:
    """Return the share of a step in which the job keeps its GPUs busy; None where it was not
    measured."""
    sharing = world.profile(job_id).sharing
    return None if sharing is None else sharing.duty


def slowdowns(world: World, job_id: str, partner: str) -> tuple[float, float] | None:
    """Return how many times as long each of two jobs takes on the same GPUs, the first one first;
    None where that is not known."""
    own, other = world.profile(job_id), world.profile(partner)
    rate, other_rate = sharing_rate(own, other), sharing_rate(other, own)
    return (1 / rate, 1 / other_rate) if rate > 0 and other_rate > 0 else None


def kind_of(world: World, job_id: str) -> Kind:
    """Return the kind of a waiting job."""
    profile = world.profile(job_id)
    return world.demand(job_id).number, profile.name, profile.sharing


def heaviest_matching(weights: dict[tuple[str, str], float]) -> list[tuple[str, str]]:
    """Return pairs of the largest total weight, with nothing in two of them; the first of each in
    the order in which they come."""
    import networkx as nx

    if len(weights) <= 1:
        return list(weights)
    graph = nx.Graph()
    for (left, right), weight in weights.items():
        graph.add_edge((0, left), (1, right), weight=weight)
    mate: dict[str, str] = {}
    for first, second in nx.max_weight_matching(graph):
        (_, left), (_, right) = sorted((first, second))
        mate[left] = right
    return [
        (left, mate[left]) for left in dict.fromkeys(left for left, _ in weights) if left in mate
    ]


class PairPolicy:
    """Base of the policies that start waiting jobs on free GPUs and on those of jobs that run
    alone, kind by kind, in the order of a rank. With `sub_batches` those that join a running one
    may take less GPU memory."""

    sub_batches = False

    def __init__(self) -> None:
        self._queue = DemandQueue()
        self._singles = Singles()

    def rank(self, world: World, job_id: str) -> float:
        """Lower starts first, after priority and before arrival."""
        return 0.0

    def decide(self, world: World) -> None:
        """Start who waits, in order."""
        for job_id in world.take_arrived():
            key = arrival_key(world, job_id, self.rank(world, job_id))
            self._queue.push(key, job_id, kind_of(world, job_id))
        self._singles.catch_up(world, world.take_released())
        self._queue.unblock()
        self._queue.serve(lambda job_id: self._start(world, job_id))

    def _start(self, world: World, job_id: str) -> bool:
        """Start a waiting job on free GPUs; false where it does not fit."""
        return start_alone(world, job_id, self._singles)

    def _join(self, world: World, job_id: str, partner: str) -> bool:
        """Start a waiting job on the GPUs of a running one; false where it may not."""
        option = way_beside(world, job_id, partner, sub_batches=self.sub_batches)
        if option is None:
            return False
        world.start_sharing(job_id, option, partner)
        self._singles.joined(job_id, partner)
        return True


def start_alone(world: World, job_id: str, singles: Singles) -> bool:
    """Start a job on free GPUs, and note it among `singles`; false where it does not fit."""
    started = start_fitting(world, job_id)
    if started:
        singles.started(world, job_id)
    return started
