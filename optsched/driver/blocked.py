"""What is not there to be given away: held by jobs that are being saved, or claimed."""

from collections.abc import Iterable, Mapping
from math import inf

from ..model import Placement, Slot

Amounts = dict[str, list[int]]
"""GPUs and cores by node."""


def amounts(placements: Iterable[Placement], into: Amounts | None = None) -> Amounts:
    """Return what the placements take of each node, beside what is in `into` already."""
    taken: Amounts = {} if into is None else into
    for placement in placements:
        for slot in placement:
            there = taken.setdefault(slot.node, [0, 0])
            there[0] += slot.gpus
            there[1] += slot.cpus
    return taken


def beneath(saving: Amounts, claimed: Amounts) -> Amounts:
    """Return the more of both on each node: claims are mostly on what is being saved."""
    most = {name: [*there] for name, there in saving.items()}
    for name, (gpus, cpus) in claimed.items():
        there = most.setdefault(name, [0, 0])
        there[0], there[1] = max(there[0], gpus), max(there[1], cpus)
    return most


def blocked_places(taken: Amounts, order: Mapping[str, int]) -> tuple[Placement, ...]:
    """Return a placement for each node of `order` of which something is taken, in that order."""
    return tuple(
        (Slot(node=name, gpus=gpus, cpus=cpus),)
        for name, (gpus, cpus) in sorted(taken.items(), key=lambda item: order.get(item[0], inf))
        if name in order and (gpus or cpus)
    )
