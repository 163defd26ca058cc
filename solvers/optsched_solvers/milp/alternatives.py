"""Every way in which one job can run: a mode on a concrete split of its gang over bins."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from optsched.driver.mixed import placement_on
from optsched.model.instance import Instance, Placement, Running
from optsched.model.job import Job, Mode
from optsched.objectives import Usage
from optsched.physics import Span, hold_to_save_s, may_preempt, placed_rate, rate
from optsched.physics.capacity import Capacity, Demand
from optsched.physics.catalogue import catalogue_of
from optsched.physics.modes import Option

from ..scheduling.lengths import continue_s, fresh_s
from .bins import Bin, partitions

MAX_SPLITS = 200
"""Ways of one job beyond which nodes are merged into coarser bins."""

Split = tuple[tuple[int, int], ...]
"""(bin, GPUs taken there); 0 GPUs for a CPU-only job; empty for a job that needs no node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One way to run what is left of a job, in one piece of `seconds` (set-up included) from
    `earliest_s` after now on. `option` is None where a running job continues. `preempted`: it is
    saved and leaves its nodes first."""

    option: Option | None
    mode: Mode
    split: Split
    seconds: float
    earliest_s: float
    preempted: bool = False


@dataclass(frozen=True)
class Ways:
    """All alternatives of all jobs, over the finest bins that keep each job within `MAX_SPLITS`.

    `exact` says that a schedule over the bins is one on real nodes.
    """

    instance: Instance
    bins: tuple[Bin, ...]
    exact: bool
    of: dict[str, tuple[Alternative, ...]]

    @cached_property
    def table(self) -> Capacity:
        """What there is of everything, each bin taken for one node."""
        nodes = tuple(each.as_node() for each in self.bins)
        cluster = replace(self.instance.cluster, nodes=nodes)
        return Capacity(cluster, self.instance.tenants)

    def demand(self, job: Job, mode: Mode, split: Split) -> Demand:
        """Everything `mode` holds on `split`."""
        on_bins = (self.table.on_node(job, mode, b, gpus) for b, gpus in split)
        return [*chain.from_iterable(on_bins), *self.table.together(job, mode)]

    def running_split(self, placement: Placement) -> Split:
        """The bins that hold a placement."""
        taken: dict[int, int] = {}
        where = {name: b for b, each in enumerate(self.bins) for name in each.nodes}
        for slot in placement:
            taken[where[slot.node]] = taken.get(where[slot.node], 0) + slot.gpus
        return tuple(sorted(taken.items()))

    def usage(self, term: Usage, job: Job, alternative: Alternative) -> float:
        """Return what an alternative and the checkpoint before it use, at their bins' lowest
        rate."""
        entry = self.instance.running_job.get(job.id)
        [unit_cost] = term.tariff(self.instance.cluster).rates  # of others it plans nothing

        def per_s(mode: Mode, name: str, gpus: int) -> float:
            return unit_cost * term.rate(job, mode, self.instance.cluster.node[name], gpus)

        def held(running: Running, seconds: float) -> float:
            slots = running.placement
            return seconds * sum(per_s(running.mode, slot.node, slot.gpus) for slot in slots)

        if alternative.option is None:
            assert entry is not None
            return held(entry, alternative.seconds)
        total = 0.0
        if alternative.preempted:
            assert entry is not None
            total += held(entry, hold_to_save_s(job))
        for b, gpus in alternative.split:
            names = self.bins[b].nodes
            cheapest = min(per_s(alternative.mode, name, gpus) for name in names)
            total += cheapest * alternative.seconds
        return total


def find_ways(instance: Instance) -> Ways:
    """All alternatives of all jobs, over bins as fine as `MAX_SPLITS` allows; a job may have
    none."""
    *finer, (coarsest, exact) = partitions(instance)
    for bins, exact_so in finer:
        ways = _over(instance, bins, exact_so, MAX_SPLITS)
        if ways is not None:
            return ways
    ways = _over(instance, coarsest, exact, math.inf)
    assert ways is not None
    return ways


def _over(instance: Instance, bins: tuple[Bin, ...], exact: bool, limit: float) -> Ways | None:
    """None where some job has more than `limit` splits."""
    ways = Ways(instance, bins, exact, {})
    for job in instance.jobs:
        found = _alternatives(ways, job, limit)
        if found is None:
            return None
        ways.of[job.id] = found
    return ways


def _alternatives(ways: Ways, job: Job, limit: float) -> tuple[Alternative, ...] | None:
    """None where there are more than `limit` splits."""
    instance = ways.instance
    entry = instance.running_job.get(job.id)
    found: list[Alternative] = []
    earliest_s = instance.release_s(job) - instance.now_s
    if entry is not None:
        found.append(
            Alternative(
                option=None,
                mode=entry.mode,
                split=ways.running_split(entry.placement),
                seconds=continue_s(instance, job),
                earliest_s=0.0,
            )
        )
        if not may_preempt(instance, entry):
            return tuple(found)
        earliest_s = hold_to_save_s(job)
    seen: set[tuple[int, Split]] = set()
    modes: list[Mode] = []
    for option in catalogue_of(instance).options(job):
        if not ways.table.allows(job, option.mode):
            continue
        if option.mode not in modes:
            modes.append(option.mode)
        for split in _splits(ways, job, option):
            if (modes.index(option.mode), split) in seen:
                continue
            seen.add((modes.index(option.mode), split))
            if len(seen) > limit:
                return None
            speed = _best_rate(ways, job, option, split)
            if speed > 0:
                found.append(
                    Alternative(
                        option=option,
                        mode=option.mode,
                        split=split,
                        seconds=fresh_s(instance, job, option.mode, speed),
                        earliest_s=earliest_s,
                        preempted=entry is not None,
                    )
                )
    return tuple(found)


def _splits(ways: Ways, job: Job, option: Option) -> Iterator[Split]:
    """Every way to spread a gang over bins as widely as the option allows."""
    mode = option.mode
    if not option.needs_node:
        yield ()
        return
    node = ways.instance.cluster.node
    most = {
        name: count
        for name, count in catalogue_of(ways.instance).room(job, mode).items()
        if not mode.gpus or node[name].gpu_type == mode.gpu_type
    }
    fitting = [tuple(name for name in each.nodes if name in most) for each in ways.bins]
    if mode.gpus == 0 or option.spread == "node":
        for b, names in enumerate(fitting):
            if any(most[name] >= max(mode.gpus, 1) for name in names):
                yield ((b, mode.gpus),)
        return
    if option.spread == "cluster":
        rooms = [(b, sum(most[name] for name in fits)) for b, fits in enumerate(fitting)]
        yield from _compositions(mode.gpus, rooms)
        return
    for rack in dict.fromkeys(
        each.rack for each in ways.instance.cluster.nodes if each.rack is not None
    ):
        rooms = [
            (b, sum(most[name] for name in fits if node[name].rack == rack))
            for b, fits in enumerate(fitting)
        ]
        yield from _compositions(mode.gpus, rooms)


def _compositions(count: int, rooms: list[tuple[int, int]]) -> Iterator[Split]:
    """Ways to take `count` in total from bins with this much room."""
    rooms = [(b, most) for b, most in rooms if most > 0]
    after = [sum(most for _, most in rooms[i:]) for i in range(len(rooms) + 1)]

    def extend(i: int, left: int, taken: Split) -> Iterator[Split]:
        if left == 0:
            yield taken
        elif left <= after[i]:
            b, most = rooms[i]
            for here in range(min(left, most), -1, -1):
                yield from extend(i + 1, left - here, (*taken, (b, here)) if here else taken)

    yield from extend(0, count, ())


def _best_rate(ways: Ways, job: Job, option: Option, split: Split) -> float:
    """Rate on single nodes, or the best that any placement of this split over merged ones could
    have."""
    cluster = ways.instance.cluster
    mode = option.mode
    bins = [ways.bins[b] for b, _ in split]
    if all(len(each.nodes) == 1 for each in bins):
        placement = placement_on(cluster, {ways.bins[b].nodes[0]: gpus for b, gpus in split}, mode)
        return placed_rate(ways.instance, job, mode, placement)
    spans: list[Span] = []
    if len(bins) == 1:
        spans.append("node")
    if option.spread != "node":
        racks = [{cluster.node[name].rack for name in each.nodes} - {None} for each in bins]
        if set.intersection(*racks):
            spans.append("rack")
        spans.append("cluster")
    return max(rate(job, mode, mode.gpu_type, span) for span in spans)
