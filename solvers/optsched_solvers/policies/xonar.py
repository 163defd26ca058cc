"""Xonar's co-run sets: jobs whose GPU-active times complement each other, within the memory of the
GPUs."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Annotated, Literal

from annotated_types import Ge

from optsched.driver import World
from optsched.plugins.options import PluginOptions, declared_options

from .parts.overlaps import Overlap, hosts, overlaps
from .parts.pair_sharing import PairPolicy, duty, kind_of

FULL = 1.0 + 1e-9
"""GPU-active shares of a step that add up to no more than the whole step."""


class XonarStyle(PairPolicy):
    """The job with the least GPU execution time first, less a share of what it has waited: on free
    GPUs, else where it interferes least, within the memory of the GPUs, less a reserve.

    GPU execution time is the remaining run time x the share of a step in which the GPU is active;
    ageing keeps the tail short, which is what the paper measures. A gang joins GPUs of one node
    that running jobs have to themselves, of one or of several, and free ones there: of all such
    choices that by which the sum of rates gains most, each gang being as slow as on the slowest of
    its GPUs, and none by which it loses. A job that does not fit is skipped.

    With `gangs=whole` a gang joins all GPUs of one running job, and pairs are chosen by the shares
    of their steps: on the GPUs of each job that runs alone starts the waiting one that fills them
    best, with the largest sum of at most 1, of equals the one with the least GPU execution time.
    """

    name = "xonar-style"
    title = "least GPU time first; else where jobs interfere least, within GPU memory"

    @declared_options
    class Options(PluginOptions):
        reserve_gib: Annotated[
            float, Ge(0), "Memory of each GPU, in GiB, that pairs leave free."
        ] = 0.0
        ageing: Annotated[
            float,
            Ge(0),
            "Seconds of GPU execution time by which a job of a second later comes after one that "
            "waits; 0 for none.",
        ] = 1.0

        gangs: Annotated[
            Literal["overlap", "whole"],
            "Whether a gang may share some of its GPUs, with several others, or all with one.",
        ] = "overlap"

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.overlap = options.gangs == "overlap"
        self.reserve_gib = options.reserve_gib
        self.ageing = options.ageing

    def rank(self, world: World, job_id: str) -> float:
        """Return the remaining run time in which the GPU is active, and what later submission adds
        to it."""
        active = duty(world, job_id)
        active_s = world.fastest_finish_s(job_id) * (1.0 if active is None else active)
        return active_s + self.ageing * world.job(job_id).submit_s

    def decide(self, world: World) -> None:
        """Start who waits, in order; then, where gangs stay whole, fill up those that run alone."""
        super().decide(world)
        if not self.overlap:
            self._fill(world)

    def _start(self, world: World, job_id: str) -> bool:
        """Start on free GPUs, else where gangs overlap with the largest gain."""
        if super()._start(world, job_id):
            return True
        found = max(self._overlaps(world, job_id), key=itemgetter(0), default=None)
        if found is None or found[0] <= 0.0:
            return False
        found[1].start(world, job_id)
        return True

    def _overlaps(self, world: World, job_id: str) -> Iterator[tuple[float, Overlap]]:
        for option in world.options(job_id)[:1] if self.overlap else ():
            for node, beside in hosts(world, job_id, option).items():
                able = {
                    other: gpus
                    for other, gpus in beside.items()
                    if self._leaves_reserve(world, job_id, other)
                }
                yield from overlaps(world, job_id, option, node, able)

    def _fill(self, world: World) -> None:
        for gpus in self._singles.sizes():
            waiting = self._waiting(world, gpus)
            for partner in self._singles.of(gpus):
                own = duty(world, partner)
                if not waiting:
                    break
                if own is None or own + min(waiting)[0] > FULL:
                    continue
                if (job_id := self._best(world, partner, own, waiting)) is not None:
                    self._queue.remove(job_id, kind_of(world, job_id))
                    waiting = self._waiting(world, gpus)

    def _waiting(self, world: World, gpus: int) -> list[tuple[float, str]]:
        """Return the GPU-active share of the first waiting jobs of each kind that may run on so
        many GPUs, in order."""
        return [
            (active, job_id)
            for job_id in self._queue.first()
            if (active := duty(world, job_id)) is not None
            and any(option.mode.gpus == gpus for option in world.options(job_id))
        ]

    def _best(
        self, world: World, partner: str, own: float, waiting: list[tuple[float, str]]
    ) -> str | None:
        """Start the waiting job that fills the partner's GPUs best, `waiting` being in order; which
        it was."""
        ranked = sorted(
            (
                (-world.job(job_id).priority, -active, i)
                for i, (active, job_id) in enumerate(waiting)
                if own + active <= FULL and self._leaves_reserve(world, job_id, partner)
            )
        )
        for _, _, i in ranked:
            job_id = waiting[i][1]
            if self._join(world, job_id, partner):
                return job_id
        return None

    def _leaves_reserve(self, world: World, job_id: str, partner: str) -> bool:
        if not self.reserve_gib:
            return True
        both_gib = world.profile(job_id).gpu_memory_gib + world.profile(partner).gpu_memory_gib
        nodes = [world.cluster.node[slot.node] for slot in world.placement(partner)]
        return all(
            node.gpu_memory_gib is None or both_gib + self.reserve_gib <= node.gpu_memory_gib
            for node in nodes
        )
