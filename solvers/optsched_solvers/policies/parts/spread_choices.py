"""All places for a gang that differ in what it would share: one of each kind."""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations

from optsched.driver import World
from optsched.model import Placement, Slot
from optsched.physics.modes import Option

from .gang_placement import by_rack, fill, usable

MOST_RACKS = 10
"""Sets of racks are enumerated among so many: those whose uplinks have least traffic."""


def spread_choices(
    world: World, job_id: str, option: Option, among: Sequence[str] | None = None
) -> Iterator[Placement]:
    """Return places for a job under `option` that are free now: of each kind of node the fullest
    that holds the gang, each rack, and each set of racks that needs all its members. `among` are
    the only nodes to use, if given.

    Nodes of one kind have the same memory bandwidth, as much of it taken. Within racks the nodes
    with least of it taken go first, then the roomiest. Which nodes of a rack a gang uses makes no
    difference to its uplink, so of all placements none shares uplinks in a way that is not among
    these (with at most MOST_RACKS racks).
    """
    need, gpus = world.need(job_id, option), option.mode.gpus
    if not gpus:
        if among is not None:
            yield from _cpu_only(world, job_id, option, among)
        elif (placement := world.free.place(need)) is not None:
            yield placement
        return
    memory = world.profile(job_id).memory_gbps > 0
    free = usable(world, need, among)
    crowd: dict[str, float] = {}
    kinds: dict[tuple[float, float | None], str] = {}
    for name, count in free.items():
        gbps = world.cluster.node[name].memory_gbps if memory else None
        crowd[name] = world.memory_load_gbps(name) / gbps if gbps else 0.0
        kind = crowd[name], gbps
        if count >= gpus and (kind not in kinds or count < free[kinds[kind]]):
            kinds[kind] = name
    racks = () if option.spread == "node" else _rack_sets(world, option, free)
    for names in chain(([name] for name in kinds.values()), racks):
        names.sort(key=lambda name: (crowd[name], -free[name]))
        placement = fill(world, job_id, option, names, free)
        if placement is not None:
            yield placement


def _rack_sets(world: World, option: Option, free: dict[str, int]) -> Iterator[list[str]]:
    """Yield the usable nodes of each rack that holds the gang, and of each set of racks, and nodes
    without one, that needs all its members."""
    gpus = option.mode.gpus
    groups = by_rack(world, free)
    total = {group: sum(free[name] for name in names) for group, names in groups.items()}
    for group, names in groups.items():
        if group[0] == "rack" and total[group] >= gpus:
            yield names
    if option.spread != "cluster":
        return
    limits = world.cluster.rack_uplink_gbps

    def traffic(group: tuple[str, str]) -> float:
        kind, name = group
        if kind == "node" or name not in limits:
            return 0.0
        return world.uplink_load_gbps(name) / max(limits[name], 1e-9)

    quiet = sorted(groups, key=traffic)[:MOST_RACKS]
    for size in range(2, len(quiet) + 1):
        for chosen in combinations(quiet, size):
            held = [total[group] for group in chosen]
            if sum(held) >= gpus > sum(held) - min(held):
                yield [name for group in chosen for name in groups[group]]


def _cpu_only(
    world: World, job_id: str, option: Option, among: Sequence[str]
) -> Iterator[Placement]:
    need = world.need(job_id, option)
    if not need.needs_node:
        if world.free.holds(need, ()):
            yield ()
        return
    able = world.free.able(need)
    for name in among:
        placement = (Slot(node=name, cpus=option.mode.cpus),)
        if able >> world.cluster.node_order[name] & 1 and world.free.holds(need, placement):
            yield placement
            return
