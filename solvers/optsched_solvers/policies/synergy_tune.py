"""Synergy-TUNE: cores and host memory by sensitivity, never below the proportional share."""

from collections.abc import Iterable
from typing import Annotated, Literal

from optsched.driver import Fit, Room, World
from optsched.physics.modes import Option
from optsched.plugins.options import declared_options

from .parts.gpu_pool import GpuPool
from .parts.host_share import Host, HostWays, host_of, host_shares, host_ways
from .parts.placed_reallocation import PlacedReallocation, Placements, resized
from .parts.reallocation import held
from .parts.service_order import OrderOption, served_first
from .parts.starting import start_each

Chosen = dict[str, HostWays]
"""The jobs that run in the next round, in order, each with the ways on the GPUs it was given."""


@declared_options
class TuneOptions(OrderOption):
    """What may be set of this one."""

    share: Annotated[
        Literal["tuned", "proportional"],
        "As published, or all get their proportional share and no more.",
    ] = "tuned"


class SynergyTune(PlacedReallocation):
    """Every 300 s the jobs are taken in order, and whoever fits into the GPUs that are left runs
    for the round. A job gets the cores and the host memory with which it is fastest if there is a
    place with as much, else its proportional share of a node's; where even that is taken, jobs on
    the node with just enough GPUs that have more than theirs are cut back to it.

    Those cut back first are on the fewest nodes, then those with the most cores for each GPU, then
    with the most memory. A job's own place is preferred, then one that no other running job holds.
    Cores and memory are chosen from those measured: the share is the fastest within it. CPU-only
    jobs get what GPU jobs leave. To give a running job other cores or memory it is preempted and
    resumed, which costs what the profile says.

    Source: J. Mohan et al., Looking beyond GPUs for DNN scheduling on multi-tenant clusters,
    OSDI'22, section 4.2; simulator/resources/cluster.py and simulator/schedulers/ of the public
    simulator.
    """

    name = "synergy-tune"
    title = "cores and host memory by sensitivity, cut back to the share where others lack theirs"

    Options: type[OrderOption] = TuneOptions

    def __init__(self, options: OrderOption) -> None:
        super().__init__(options)
        self.order = options.order
        self.proportional = isinstance(options, TuneOptions) and options.share == "proportional"
        self._ways: dict[tuple[tuple[Option, ...], float], tuple[HostWays, ...]] = {}

    def place_jobs(self, world: World, movable: list[str], room: Room) -> dict[str, Fit]:
        """Return places of the GPU jobs of the round in order, then of whoever fits beside them."""
        chosen = self._chosen(world, movable)
        placements = Placements(
            world, room, [job_id for job_id in chosen if job_id in world.running]
        )
        self.place_chosen(placements, chosen)

        def give(job_id: str) -> bool:
            modes = [ways.fair for ways in self.ways(world, job_id)]
            modes.append(tuple(option for option in world.options(job_id) if not option.mode.gpus))
            # A running job that finds no place says nothing of those that wait.
            return any(placements.give(job_id, mode) for mode in modes) or job_id in world.running

        left = [job_id for job_id in movable if job_id not in placements.of]
        start_each(world, sorted(left, key=lambda job_id: job_id not in world.running), give)
        return placements.of

    def place_chosen(self, placements: Placements, chosen: Chosen) -> None:
        """Give each the best for it or its share, cutting back others for the latter."""
        for job_id, ways in chosen.items():
            if self.proportional or not placements.give(job_id, ways.best):
                self.give_share(placements, job_id, chosen)

    def give_share(self, placements: Placements, job_id: str, chosen: Chosen) -> None:
        """Place the job with its proportional share, if need be by cutting others back to
        theirs."""
        ways = chosen[job_id]
        fair, each = ways.fair, ways.host(ways.fair[0])
        if placements.give(job_id, fair):
            return
        before: dict[str, Fit] = {}
        for nodes in _under_used(placements, job_id, fair):
            for node, gpus in nodes:
                missing = Host(gpus * each.cores, gpus * each.gib)
                _cut_back(placements, node, missing, chosen, before)
            if placements.give(job_id, fair):
                return
        for other, (option, placement) in before.items():
            placements.take_back(other)
            placements.put(other, option, placement)

    def ways(self, world: World, job_id: str) -> tuple[HostWays, ...]:
        """Return the job's ways by GPU type and count, the fastest first."""
        key = world.options(job_id), world.profile(job_id).memory_gib_per_gpu
        if key not in self._ways:
            self._ways[key] = host_ways(*key, host_shares(world.cluster))
        return self._ways[key]

    def _chosen(self, world: World, movable: list[str]) -> Chosen:
        """Choose in order whoever fits into the GPUs that are left: on the type it runs on, or the
        fastest with as many."""
        pool = GpuPool(world)
        free = set(movable)
        counted: set[str | None] = set()
        for job_id in world.running:
            if job_id not in free and world.hold(job_id).partner not in counted:
                counted.add(job_id)
                pool.hold(job_id, *held(world, job_id))
        chosen: Chosen = {}
        for job_id in served_first(world, movable, self.order):
            if not any(count > 0 for count in pool.gpus.values()):
                break
            own = held(world, job_id) if job_id in world.running else None
            for ways in sorted(
                self.ways(world, job_id), key=lambda option: (option.gpu_type, option.gpus) != own
            ):
                if pool.take(job_id, ways.gpu_type, ways.gpus):
                    chosen[job_id] = ways
                    break
        return chosen


def _under_used(
    placements: Placements, job_id: str, fair: tuple[Option, ...]
) -> Iterable[list[tuple[str, int]]]:
    """Return nodes, with how many GPUs of the job each would hold: the one with the fewest free
    GPUs that are enough, then the others that have enough, then all with free GPUs, the fewest
    first."""
    world, room = placements.world, placements.room
    need = world.need(job_id, fair[0])
    able = room.able(need)
    names = [node.name for i, node in enumerate(world.cluster.nodes) if able >> i & 1]
    free = sorted(
        ((room.gpus_on(name), name) for name in names if room.gpus_on(name)),
        key=lambda entry: entry[0],
    )
    for gpus, name in free:
        if gpus >= need.gpus:
            yield [(name, need.gpus)]
    spread: list[tuple[str, int]] = []
    left = need.gpus
    for gpus, name in free:
        spread.append((name, min(gpus, left)))
        left -= spread[-1][1]
        if not left:
            yield spread
            yield [(name, gpus) for gpus, name in free]
            return


def _cut_back(
    placements: Placements, node: str, wanted: Host, chosen: Chosen, before: dict[str, Fit]
) -> None:
    """Cut placed jobs on a node back to their share until so many cores and so much memory, in all,
    are free; `before` notes what they had."""
    world, room = placements.world, placements.room
    peers: list[tuple[int, float, float, int, str]] = []
    for i, (job_id, (option, placement)) in enumerate(placements.of.items()):
        if any(slot.node == node for slot in placement):
            own = host_of(option, world.profile(job_id).memory_gib_per_gpu)
            peers.append((len(placement), -own.cores, -own.gib, i, job_id))
    for *_, job_id in sorted(peers):
        if wanted.within(Host(room.cpus_on(node), room.memory_gib_on(node))):
            return
        option, placement = placements.of[job_id]
        for fair in chosen[job_id].fair if job_id in chosen else ():
            less = resized(world, placement, fair)
            if less is not None and not chosen[job_id].host(option).within(
                chosen[job_id].host(fair)
            ):
                placements.take_back(job_id)
                before.setdefault(job_id, (option, placement))
                placements.put(job_id, fair, less)
                break
