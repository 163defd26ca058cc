"""RLTune's queue: one job is picked, and while it has no place nobody else starts."""

from bisect import insort
from collections.abc import Iterator
from math import inf

import numpy as np

from optsched.driver.demand import Demand
from optsched.driver.view import Fit
from optsched.driver.world import World
from optsched.physics.modes import Option

from ..backfill import reserve
from ..parts.demand_queue import DemandQueue, Entry, arrival_key
from ..parts.gang_placement import gang_on_nodes
from ..parts.starting import start_fitting
from .scorer import VISIBLE_JOBS, Floats, Present, features
from .ways import Assignment, Tiers, Way, best_ways, choose, on_nodes, shapes


class Moment:
    """The cluster between two starts: free GPUs by node, and which gangs have which ways."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes = [i for i, node in enumerate(world.cluster.nodes) if node.gpus]
        cluster, room = world.cluster.nodes, world.free
        self.free = {i: count for i in self.nodes if (count := room.gpus_on(cluster[i].name)) > 0}
        self._tiers: dict[Demand, tuple[int, int]] = {}

    def present(self) -> Present:
        """Return what all jobs see of the cluster."""
        nodes = self.world.cluster.nodes
        return Present(
            free_gpus=sum(self.free.values()),
            gpus=self.world.cluster.total_gpus,
            fragmented=sum(count < nodes[i].gpus for i, count in self.free.items()),
            nodes=len(self.nodes),
            per_node=max((nodes[i].gpus for i in self.nodes), default=1),
        )

    def tiers(self, job_id: str) -> tuple[int, int]:
        """Return the number of ways of each tier."""
        demand = self.world.demand(job_id)
        if demand not in self._tiers:
            pools = [tiers for _, _, tiers in self._pools(job_id)]
            first, second = (sum(len(tiers[k]) for tiers in pools) for k in (0, 1))
            self._tiers[demand] = first, second
        return self._tiers[demand]

    def place(self, job_id: str, next_gpus: int, first_only: bool) -> Fit | None:
        """Return where the job goes: the way of the least cost that can be had, with `first_only`
        the first of tier 1. Where only cores, memory or quotas are in the way of all ways, or
        nothing runs that could make room, as others do."""
        world = self.world
        first: list[Way] = []
        second: list[Way] = []
        option_of: dict[Assignment, Option] = {}
        for option, free, tiers in self._pools(job_id):
            for tier, tier_shapes in zip((first, second), tiers, strict=True):
                ways = [on_nodes(shape, free) for shape in tier_shapes]
                tier.extend(ways)
                option_of.update((way.assignment, option) for way in ways)
        if first or second:
            best = [way.assignment for way in best_ways(first, second)]
            if first_only:
                order = sorted(way.assignment for way in first)
            else:
                per_node = max(world.cluster.nodes[i].gpus for i in self.nodes)
                order = [best[w] for w in choose(self.free, best, per_node, next_gpus)]
            for assignment in order:
                placement = gang_on_nodes(
                    world, job_id, option_of[assignment], world.free, assignment
                )
                if placement is not None:
                    return option_of[assignment], placement
        elif not world.idle:
            return None
        return world.fit(job_id)

    def _pools(self, job_id: str) -> Iterator[tuple[Option, dict[int, list[int]], Tiers]]:
        """Yield for each GPU type and size of nodes the option for them, the nodes by free GPUs,
        and the shapes of both tiers."""
        world = self.world
        seen: dict[str | None, None] = {}
        gpus = requested_gpus(world, job_id)
        for option in world.options(job_id):
            if option.mode.gpus != gpus or option.mode.gpu_type in seen:
                continue
            seen[option.mode.gpu_type] = None
            able = world.need(job_id, option).nodes
            pools: dict[int, dict[int, list[int]]] = {}
            for i, count in self.free.items():
                node = world.cluster.nodes[i]
                if node.gpu_type == option.mode.gpu_type and able >> i & 1:
                    pools.setdefault(node.gpus, {}).setdefault(count, []).append(i)
            for per_node, free in pools.items():
                counts = tuple((count, len(free[count])) for count in sorted(free, reverse=True))
                yield option, free, shapes(counts, gpus, per_node)


def requested_gpus(world: World, job_id: str) -> int:
    """Return GPUs of the gang; of an elastic job those of its fastest option."""
    return world.options(job_id)[0].mode.gpus


class PickedFirst:
    """Base of the rules that pick one job of the queue and wait until it has its place.

    `scores` is the rule, the highest score is picked. Only jobs of the highest priority are looked
    at, of these the first 128 in order of arrival. Jobs that can run without GPUs, and those that
    fit nowhere, are no gangs: they start in order of arrival wherever they fit.
    """

    first_only = True
    """Whether the first way in order of the nodes is taken instead of the best one."""

    backfill = False
    """Whether visible gangs that will be done before the picked one has its place may start
    meanwhile (EASY)."""

    def __init__(self) -> None:
        self._gangs: list[Entry] = []
        self._others = DemandQueue()
        self._picked: str | None = None

    def scores(self, world: World, moment: Moment, visible: list[str]) -> Floats:
        """Return one score for each visible job."""
        raise NotImplementedError

    def decide(self, world: World) -> None:
        """Pick and start as long as what is picked has a place."""
        for job_id in world.take_arrived():
            options = world.options(job_id)
            if options and all(option.mode.gpus for option in options):
                insort(self._gangs, (arrival_key(world, job_id), job_id))
            else:
                self._others.push(arrival_key(world, job_id), job_id, world.demand(job_id))
        if world.take_released():
            self._others.unblock()
        while self._gangs:
            moment = Moment(world)
            visible = self._visible()
            if self._picked is None:
                self._picked = visible[int(np.argmax(self.scores(world, moment, visible)))]
            if not self._start(world, moment, visible):
                if self.backfill:
                    self._fill(world, visible)
                break
        self._others.serve(lambda job_id: start_fitting(world, job_id))

    def _visible(self) -> list[str]:
        highest = self._gangs[0][0][0]
        return [job_id for key, job_id in self._gangs[:VISIBLE_JOBS] if key[0] == highest]

    def _start(self, world: World, moment: Moment, visible: list[str]) -> bool:
        """Start the job that was picked; return whether it has a place."""
        picked = self._picked
        assert picked is not None
        following = visible[1] if len(visible) > 1 else visible[0]
        fit = moment.place(picked, requested_gpus(world, following), self.first_only)
        if fit is None:
            return False
        self._gangs.remove((arrival_key(world, picked), picked))
        self._picked = None
        world.start(picked, *fit)
        return True

    def _fill(self, world: World, visible: list[str]) -> None:
        """Start in order of arrival what is expected to end before the picked gang fits."""
        assert self._picked is not None
        reserved = reserve(world, self._picked)
        fits_s = inf if reserved is None else reserved.start_s
        for job_id in visible:
            if job_id == self._picked or world.now_s + world.fastest_finish_s(job_id) >= fits_s:
                continue
            fit = Moment(world).place(job_id, requested_gpus(world, self._picked), self.first_only)
            if fit is not None and world.now_s + world.expected_run_s(job_id, *fit) < fits_s:
                self._gangs.remove((arrival_key(world, job_id), job_id))
                world.start(job_id, *fit)


def rows_of(world: World, moment: Moment, visible: list[str]) -> Floats:
    """Return the features of the visible jobs."""
    waits_s = np.array([world.now_s - world.job(job_id).submit_s for job_id in visible])
    gpus = np.array([float(requested_gpus(world, job_id)) for job_id in visible])
    return features(moment.present(), waits_s, gpus, [moment.tiers(job_id) for job_id in visible])
