"""Where a job could run in a round: on one node, on several of one type, on a mix of types."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from heapq import merge
from typing import NamedTuple

from optsched.driver import Fit, Room, World, placement_on
from optsched.driver.mixed import may_mix, mixed_option
from optsched.frozen import record
from optsched.model import Job, Placement
from optsched.physics import gpu_type_rate, span
from optsched.physics.capacity import serves
from optsched.physics.modes import WIDEST_FIRST, Option

from ..parts.gang_placement import first_gpus

Offer = tuple[Option, Placement, float]
"""A way to run, its place, and what that costs."""
Offered = tuple[float, int, str]
"""What a GPU of a node costs, the place of the node among equal ones, its name."""


@record
class Prices:
    """The lowest and the highest price of a GPU of each type; types that nobody can use cost
    nothing."""

    low: dict[str | None, float]
    high: dict[str | None, float]
    known: dict[tuple[str | None, int, int], float] = field(default_factory=dict)

    def of(self, gpu_type: str | None, held: int, gpus: int) -> float:
        """Return the price of one GPU of a node that has `gpus`, of which `held` are given away:
        low (high / low)^(held / gpus)."""
        key = gpu_type, held, gpus
        if key not in self.known:
            low = self.low.get(gpu_type, 0.0)
            self.known[key] = low * (self.high[gpu_type] / low) ** (held / gpus) if low > 0 else 0.0
        return self.known[key]


class Utility(NamedTuple):
    """What it is worth that a job is done: its weight divided by the time from its submission to
    its completion, in hours; with `relative` times its run time at its fastest, so that a job that
    never waits is worth its weight."""

    relative: bool

    def of(self, world: World, job_id: str, seconds: float) -> float:
        """Return the utility of a job that is done in `seconds` from now."""
        job = world.job(job_id)
        hours = max(world.now_s - job.submit_s + seconds, 1e-6) / 3600.0
        if not self.relative:
            return job.weight / hours
        return (
            job.weight * world.believed_work_s(job_id) / world.fastest(job_id).rate / 3600.0 / hours
        )


def rate_on(world: World, job_id: str, option: Option, gpu_type: str | None) -> float:
    """Return the rate of an option were it on GPUs of another type; 0 where the job cannot use
    them."""
    job = world.job(job_id)
    if option.mode.gpu_type == gpu_type:
        return option.rate
    if job.modes:
        return 0.0
    return (
        option.rate
        * gpu_type_rate(job.profile, gpu_type)
        / gpu_type_rate(job.profile, option.mode.gpu_type)
    )


def best_rate(world: World, job_id: str) -> float:
    """Return the rate of the fastest option, or of the same on a faster type that has too few GPUs
    for the gang."""
    option = world.fastest(job_id)
    if not option.mode.gpus:
        return option.rate
    return max(rate_on(world, job_id, option, gpu_type) for gpu_type in world.cluster.gpu_types)


def prices(world: World, jobs: Iterable[str], eta: float, utility: Utility) -> Prices:
    """Return prices by what the jobs that want GPUs gain from each.

    The highest price of a type is the largest utility of a job for each of its GPUs if it ran there
    at once, the lowest the least of a job that ran there after all others, divided by 4 eta: an
    empty node is cheap enough for all, a full one too dear for any.
    """
    cluster = world.cluster
    wanted = [
        job_id
        for job_id in jobs
        if world.job(job_id).weight > 0 and world.fastest(job_id).mode.gpus
    ]
    best = {job_id: world.fastest(job_id) for job_id in wanted}
    queued_s = sum(
        option.mode.gpus * world.remaining_work_s(job_id) / option.rate
        for job_id, option in best.items()
    ) / max(1, cluster.total_gpus)
    low: dict[str | None, float] = {}
    high: dict[str | None, float] = {}
    for job_id, option in best.items():
        fewest = max(1, min(own.mode.gpus for own in world.options(job_id)))
        for gpu_type in cluster.gpu_types:
            speed = rate_on(world, job_id, option, gpu_type)
            if speed > 0:
                run_s = world.remaining_work_s(job_id) / speed
                soon = utility.of(world, job_id, run_s) / fewest
                late = utility.of(world, job_id, queued_s + run_s) / option.mode.gpus / (4.0 * eta)
                high[gpu_type] = max(high.get(gpu_type, 0.0), soon)
                low[gpu_type] = min(low.get(gpu_type, late), late)
    return Prices(low, high)


class Way(NamedTuple):
    """Options of a job that differ in nothing but GPU type and spread, the fastest first; `types`
    are the GPU types on which it may run so, the fastest first, together with others if it
    `mixes`; without `own` they only show cores and clock of gangs that no option of the job is."""

    options: tuple[Option, ...]
    types: tuple[str | None, ...]
    mixes: bool
    own: bool = True

    @property
    def gpus(self) -> int:
        return self.options[0].mode.gpus


def ways_of(world: World, job_id: str) -> tuple[Way, ...]:
    """Return the ways of a job, the fastest first."""
    job = world.job(job_id)
    groups: dict[object, list[Option]] = {}
    for option in world.options(job_id):
        mode = option.mode
        groups.setdefault((mode.size, mode.duration_s, tuple(mode.budgets.items())), []).append(
            option
        )
    return tuple(_way(world, job, tuple(alike)) for alike in groups.values())


def _way(world: World, job: Job, options: tuple[Option, ...]) -> Way:
    mixes = options[0].mode.gpus > 1 and may_mix(world, job.id, options[0])
    types = dict.fromkeys(option.mode.gpu_type for option in options if option.mode.gpus)
    if mixes and not job.modes:
        rates = {
            gpu_type: gpu_type_rate(job.profile, gpu_type) for gpu_type in world.cluster.gpu_types
        }
        types = dict.fromkeys(
            sorted((name for name in rates if rates[name] > 0), key=lambda name: -rates[name])
        )
    return Way(options, tuple(types), mixes)


class Shelves:
    """Nodes with free GPUs of a room by GPU type, the cheapest first; of equal ones those last
    whose GPUs running jobs would have to give up, then in the order of the cluster."""

    def __init__(
        self, world: World, room: Room, prices: Prices, given_up: Iterable[str] = ()
    ) -> None:
        self._cluster = world.cluster
        self._room = room
        self._prices = prices
        self._place = dict(world.cluster.node_order)
        for name in given_up:
            self._place[name] = len(self._place) + world.cluster.node_order[name]
        self.cost: dict[str, float] = {}
        self.by_type: dict[str | None, list[Offered]] = {
            gpu_type: [] for gpu_type in world.cluster.gpu_types
        }
        for name in room.nodes_with_gpus():
            self._put(name)

    def changed(self, placement: Placement) -> None:
        """Note that GPUs were taken or given back there."""
        for slot in placement:
            if slot.gpus:
                name = slot.node
                if name in self.cost:
                    shelf = self.by_type[self._cluster.node[name].gpu_type]
                    del shelf[bisect_left(shelf, (self.cost.pop(name), self._place[name], name))]
                if self._room.gpus_on(name):
                    self._put(name)

    def price(self, name: str) -> float:
        """Return what a GPU of a node costs now."""
        node = self._cluster.node[name]
        return self._prices.of(node.gpu_type, node.gpus - self._room.gpus_on(name), node.gpus)

    def _put(self, name: str) -> None:
        self.cost[name] = cost = self.price(name)
        insort(self.by_type[self._cluster.node[name].gpu_type], (cost, self._place[name], name))


def offers(world: World, room: Room, shelves: Shelves, job_id: str, way: Way) -> Iterator[Offer]:
    """Return places for a job in a room: for each type the cheapest node that holds the gang, and
    the cheapest GPUs of that type, of that and all faster types, and of one rack of these where the
    spread matters."""
    need = world.need(job_id, way.options[0])
    if not way.gpus:
        placement = room.place(need)
        if placement is not None:
            yield way.options[0], placement, 0.0
        return
    job, node = world.job(job_id), world.cluster.node
    mode = replace(way.options[0].mode, gpu_type=None)
    usable: dict[str, int] = {}

    def able(name: str) -> int:
        if name not in usable:
            usable[name] = (
                room.usable_of_any_type(need, name) if serves(node[name], job, mode) else 0
            )
        return usable[name]

    faster: list[list[Offered]] = []
    for gpu_type in way.types:
        own = shelves.by_type[gpu_type]
        choices = [next(({name: way.gpus} for _, _, name in own if able(name) >= way.gpus), None)]
        if way.gpus > 1:
            for pool in ([own], [*faster, own]) if way.mixes and faster and own else ([own],):
                if job.profile.locality is not None:
                    choices.append(_in_a_rack(world, way.gpus, pool, able))
                choices.append(_cheapest(way.gpus, merge(*pool), able))
        faster.append(own)
        for gpus_on in choices:
            offer = None if gpus_on is None else _offer(world, room, job_id, way, gpus_on)
            if offer is not None and gpus_on is not None:
                yield *offer, sum(shelves.cost[name] * gpus for name, gpus in gpus_on.items())


def _cheapest(
    gpus: int, pool: Iterable[Offered], able: Callable[[str], int]
) -> dict[str, int] | None:
    """Return the first GPUs of a pool of nodes that make a gang; None where there are too few."""
    return first_gpus(gpus, ((name, able(name)) for _, _, name in pool))


def _in_a_rack(
    world: World, gpus: int, pool: list[list[Offered]], able: Callable[[str], int]
) -> dict[str, int] | None:
    """Return the same within the rack that has most of them."""
    racks: dict[str, list[Offered]] = {}
    for offered in merge(*pool):
        rack = world.cluster.node[offered[2]].rack
        if rack is not None:
            racks.setdefault(rack, []).append(offered)
    free = {rack: sum(able(name) for _, _, name in inside) for rack, inside in racks.items()}
    widest = max(free, key=lambda rack: free[rack], default=None)
    return None if widest is None else _cheapest(gpus, racks[widest], able)


def _offer(world: World, room: Room, job_id: str, way: Way, gpus_on: dict[str, int]) -> Fit | None:
    """Return the option and placement of a gang on these nodes, if it may run there."""
    cluster = world.cluster
    types = {cluster.node[name].gpu_type for name in gpus_on}
    if len(types) > 1:
        option, placement = mixed_option(world, job_id, way.options[0], gpus_on)
    else:
        placement = placement_on(cluster, gpus_on, way.options[0].mode)
        wide = WIDEST_FIRST.index(span(cluster, placement))
        own = (
            alike
            for alike in way.options
            if way.own and alike.mode.gpu_type in types and WIDEST_FIRST.index(alike.spread) <= wide
        )
        match = next(own, None)
        if match is not None:
            option = match
        elif (
            way.mixes
        ):  # the type has too few GPUs for the gang, or a narrower spread than it could have
            option, placement = mixed_option(world, job_id, way.options[0], gpus_on)
        else:
            return None
    if option.rate <= 0 or not room.holds(world.need(job_id, option), placement):
        return None
    return option, placement


def with_gpus(way: Way, gpus: int) -> Way:
    """Return the way with another number of GPUs, for a job that has no option with as many on one
    type."""
    like = replace(way.options[0], mode=replace(way.options[0].mode, gpus=gpus))
    return way._replace(options=(like,), mixes=True, own=False)
