"""Placing gangs otherwise than by best fit: on the emptiest nodes, or node by node in an order."""

from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Literal, TypeVar

from optsched.driver import Need, Room, World, placement_on
from optsched.model import Placement
from optsched.physics import span
from optsched.physics.modes import WIDEST_FIRST, Option
from optsched.plugins.options import PluginOptions, declared_options


@declared_options
class PlaceOption(PluginOptions):
    """For policies that place gangs either way."""

    place: Annotated[
        Literal["packed", "emptiest"],
        "Gangs go on the fewest nodes, best fit (packed), or on the emptiest nodes first.",
    ] = "packed"


class Emptiest:
    """Free GPUs by node, those of the jobs in `leaving` included.

    A gang takes all free GPUs of the node that has most, then of the next, until it has enough; of
    equal nodes the first. Single GPUs thus break into empty nodes and gangs end up on more nodes
    than need be; Pollux's public simulator places so for Tiresias and Optimus.
    """

    def __init__(self, world: World, leaving: Container[str] = ()) -> None:
        self._world = world
        self._free = [node.gpus for node in world.cluster.nodes]
        counted: set[str] = set()
        for job_id in world.holders:
            hold = world.hold(job_id)
            if job_id not in leaving and hold.partner not in counted:
                counted.add(job_id)
                self.take(hold.placement)

    def take(self, placement: Placement) -> None:
        """Hold the GPUs of a placement."""
        for slot in placement:
            self._free[self._world.cluster.node_order[slot.node]] -= slot.gpus

    def place(self, job_id: str, option: Option, room: Room) -> Placement | None:
        """Return a place for the job's gang; None where `room` does not hold it or it would be
        spread too far."""
        world = self._world
        need = world.need(job_id, option)
        able = room.able(need)
        order = sorted(range(len(self._free)), key=lambda i: (-self._free[i], i))
        slots = first_gpus(need.gpus, ((i, self._free[i]) for i in order if able >> i & 1))
        return gang_on_nodes(world, job_id, option, room, slots.items()) if slots else None


Place = TypeVar("Place")


def first_gpus(gpus: int, free: Iterable[tuple[Place, int]]) -> dict[Place, int] | None:
    """Return all that is free in one place after the other until these are so many GPUs; None
    where there are too few."""
    taken: dict[Place, int] = {}
    for place, count in free:
        if not gpus:
            break
        if count > 0:
            taken[place] = min(gpus, count)
            gpus -= taken[place]
    return None if gpus else taken


def gang_on_nodes(
    world: World, job_id: str, option: Option, room: Room, gpus: Iterable[tuple[int, int]]
) -> Placement | None:
    """Return the placement with these GPUs of nodes, named by their position; None where `room`
    does not hold it or the gang would be spread too far."""
    need = world.need(job_id, option)
    gpus_on = {world.cluster.nodes[i].name: count for i, count in gpus}
    placement = placement_on(world.cluster, gpus_on, option.mode)
    spreads = {other.spread for other in world.options(job_id) if other.mode == option.mode}
    widest = min(map(WIDEST_FIRST.index, spreads), default=len(WIDEST_FIRST))
    too_far = WIDEST_FIRST.index(span(world.cluster, placement)) < widest
    return None if too_far or not room.holds(need, placement) else placement


def usable(world: World, need: Need, among: Iterable[str] | None = None) -> dict[str, int]:
    """Return how many free GPUs each node, or each of those `among`, has for a gang, where it has
    any."""
    names = world.cluster.node if among is None else among
    return {name: gpus for name in names if (gpus := world.free.usable(need, name)) > 0}


def by_rack(world: World, names: Iterable[str]) -> dict[tuple[str, str], list[str]]:
    """Return nodes by ("rack", its name); one without a rack is ("node", its name)."""
    racks: dict[tuple[str, str], list[str]] = {}
    for name in names:
        rack = world.cluster.node[name].rack
        racks.setdefault(("node", name) if rack is None else ("rack", rack), []).append(name)
    return racks


def fill(
    world: World, job_id: str, option: Option, names: Iterable[str], free: Mapping[str, int]
) -> Placement | None:
    """Return the placement that takes all that is `free` on one node after the other until the gang
    is complete; None where there is too little, or it may not start there."""
    taken = first_gpus(option.mode.gpus, ((name, free[name]) for name in names))
    if taken is None:
        return None
    placement = placement_on(world.cluster, taken, option.mode)
    return placement if world.free.holds(world.need(job_id, option), placement) else None
