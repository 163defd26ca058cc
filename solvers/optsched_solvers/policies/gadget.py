"""GADGET: rings of workers by marginal utility, slot by slot."""

import math
from collections import defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Annotated, Literal

from optsched.driver import Fit, Room, World
from optsched.model import Elastic, Placement
from optsched.physics import Span, hold_to_save_s, placed_rate, setup_s, span, uplinks
from optsched.physics.modes import Option
from optsched.plugins.options import PositiveDuration, declared_options

from .parts.demand_queue import Key, arrival_key
from .parts.gang_counts import by_size
from .parts.placed_reallocation import PlacedReallocation, Placements, holds_place
from .parts.reallocation import IntervalOption, held
from .parts.ring import Choice, Ring, most_utility, ring_of
from .parts.starting import start_each

Sizes = dict[tuple[str | None, int], tuple[Option, ...]]
"""A job's options by GPU type and workers, the fastest first."""


class Gadget(PlacedReallocation):
    """In each slot, workers go step by step to the ring that gains most utility by them for each
    worker.

    The utility of a job is weight x log(1 + share of its work that is done), and its gain in a slot
    is what the model of ring-all-reduce expects it to do there: step = compute + 2 m (w - 1) / (w
    B) with the B of the slowest link, crowded by the others of the slot. No more is counted than
    the job has left to do. A ring that starts, moves or changes its size loses its set-up from the
    slot, up to half of it. A step may lead to any larger size; each ring is placed at once, where
    it is if it can stay, else best fit. Priority comes before gain. Rigid jobs have one size,
    CPU-only jobs take the cores that are left.

    Source: M. Yu et al., GADGET: Online resource optimization for scheduling ring-all-reduce
    learning jobs, INFOCOM 2022.
    """

    name = "gadget"
    title = "rings of workers by marginal utility in each slot, with the time of ring-all-reduce on the topology"  # noqa: E501

    @declared_options
    class Options(IntervalOption):
        interval_s: Annotated[PositiveDuration, "Length of a slot."] = 300.0
        choice: Annotated[
            Literal["greedy", "exact"],
            "Step by step, or the sizes with the largest sum of gains by GPU type, as if every "
            "ring found its best place, then places in order of gain.",
        ] = "greedy"
        utility: Annotated[
            Literal["log", "linear"], "The logarithm of the share done, or that share itself."
        ] = "log"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.exact = options.choice == "exact"
        self.linear = options.utility == "linear"
        self._rings: dict[str, Ring] = {}
        self._gbps: defaultdict[str, float] = defaultdict(float)
        self._started = 0
        self._ratio = 0.0

    def facts(self) -> dict[str, float]:
        """Return how the rates that the model expected of rings that started compare with what they
        were, in the mean."""
        return {
            "expected_over_actual_rate_mean": self._ratio / max(1, self._started),
            "rings_started": self._started,
        }

    def start(self, world: World, job_id: str, fit: Fit) -> None:
        """Start the ring, and note what was expected of it."""
        option, placement = fit
        if option.mode.gpus > 1:
            job = world.job(job_id)
            actual = placed_rate(world.instance, job, option.mode, placement)
            actual /= world.slowdown_on(job_id, option, placement)
            if actual > 0:
                self._started += 1
                crowding = self._crowding(world, job_id, placement, world.uplink_load_gbps)
                self._ratio += self.rate(world, job_id, option, placement, crowding) / actual
        super().start(world, job_id, fit)

    # --------------------------------------------------------------------------------------------
    # the slot

    def place_jobs(self, world: World, movable: list[str], room: Room) -> dict[str, Fit]:
        """Place rings by marginal utility, then whoever fits beside them."""
        free = set(movable)
        self._gbps = defaultdict(float)
        for job_id in world.running:
            if job_id not in free:
                self._load(world, job_id, world.placement(job_id), 1)
        sizes = {
            job_id: own_sizes for job_id in movable if (own_sizes := by_size(world.options(job_id)))
        }
        placements = Placements(world, room, ())
        if self.exact:
            self._place_exactly(world, placements, sizes)
        else:
            self._place_greedily(world, placements, sizes)
        left = [job_id for job_id in movable if job_id not in placements.of]
        left.sort(key=lambda job_id: job_id not in world.running)  # stable: else in order
        start_each(world, left, lambda job_id: placements.give(job_id, world.options(job_id)))
        self._rings = {job_id: self._rings[job_id] for job_id in movable if job_id in self._rings}
        return placements.of

    def _place_greedily(
        self, world: World, placements: Placements, sizes: dict[str, Sizes]
    ) -> None:
        heap: list[tuple[int, float, Key, str, int, tuple[str | None, int]]] = []
        at: dict[str, int] = dict.fromkeys(sizes, 0)
        gained: dict[str, float] = dict.fromkeys(sizes, 0.0)

        def push(job_id: str) -> None:
            had = at[job_id]
            kind = placements.of[job_id][0].mode.gpu_type if had else None
            for (gpu_type, workers), options in sizes[job_id].items():
                if workers > had and (not had or gpu_type == kind):
                    more = (self._hoped(world, job_id, options[0]) - gained[job_id]) / (
                        workers - had
                    )
                    if more > 0 or not had:
                        key = (-world.job(job_id).priority, -more, arrival_key(world, job_id))
                        heappush(heap, (*key, job_id, had, (gpu_type, workers)))

        for job_id in sizes:
            push(job_id)
        while heap:
            _, less, _, job_id, had, size = heappop(heap)
            if at[job_id] != had:
                continue  # it has grown otherwise
            need = world.need(job_id, sizes[job_id][size][0])
            if placements.room.pool_gpus[need.pool] < size[1] - had:
                continue
            own = placements.take_back(job_id) if had else None
            if own is not None:
                self._load(world, job_id, own[1], -1)
            if placements.give(job_id, sizes[job_id][size]):
                option, placement = placements.of[job_id]
                gain = self._gain(world, job_id, option, placement)
                more = (gain - gained[job_id]) / (size[1] - had)
                if (more > 0 or own is None) and (
                    not heap or more >= -heap[0][1] or more >= -less * 0.999
                ):
                    at[job_id], gained[job_id] = size[1], gain
                    self._load(world, job_id, placement, 1)
                    push(job_id)
                    continue
                placements.take_back(job_id)
                if (
                    more > 0 or own is None
                ):  # the place is worse than hoped for: once more in its turn
                    key = (
                        -world.job(job_id).priority,
                        -max(more, 1e-300),
                        arrival_key(world, job_id),
                    )
                    heappush(heap, (*key, job_id, had, size))
            if own is not None:
                placements.put(job_id, *own)
                self._load(world, job_id, own[1], 1)

    def _place_exactly(self, world: World, placements: Placements, sizes: dict[str, Sizes]) -> None:
        gpus: defaultdict[str | None, int] = defaultdict(int)
        for node in world.cluster.nodes:
            gpus[node.gpu_type] += placements.room.gpus_on(node.name)
        for priority in sorted({world.job(job_id).priority for job_id in sizes}, reverse=True):
            own = {
                job_id: own_sizes
                for job_id, own_sizes in sizes.items()
                if world.job(job_id).priority == priority
            }
            choices: list[list[Choice]] = [
                [
                    (kind, workers, self._hoped(world, job_id, options[0]))
                    for (kind, workers), options in own_sizes.items()
                ]
                for job_id, own_sizes in own.items()
            ]
            picked = []
            for job_id, choice, k in zip(own, choices, most_utility(choices, gpus), strict=True):
                if k is not None:
                    picked.append((-choice[k][2], job_id, choice[k]))
            for _, job_id, (kind, workers, _) in sorted(picked):
                if placements.give(job_id, own[job_id][kind, workers]):
                    gpus[kind] -= workers
                    self._load(world, job_id, placements.of[job_id][1], 1)

    # --------------------------------------------------------------------------------------------
    # the model

    def _hoped(self, world: World, job_id: str, option: Option) -> float:
        """Return the gain in a slot at the best place, without set-up for a job that runs with as
        many workers."""
        stays = job_id in world.running and held(world, job_id) == (
            option.mode.gpu_type,
            option.mode.gpus,
        )
        speed = self._rate_at(world, job_id, option, option.spread, 1.0)
        return self._utility(world, job_id, speed, stays)

    def _gain(self, world: World, job_id: str, option: Option, placement: Placement) -> float:
        """Return the gain in a slot at this place, beside the rings placed so far."""
        crowding = self._crowding(world, job_id, placement, self._gbps.__getitem__)
        stays = job_id in world.running and holds_place(world, job_id, (option, placement))
        speed = self.rate(world, job_id, option, placement, crowding)
        return self._utility(world, job_id, speed, stays)

    def rate(
        self, world: World, job_id: str, option: Option, placement: Placement, crowding: float
    ) -> float:
        """Return the reference work per second of the ring, by the model."""
        return self._rate_at(world, job_id, option, span(world.cluster, placement), crowding)

    def _rate_at(
        self, world: World, job_id: str, option: Option, spread: Span, crowding: float
    ) -> float:
        job, workers = world.job(job_id), option.mode.gpus
        if job_id not in self._rings:
            self._rings[job_id] = ring_of(job)
        ring = self._rings[job_id]
        reference = workers
        if isinstance(job.gpus, Elastic) and not job.profile.gpus and not option.mode.duration_s:
            reference = job.gpus.max  # no rate was measured at this count
        alone = ring.step_s(reference, option.spread)  # what the option's own rate has in it
        step_s = ring.step_s(workers, spread, crowding)
        return option.rate * alone / step_s if step_s > 0 else 0.0

    def _utility(self, world: World, job_id: str, speed: float, stays: bool) -> float:
        """Return what the job gains in a slot at this speed; one that starts anew loses its set-up
        from it, up to half of it."""
        whole = world.believed_work_s(job_id)
        left = world.remaining_work_s(job_id)
        if whole <= 0:
            return 0.0
        lost_s, job = 0.0, world.job(job_id)
        if not stays:
            lost_s = setup_s(job, world.entry(job_id) is not None)
            lost_s += hold_to_save_s(job) if job_id in world.running else 0.0
        time_s = self.interval_s - min(lost_s, self.interval_s / 2)
        done = max(0.0, 1.0 - left / whole)
        more = min(left, speed * time_s) / whole
        return job.weight * (more if self.linear else math.log1p(done + more) - math.log1p(done))

    def _crowding(
        self, world: World, job_id: str, placement: Placement, load_gbps: Callable[[str], float]
    ) -> float:
        """Return by how much the most crowded uplink of the ring would exceed its capacity,
        beside a load; at least 1."""
        crowding = 1.0
        if world.cluster.uplinks == "shared":
            for rack, gbps in uplinks(world.cluster, world.job(job_id), placement).items():
                limit = world.cluster.rack_uplink_gbps[rack]
                crowding = max(crowding, (load_gbps(rack) + gbps) / limit)
        return crowding

    def _load(self, world: World, job_id: str, placement: Placement, sign: int) -> None:
        for rack, gbps in uplinks(world.cluster, world.job(job_id), placement).items():
            self._gbps[rack] += sign * gbps
