"""RLTune's queue: one job is picked, and while it has no place nobody else starts."""

from bisect import insort
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from optsched.driver import Fit, World
from optsched.driver.demand import Demand
from optsched.physics.modes import Option

from ..backfill import fill, reserve
from ..parts.demand_queue import DemandQueue, Entry, arrival_key
from ..parts.gang_placement import gang_on_nodes
from ..parts.starting import start_fitting
from .scorer import VISIBLE_JOBS, Floats, Present, features
from .ways import Assignment, Tiers, Way, best_ways, choose, on_nodes, shapes

Pool = tuple[Option, dict[int, list[int]], Tiers]
"""The option for nodes of one GPU type and size, these nodes by free GPUs, and the shapes of both
tiers."""


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
        """Return where the job goes: of the fastest GPU type that has a way the one of the least
        cost, with `first_only` the first of tier 1. Where only cores, memory or quotas are in the
        way of all ways, or nothing runs that could make room, as others do."""
        blocked = False
        for _, pools in groupby(self._pools(job_id), key=lambda pool: pool[0].rate):
            ways = self._ways(list(pools), next_gpus, first_only)
            for option, assignment in ways:
                placement = gang_on_nodes(self.world, job_id, option, self.world.free, assignment)
                if placement is not None:
                    return option, placement
            blocked = blocked or bool(ways)
        return self.world.fit(job_id) if blocked or self.world.idle else None

    def _ways(
        self, pools: list[Pool], next_gpus: int, first_only: bool
    ) -> list[tuple[Option, Assignment]]:
        """Return the ways on nodes that are as fast, the best first."""
        first: list[Way] = []
        second: list[Way] = []
        option_of: dict[Assignment, Option] = {}
        for option, free, tiers in pools:
            for tier, tier_shapes in zip((first, second), tiers, strict=True):
                ways = [on_nodes(shape, free) for shape in tier_shapes]
                tier.extend(ways)
                option_of.update((way.assignment, option) for way in ways)
        if first_only:
            order = sorted(way.assignment for way in first)
        else:
            best = [way.assignment for way in best_ways(first, second)]
            per_node = max(self.world.cluster.nodes[i].gpus for i in self.nodes)
            order = [best[w] for w in choose(self.free, best, per_node, next_gpus)]
        return [(option_of[assignment], assignment) for assignment in order]

    def _pools(self, job_id: str) -> Iterator[Pool]:
        """Yield what each GPU type and size of nodes has for the job, the fastest type first."""
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
    fit nowhere, are no gangs: they start in order of arrival wherever they fit. With `backfill`
    visible gangs that do not delay the picked one start while it has no place (EASY).
    """

    first_only = True
    """Whether the first way in order of the nodes is taken instead of the best one."""

    def __init__(self, backfill: bool = False) -> None:
        self.backfill = backfill
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
                    self._fill(world, moment, visible)
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

    def _fill(self, world: World, moment: Moment, visible: list[str]) -> None:
        """Start the visible gangs, the highest score first, that do not delay the picked one."""
        assert self._picked is not None
        scores = self.scores(world, moment, visible)
        order = [visible[i] for i in np.argsort(-scores, kind="stable")]
        others = [job_id for job_id in order if job_id != self._picked]
        for job_id in fill(world, reserve(world, self._picked), others):
            self._gangs.remove((arrival_key(world, job_id), job_id))


def wfp(world: World, visible: list[str]) -> Floats:
    """Return (waiting time / run time)^3 x GPUs; RLTune's public code takes the waiting time from a
    start that has not been, here it is the time waited."""
    run_s = _finish_s(world, visible)
    waited_s = np.array([world.now_s - world.job(job_id).submit_s for job_id in visible])
    urgency: Floats = np.power(waited_s / run_s, 3) * _gpus(world, visible)
    return urgency


def f1(world: World, visible: list[str]) -> Floats:
    """Return -(log10(run time) x GPUs + 870 log10(submission)), as RLTune's public code has it."""
    run_s = _finish_s(world, visible)
    submit_s = np.array([world.job(job_id).submit_s - world.instance.now_s for job_id in visible])
    since = np.where(submit_s > 0, submit_s, 0.1)
    scores: Floats = -(np.log10(run_s) * _gpus(world, visible) + 870.0 * np.log10(since))
    return scores


def smallest(world: World, visible: list[str]) -> Floats:
    """Return -GPUs: the best fixed order that knows no run times where they do not depend on
    GPUs."""
    return -_gpus(world, visible)


RULES = {"wfp": wfp, "f1": f1, "smallest": smallest}
"""Rules that score in place of the network."""


def _finish_s(world: World, visible: list[str]) -> Floats:
    return np.array([world.fastest_finish_s(job_id) for job_id in visible])


def _gpus(world: World, visible: list[str]) -> Floats:
    return np.array([float(requested_gpus(world, job_id)) for job_id in visible])


def rows_of(world: World, moment: Moment, visible: list[str]) -> Floats:
    """Return the features of the visible jobs."""
    waits_s = np.array([world.now_s - world.job(job_id).submit_s for job_id in visible])
    gpus = _gpus(world, visible)
    return features(moment.present(), waits_s, gpus, [moment.tiers(job_id) for job_id in visible])
