"""Gangs on one node after the other."""

from collections.abc import Iterable, Mapping

from optsched.driver.layout import Need
from optsched.driver.world import World
from optsched.model.instance import Placement, Slot


def fill(
    world: World, need: Need, names: Iterable[str], free: Mapping[str, int]
) -> Placement | None:
    """Return the placement that takes all that is `free` on one node after the other until the gang
    is complete; None where there is too little."""
    left = need.gpus
    taken: dict[str, int] = {}
    for name in names:
        if left:
            taken[name] = min(left, free[name])
            left -= taken[name]
    if left:
        return None
    return tuple(
        Slot(node=name, gpus=taken[name], cpus=taken[name] * need.cpus_per_gpu)
        for name in sorted(taken, key=world.cluster.node_order.__getitem__)
    )
