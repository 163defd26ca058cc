"""Rubick: execution plans chosen together with GPUs."""

from typing import Annotated

from annotated_types import Ge, Lt

from optsched.driver import World
from optsched.plugins.options import declared_options

from .parts.demand_queue import arrival_key
from .parts.gang_counts import GangCounts
from .parts.gpu_pool import GpuPool
from .parts.reallocation import (
    ElasticReallocation,
    Grant,
    ReallocationOptions,
    held,
    is_left_alone,
    types_of,
)

STARVES_S = 200_000.0
"""A job that has waited so long goes first."""
SAME = 1e-9
"""Rates that differ by less are the same."""


@declared_options
class RubickOptions(ReallocationOptions):
    """What may be set of the policy."""

    overhead: Annotated[
        float, Ge(0), Lt(1), "Most of its run time that a job may lose to changes of its plan."
    ] = 0.03


class Share:
    """What a job is given: the count number `step` of `counts`, at least that number `least`, the
    first at which a plan is as fast as its user's, or where none is, the fastest."""

    def __init__(self, counts: GangCounts) -> None:
        steps = range(len(counts.options))
        enough = (k for k in steps if counts.rate(k) >= 1.0 - SAME)
        self.counts = counts
        self.least = self.step = next(enough, max(steps, key=counts.rate))

    @property
    def slope(self) -> float:
        """Return the rate for each GPU of the least that it is given."""
        return self.counts.rate(self.least) / max(1, self.counts.gpus(self.least))

    def best_step(self, room: int) -> tuple[float, int] | None:
        """Return the largest gain of rate for each GPU by a step that takes at most `room` more
        GPUs, and the count that it leads to; None where none gains."""
        counts, now = self.counts, self.step
        ways = [
            ((counts.rate(k) - counts.rate(now)) / (counts.gpus(k) - counts.gpus(now)), -k)
            for k in range(now + 1, len(counts.options))
            if counts.gpus(k) - counts.gpus(now) <= room
        ]
        gain, k = max(ways, default=(0.0, 0))
        return (gain, -k) if gain > SAME else None

    def grant(self) -> Grant:
        """Return the plans at the count, the fastest first, then those at each smaller one down to
        the least."""
        steps = range(self.step, self.least - 1, -1)
        return tuple(option for k in steps for option in self.counts.options[k])


class RubickStyle(ElasticReallocation):
    """At each interval every job that runs is left its minimum, the fewest GPUs on which one of its
    plans is as fast as the one that its user asked for; jobs that wait are given theirs in the
    order of what they then do for each GPU. What is left goes step by step to the job whose rate,
    relative to its user's plan, grows most for each GPU.

    A plan is a mode of the job, with GPUs, cores and a rate; the first listed mode is the user's,
    and at each number of GPUs the fastest plan that has a place is taken. Steps lead over numbers
    at which nothing is gained, so that a job may go from the offloading of its states on a few GPUs
    to a split over many. A job keeps what it has where one more change of its plan would make what
    saving, start-up and restore have cost it more than `overhead` of its run time. Jobs that have
    waited for more than two days go first.
    """

    name = "rubick-style"
    title = "execution plans with GPUs: each job as fast as asked for, then by marginal throughput"
    Options = RubickOptions

    def __init__(self, options: RubickOptions) -> None:
        super().__init__(options)
        self.overhead = options.overhead
        self._kept: dict[str, None] = {}

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Return the least for each, then step by step where the rate grows most."""
        grants, jobs = self.set_apart(world, movable, pool)
        self._kept = {job_id: None for job_id in jobs if not self._may_change(world, job_id)}
        for job_id in self._kept:
            grants[job_id] = world.options(job_id)
            pool.hold(job_id, *held(world, job_id))
        others = [job_id for job_id in jobs if job_id not in self._kept]
        running = [job_id for job_id in others if job_id in world.running]
        waiting = [job_id for job_id in others if job_id not in world.running]
        shares: dict[str, Share] = {}
        for job_id in (*running, *sorted(waiting, key=lambda job_id: _key(world, job_id))):
            for share in map(Share, types_of(world, job_id)):
                counts = share.counts
                if pool.take(job_id, counts.gpu_type, counts.gpus(share.least)):
                    shares[job_id] = share
                    break
        _grow(shares, pool)
        return grants | {job_id: share.grant() for job_id, share in shares.items()}

    def stays(self, world: World, job_id: str) -> bool:
        """Return whether a running job keeps its GPUs and its plan: those of its grant, if no
        faster plan on as many has a place."""
        if job_id in self._kept or is_left_alone(world, job_id):
            return True
        if not super().stays(world, job_id):
            return False
        hold, mode = world.hold(job_id), world.running_mode(job_id)
        options = [option for option in self._grants[job_id] if option.mode.gpus == mode.gpus]
        own = max((option.rate for option in options if option.mode == mode), default=0.0)
        room = world.free.copy()
        room.give(hold.need, hold.placement, finished=False)
        return not any(
            option.rate > own + SAME and room.place(world.need(job_id, option)) is not None
            for option in options
        )

    def _may_change(self, world: World, job_id: str) -> bool:
        """Return whether one more change of its plan is within what a running job may lose."""
        entry = world.entry(job_id)
        if job_id not in world.running or entry is None:
            return True
        job = world.job(job_id)
        change_s = job.profile.checkpoint_s + job.profile.startup_s + job.profile.restore_s
        ran_s = world.now_s - job.submit_s - world.waited_s(job_id)
        return (entry.preemptions + 1) * change_s <= self.overhead * ran_s


def _key(world: World, job_id: str) -> tuple[float, ...]:
    """Return the order of a waiting job: the most rate for each GPU of its least first."""
    starves = world.waited_s(job_id) > STARVES_S
    slope = max(share.slope for share in map(Share, types_of(world, job_id)))
    return arrival_key(world, job_id, float("-inf") if starves else -slope)


def _grow(shares: dict[str, Share], pool: GpuPool) -> None:
    """Give what is left to whoever gains most for each GPU, step by step."""
    while True:
        best: tuple[float, str, int] | None = None
        for job_id, share in shares.items():
            step = share.best_step(pool.room(job_id, share.counts.gpu_type))
            if step is not None and (best is None or step[0] > best[0] + SAME):
                best = step[0], job_id, step[1]
        if best is None:
            return
        _, job_id, k = best
        share = shares[job_id]
        more = share.counts.gpus(k) - share.counts.gpus(share.step)
        pool.take(job_id, share.counts.gpu_type, more)
        share.step = k
