"""Gangs on the emptiest nodes, as an alternative to best fit."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from optsched.driver.mixed import placement_on
from optsched.driver.placement import Room
from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.physics import span
from optsched.physics.modes import WIDEST_FIRST, Option
from optsched.plugins.options import PluginOptions


@dataclass(frozen=True, kw_only=True)
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
        for job_id in (*world.running, *world.saving):
            hold = world.hold(job_id)
            if job_id not in leaving and hold.partner not in counted:
                counted.add(job_id)
                self.take(hold.placement)

    def take(self, placement: Placement) -> None:
        """Hold the GPUs of a placement."""
        for slot in placement:
            self._free[self._world.cluster.node_order[slot.node]] -= slot.gpus

    def place(self, job_id: str, option: Option, room: Room) -> Placement | None:
        """A place for the job's gang; None where `room` does not hold it or it would be spread too
        far."""
        world = self._world
        need = world.need(job_id, option)
        left, slots = need.gpus, []
        for i in sorted(range(len(self._free)), key=lambda i: (-self._free[i], i)):
            gpus = min(left, self._free[i])
            if gpus > 0 and need.nodes >> i & 1:
                slots.append((i, gpus))
                left -= gpus
        if left or not slots:
            return None
        return gang_on_nodes(world, job_id, option, room, slots)


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
