"""Gangs that overlap in part: a waiting job on GPUs of running ones, and free ones, of a node."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from optsched.driver import World
from optsched.frozen import record
from optsched.physics import overlap_rate, sharing_rate
from optsched.physics.modes import Option

from .pair_sharing import fits_memory, slowdowns

MOST = 8
"""Of so many jobs on a node all sets are looked at."""


@record
class Overlap:
    """A waiting job under `option` on one node: on so many GPUs of each of `partners`, and else on
    free ones."""

    option: Option
    node: str
    partners: Mapping[str, int]

    def start(self, world: World, job_id: str) -> None:
        """Start the job so."""
        world.start_overlapping(job_id, self.option, self.node, self.partners)


def hosts(world: World, job_id: str, option: Option) -> dict[str, dict[str, int]]:
    """Return by node the running jobs beside which a job may run under `option`, the first started
    first, each with the GPUs that it shares with nobody."""
    found: dict[str, dict[str, int]] = {}
    for other in world.running if world.profile(job_id).sharing is not None else ():
        if slowdowns(world, job_id, other) is None:
            continue
        if world.running_mode(other).clock_mhz == option.mode.clock_mhz and fits_memory(
            world, job_id, other, option.mode
        ):
            for node, gpus in world.own_gpus(other).items():
                if gpus:
                    found.setdefault(node, {})[other] = gpus
    return found


def overlap(
    world: World, job_id: str, option: Option, node: str, partners: Iterable[tuple[str, int]]
) -> Overlap | None:
    """Return the job on the free GPUs of a node and on those of some jobs there, the first ones
    first; None where that may not be."""
    lacks = option.mode.gpus - world.free.gpus_on(node)
    taken: dict[str, int] = {}
    for other, gpus in partners:
        if lacks > 0:
            taken[other] = min(lacks, gpus)
            lacks -= gpus
    if lacks > 0 or not world.may_overlap(job_id, option, node, taken):
        return None
    return Overlap(option, node, taken)


def overlaps(
    world: World, job_id: str, option: Option, node: str, beside: Mapping[str, int]
) -> Iterator[tuple[float, Overlap]]:
    """Yield all choices of partners on a node, none of which is in vain, with what the sum of rates
    gains, each relative to that of the job alone. Of more than `MOST` jobs those are looked at that
    go best with it as a pair."""
    if len(beside) > MOST:
        own = world.profile(job_id)
        best = {
            other: sharing_rate(own, profile) + sharing_rate(profile, own)
            for other in beside
            for profile in [world.profile(other)]
        }
        chosen = sorted(beside, key=lambda other: -best[other])[:MOST]
        beside = {other: beside[other] for other in chosen}
    gpus, free = option.mode.gpus, world.free.gpus_on(node)
    for count in range(1, min(gpus, len(beside)) + 1):
        for some in combinations(beside.items(), count):
            held = sum(own for _, own in some)
            if not held - min(own for _, own in some) < gpus - free <= held:
                continue
            found = overlap(world, job_id, option, node, some)
            if found is not None:
                yield gain(world, job_id, found), found


def gain(world: World, job_id: str, found: Overlap) -> float:
    """Return what the sum of rates gains when a job starts so."""
    own = world.profile(job_id)
    gpus = found.option.mode.gpus
    shared = ((world.profile(other), count) for other, count in found.partners.items())
    total = overlap_rate(own, gpus, shared)
    for other, count in found.partners.items():
        mode, profile = world.running_mode(other), world.profile(other)
        before = [(world.profile(name), n) for name, n in mode.shared_gpus.items()]
        total += overlap_rate(profile, mode.gpus, [*before, (own, count)])
        total -= overlap_rate(profile, mode.gpus, before)
    return total
