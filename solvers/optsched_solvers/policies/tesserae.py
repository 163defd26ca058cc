"""Tesserae: packing and migration as matchings in bipartite graphs."""

from collections import defaultdict
from dataclasses import replace
from typing import Annotated, Literal

from optsched.driver import Fit, Room, World, placement_on
from optsched.model import Node, Placement
from optsched.plugins.options import PositiveDuration, declared_options

from .las import level
from .parts.pair_sharing import heaviest_matching, slowdowns
from .parts.placed_reallocation import PlacedReallocation, Placements, gpus_of, resized
from .parts.reallocation import IntervalOption
from .parts.service_order import served_first
from .parts.starting import start_each

MOST_MATCHED = 48
"""So many waiting jobs are matched at once; exact matching takes time cubic in them."""
LEAST_GAIN = 1e-6
"""A pair must do more than its jobs in turn."""


@declared_options
class TesseraeOptions(IntervalOption):
    """What may be set of the policy."""

    interval_s: Annotated[PositiveDuration, "Length of a round."] = 360.0
    packing: Annotated[
        Literal["matching", "none"], "Waiting jobs share GPUs by a matching, or not at all."
    ] = "matching"
    migration: Annotated[
        Literal["matching", "none"],
        "Nodes are named by a matching that moves the fewest jobs, or as they come.",
    ] = "matching"


class TesseraeStyle(PlacedReallocation):
    """At each interval the jobs with the least attained service (in the levels of `las`) are placed
    anew, packed, with no look at where they run; then two matchings of largest total weight.

    Packing: jobs that found no place join one that did and has as many GPUs; a pair weighs what
    both do together beyond one alone, rate + rate - 1, if that is positive and the memory holds
    both. Migration: the nodes of the new placement are named after the nodes that there are, of one
    kind and rack, such that the largest part of the jobs stays on the nodes where they run.
    """

    name = "tesserae-style"
    title = (
        "least attained service in rounds; pairs and the fewest moves by maximum-weight matching"
    )
    Options = TesseraeOptions
    moves_pairs = True

    def __init__(self, options: TesseraeOptions) -> None:
        super().__init__(options)
        self.packing = options.packing == "matching"
        self.migration = options.migration == "matching"

    def place_jobs(self, world: World, movable: list[str], room: Room) -> dict[str, Fit]:
        """Place by service, pack who is left, and name the nodes."""
        whole = room.copy()
        placements = Placements(world, room, ())
        placed = placements.of
        ordered = served_first(world, movable, "las", level)
        start_each(world, ordered, lambda job_id: placements.take(job_id, world.fit(job_id, room)))
        left = [job_id for job_id in ordered if job_id not in placed]
        joins = pairs(world, left[:MOST_MATCHED], placed) if self.packing else {}
        self.partners = {**joins, **{partner: job_id for job_id, partner in joins.items()}}
        if self.migration:
            placed = renamed(world, placed, joins, whole)
        for job_id, partner in joins.items():
            fit = beside(world, job_id, placed[partner][1])
            if fit is not None:
                placed[job_id] = fit
        return placed


def pairs(world: World, waiting: list[str], placed: dict[str, Fit]) -> dict[str, str]:
    """Return who of the waiting jobs joins which placed one: the matching that gains most."""
    weights = {}
    for job_id in waiting:
        for partner, (_, placement) in placed.items():
            slower = slowdowns(world, job_id, partner)
            if slower is None or beside(world, job_id, placement) is None:
                continue
            gained = 1 / slower[0] + 1 / slower[1] - 1.0
            if gained > LEAST_GAIN and _fit_together(world, job_id, partner):
                weights[job_id, partner] = gained
    return dict(heaviest_matching(weights))


def beside(world: World, job_id: str, placement: Placement) -> Fit | None:
    """Return the fastest way of a job to use the very GPUs of a placement."""
    for option in world.options(job_id):
        own = resized(world, placement, option) if option.mode.gpus else None
        able = world.free.able(world.need(job_id, option))
        if own and all(able >> world.cluster.node_order[slot.node] & 1 for slot in own):
            return option, own
    return None


def _fit_together(world: World, job_id: str, partner: str) -> bool:
    """Return whether the memory of any GPUs of the cluster holds both."""
    both = [world.profile(name).gpu_memory_gib for name in (job_id, partner)]
    return any(
        node.gpus and (node.gpu_memory_gib is None or sum(both) <= node.gpu_memory_gib)
        for node in world.cluster.nodes
    )


def renamed(
    world: World, placed: dict[str, Fit], joins: dict[str, str], whole: Room
) -> dict[str, Fit]:
    """Return the placements with the nodes that they use exchanged for others of the same kind and
    rack that nobody else uses, such that the largest part of the jobs, with those that join them,
    stays where it runs; as they are where the exchange is not possible. `whole` is what was free
    for them."""
    kinds: defaultdict[Node, list[str]] = defaultdict(list)
    for node in world.cluster.nodes:
        if node.gpus and whole.gpus_on(node.name) == node.gpus:
            kinds[replace(node, name="")].append(node.name)
    kind_of = {name: kind for kind, names in kinds.items() for name in names}
    stays: defaultdict[tuple[str, str], float] = defaultdict(float)
    for job_id in (*placed, *joins):
        placement = placed[joins.get(job_id, job_id)][1]
        held = gpus_of(world.placement(job_id)) if job_id in world.running else {}
        for slot in placement:
            for name, gpus in held.items():
                if gpus == slot.gpus and kind_of.get(slot.node, 0) == kind_of.get(name, 1):
                    stays[slot.node, name] += 1 / len(placement)
    to = dict(heaviest_matching(dict(stays)))
    for names in kinds.values():
        taken = {to[name] for name in names if name in to}
        spare = [name for name in names if name not in taken]
        for name in names:
            if name not in to:
                to[name] = name if name in spare else next(iter(spare))
                spare.remove(to[name])
    room, exchanged = whole.copy(), dict[str, Fit]()
    for job_id, (option, placement) in placed.items():
        gpus_on = {to.get(slot.node, slot.node): slot.gpus for slot in placement}
        new = placement_on(world.cluster, gpus_on, option.mode) if gpus_on else placement
        need = world.need(job_id, option)
        if not room.holds(need, new):
            return placed
        room.take(need, new)
        exchanged[job_id] = option, new
    return exchanged
