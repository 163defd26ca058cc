"""Gangs on one node after the other."""

from collections.abc import Iterable, Mapping

from optsched.driver.layout import Need
from optsched.driver.mixed import placement_on
from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.physics.modes import Option


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
    left = option.mode.gpus
    taken: dict[str, int] = {}
    for name in names:
        if left:
            taken[name] = min(left, free[name])
            left -= taken[name]
    if left:
        return None
    placement = placement_on(world.cluster, taken, option.mode)
    return placement if world.free.holds(world.need(job_id, option), placement) else None
