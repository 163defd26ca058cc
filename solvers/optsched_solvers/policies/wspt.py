"""Weighted shortest processing time."""

import math
from collections.abc import Hashable
from heapq import heappop, heappush

from optsched.driver import Fit, Reservation, World

from .parts.demand_queue import Key
from .parts.list_scheduling import ListScheduling

SAME = 1 + 1e-9
"""Ranks that differ by less than this factor are equal."""


class Wspt(ListScheduling):
    """Highest weight for each GPU-second first, without preemption; what does not fit is skipped.

    On one GPU this is the optimal rule of Smith (Naval Research Logistics Quarterly 3, 1956).
    """

    name = "wspt"
    title = "highest weight / (GPUs x run time) first, without preemption"

    def __init__(self) -> None:
        super().__init__()
        self._by_place = False

    def stand_for_rounds(self, kept: Reservation | None) -> None:
        """Decide nearly as rounds do: what a job is worth depends on where it finds a place, and a
        place is kept for a job that waits, if one is, until it starts."""
        self._by_place = True
        if kept is not None:
            self.keep_place(kept)

    def rank(self, world: World, job_id: str) -> float:
        """Return the GPU-seconds in the fastest option for each unit of weight."""
        return _for_weight(world, job_id, world.service_left_gpu_s(job_id))

    def group(self, world: World, job_id: str) -> Hashable:
        """Return what is the same for jobs of one demand, which must also lose as much on each GPU
        type where that counts."""
        demand = super().group(world, job_id)
        if not self._counts_place(world):
            return demand
        options = world.options(job_id)
        best: dict[str | None, float] = {}
        for option in options:
            best.setdefault(option.mode.gpu_type, option.rate / options[0].rate)
        return (demand, *best.values()) if len(best) > 1 else demand

    def serve(self, world: World) -> None:
        """Start every job that finds a place, in order; where the place counts, one that is slower
        there than elsewhere after those that are worth more where they find one."""
        if not self._counts_place(world):
            super().serve(world)
            return
        queue, slower = self._queue, list[tuple[Key, str, Hashable]]()
        nowhere = set[Hashable]()
        while (first := queue.best()) is not None or slower:
            if first is None or (slower and slower[0][0] < first[0]):
                key, job_id, group = heappop(slower)
                queue.look_again(group)
            else:
                (key, job_id), group = first, queue.group()
            demand = world.demand(job_id)
            fit = None if demand in nowhere else self.find(world, job_id)
            rank = math.inf if fit is None else self._rank_at(world, job_id, fit)
            if fit is not None and rank <= key[1] * SAME:
                world.start(job_id, *fit)
                queue.remove(job_id, group)
                continue
            queue.set_aside(group)
            if fit is None:
                nowhere.add(demand)
            else:
                heappush(slower, ((key[0], rank, *key[2:]), job_id, group))

    def _counts_place(self, world: World) -> bool:
        return self._by_place and len(world.cluster.gpu_types) > 1

    def _rank_at(self, world: World, job_id: str, fit: Fit) -> float:
        """Return the GPU-seconds at a place for each unit of weight."""
        if fit[0] is world.options(job_id)[0]:
            return -math.inf
        service = fit[0].mode.gpus * world.expected_run_s(job_id, *fit)
        return _for_weight(world, job_id, service)


def _for_weight(world: World, job_id: str, service: float) -> float:
    weight = world.job(job_id).weight
    return service / weight if weight > 0 else math.inf
