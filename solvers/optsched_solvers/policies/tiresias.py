"""Tiresias' discretised least attained service."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from annotated_types import Ge, MinLen

from optsched.driver import Fit, Outlook, World
from optsched.physics import TIME_TOLERANCE_S
from optsched.plugins.options import PositiveNumber, declared_options

from .parts.gang_placement import Emptiest, PlaceOption
from .parts.starting import is_free, wake

SERVICE_TOLERANCE_GPU_S = 1e-3
"""Service this close below a threshold has reached it."""
EARLY_S = 1e-6
"""A threshold is looked at so long before it is reached: rounding must not put it past the round
that it falls on."""


@dataclass(slots=True)
class _Standing:
    """A job's queue and when it joined it; `forgiven_gpu_s` is the service up to its last
    promotion, `waited_s` how long it has waited since then with service behind it, not counting the
    wait since `waits_since_s`."""

    queue: int
    joined: int
    forgiven_gpu_s: float = 0.0
    waited_s: float = 0.0
    waits_since_s: float = math.inf


class Tiresias:
    """Queues by attained GPU service, first come first served within each, with preemption; no run
    time is known.

    A job begins in the first queue and goes to the end of the next once the service it has attained
    reaches that queue's threshold. Jobs are served queue by queue, within a queue in the order in
    which they joined it. One that does not fit is skipped. A running job gives way to a waiting one
    that comes before it, in the same queue too, the last ones first, and only where this makes
    room; whoever can stay in place beside it does.

    Waiting is compared with all that a job ran, not with its last stay: stays grow so, and jobs
    that lose work when they are preempted do not take turns for ever.

    Source: J. Gu et al., Tiresias: A GPU cluster manager for distributed deep learning, NSDI 2019,
    section 4 (discretised 2D-LAS, PROMOTEKNOB), with the defaults of Pollux's public simulator,
    where the threshold is 16 GPU-hours and no job is promoted.
    """

    name = "tiresias"
    title = "queues by attained GPU service, first come first served in each, with preemption"

    @declared_options
    class Options(PlaceOption):
        thresholds: Annotated[
            tuple[PositiveNumber, ...],
            MinLen(1),
            "Service at which a job goes to the next queue: ascending GPU-seconds.",
        ] = (57600.0,)
        promote: Annotated[
            float,
            Ge(0),
            "A job that has run goes back to the first queue, its service forgiven, once it has "
            "waited this many times as long as it ran in all; 0 for never.",
        ] = 0.0

        def __post_init__(self) -> None:
            if not all(low < high for low, high in pairwise(self.thresholds)):
                raise ValueError("thresholds must ascend, as in 3600,57600")

    def __init__(self, options: Options) -> None:
        self.thresholds_gpu_s, self.promote = options.thresholds, options.promote
        self.emptiest = options.place == "emptiest"
        self._standing: dict[str, _Standing] = {}
        self._reaches_s: dict[str, float] = {}
        self._joined = 0
        self._begun = False

    def decide(self, world: World) -> None:
        """Move jobs between queues, then serve them until nobody gives way any more."""
        self._update(world)
        self._count_waits(world)
        while True:
            moment = _Moment(world, self._order(world), self.emptiest)
            if not moment.decide():
                break
        self._count_waits(world)
        self._wake(world, moment.recheck_s)

    # --------------------------------------------------------------------------------------------
    # queues

    def _update(self, world: World) -> None:
        """Move the jobs whose service or wait has grown to the queue where they belong."""
        for job_id in world.take_released():
            self._reaches_s.pop(job_id, None)
            if not world.is_active(job_id):
                self._standing.pop(job_id, None)  # it is done
        due = (job_id for job_id, reaches_s in self._reaches_s.items() if reaches_s <= world.now_s)
        unknown = () if self._begun else world.running
        self._begun = True
        for job_id in sorted({*world.take_arrived(), *due, *unknown}, key=world.order):
            own = self._standing.setdefault(job_id, _Standing(0, self._joined + 1))
            self._joined = max(self._joined, own.joined)
            served = self._served_gpu_s(world, job_id) + SERVICE_TOLERANCE_GPU_S
            while (
                own.queue < len(self.thresholds_gpu_s)
                and served >= self.thresholds_gpu_s[own.queue]
            ):
                own.queue, own.joined = own.queue + 1, self._next()
            self._reaches_s.pop(job_id, None)
        for job_id in world.waiting if self.promote else ():
            if world.now_s >= self._promoted_s(world, job_id) - TIME_TOLERANCE_S:
                self._standing[job_id] = _Standing(0, self._next(), world.attained_gpu_s(job_id))

    def _count_waits(self, world: World) -> None:
        """Note which waits have begun, of jobs with service behind them, and count those that have
        ended."""
        for job_id, own in self._standing.items() if self.promote else ():
            if job_id not in world.waiting:
                own.waited_s += max(0.0, world.now_s - own.waits_since_s)
                own.waits_since_s = math.inf
            elif own.waits_since_s == math.inf and self._served_gpu_s(world, job_id) > 0:
                own.waits_since_s = world.now_s

    def _served_gpu_s(self, world: World, job_id: str) -> float:
        return world.attained_gpu_s(job_id) - self._standing[job_id].forgiven_gpu_s

    def _promoted_s(self, world: World, job_id: str) -> float:
        """Return when a job will have waited long enough; infinite for one that does not wait or is
        in the first queue."""
        own = self._standing[job_id]
        if own.queue == 0 or own.waits_since_s == math.inf:
            return math.inf
        ran_s = world.attained_gpu_s(job_id) / world.service_gpus(job_id)
        return own.waits_since_s + self.promote * ran_s - own.waited_s

    def _next(self) -> int:
        self._joined += 1
        return self._joined

    def _order(self, world: World) -> list[str]:
        """Return jobs that run or wait, the first to be served first."""
        return sorted(
            (*world.waiting, *world.running),
            key=lambda job_id: (
                -world.job(job_id).priority,
                self._standing[job_id].queue,
                self._standing[job_id].joined,
            ),
        )

    def _wake(self, world: World, recheck_s: float) -> None:
        """Ask for a decision when a running job reaches its threshold or a waiting one is
        promoted."""
        times = [
            recheck_s,
            *(self._promoted_s(world, job_id) for job_id in world.waiting if self.promote),
        ]
        for job_id in world.running:
            if job_id not in self._reaches_s:
                self._reaches_s[job_id] = self._reach_s(world, job_id)
        times.extend(self._reaches_s.values())
        wake(world, min(times))

    def _reach_s(self, world: World, job_id: str) -> float:
        """Return when a running job reaches the threshold of its queue, a hair before."""
        queue = self._standing[job_id].queue
        if queue == len(self.thresholds_gpu_s):
            return math.inf
        to_go, gpus = (
            self.thresholds_gpu_s[queue] - self._served_gpu_s(world, job_id),
            world.held_gpus(job_id),
        )
        return world.now_s + to_go / gpus - min(EARLY_S, SERVICE_TOLERANCE_GPU_S / 2 / gpus)


class _Moment:
    """One pass over the jobs in order. `soon` is what is free once saving jobs are gone, less what
    has been given to waiting jobs in this pass."""

    def __init__(self, world: World, order: list[str], emptiest: bool) -> None:
        self._world = world
        self._order = order
        self._emptiest = emptiest
        self._soon = Outlook(world, world.saving)
        self._evicted: dict[str, None] = {}
        self._given: dict[str, Fit] = {}
        self._hopeless: set[int] = set()
        self.recheck_s = math.inf

    def decide(self) -> bool:
        """Serve all jobs, then preempt and start; return whether anybody was preempted."""
        world = self._world
        for i, job_id in enumerate(self._order):
            if job_id in self._evicted:
                self._let_stay(job_id)
            elif job_id in world.waiting:
                self._serve(i, job_id)
        if self._emptiest and self._given:
            self._give_anew(emptiest=Emptiest(world, leaving={*self._evicted, *world.saving}))
        for job_id in self._evicted:
            world.preempt(job_id)
        for job_id, fit in self._given.items():
            if is_free(world, job_id, fit):  # else its place is still being left
                world.start(job_id, *fit)
        return bool(self._evicted)

    def _serve(self, i: int, job_id: str) -> None:
        """Find a place for a waiting job, if need be by evicting jobs that come after it."""
        demand = self._world.demand(job_id).number
        if demand in self._hopeless:
            return  # there is less for it than for the last one that asked for as much
        if not self._give(job_id) and not self._evict_for(i, job_id):
            self._hopeless.add(demand)

    def _give(self, job_id: str, emptiest: Emptiest | None = None) -> bool:
        """Take a place for the job, one that is free already before one that is still being
        left."""
        room = self._soon.room
        fit = (
            self._world.fit(job_id, self._world.free.overlap(room)) if self._world.saving else None
        )
        fit = fit or self._world.fit(job_id, room)
        if fit is None:
            return False
        option, placement = fit
        if emptiest is not None:
            placement = emptiest.place(job_id, option, room) or placement
            emptiest.take(placement)
        self._given[job_id] = option, placement
        room.take(self._world.need(job_id, option), placement)
        return True

    def _give_anew(self, *, staying: str | None = None, emptiest: Emptiest | None = None) -> bool:
        """Place all over again those who were given a place, after letting the evicted job
        `staying` have its own back; return whether that could be done, else nothing changes."""
        before, self._given = self._given, {}
        self._change_room(before, give_back=True)
        back = staying is not None and self._is_left(staying)
        if staying is not None and back:
            self._soon.put_back(staying)
        if (back or staying is None) and all(self._give(job_id, emptiest) for job_id in before):
            return True
        self._change_room(self._given, give_back=True)
        if staying is not None and back:
            self._soon.release(staying)
        self._change_room(before, give_back=False)
        self._given = before
        return False

    def _is_left(self, job_id: str) -> bool:
        """Return whether all that an evicted job holds is still to be had."""
        hold = self._world.hold(job_id)
        return self._soon.room.holds(hold.need, hold.placement)

    def _change_room(self, given: dict[str, Fit], *, give_back: bool) -> None:
        for job_id, (option, placement) in given.items():
            need = self._world.need(job_id, option)
            if give_back:
                self._soon.room.give(need, placement, finished=False)
            else:
                self._soon.room.take(need, placement)

    def _evict_for(self, i: int, job_id: str) -> bool:
        def fits() -> bool:
            return self._world.fit(job_id, self._soon.room) is not None

        victims, enough = self._soon.release_until(fits, self._after(i))
        if not enough:
            for other in reversed(victims):
                self._soon.put_back(other)
            return False
        self._evicted |= dict.fromkeys(reversed(self._soon.only_needed(fits, victims)))
        return self._give(job_id)

    def _after(self, i: int) -> Iterator[str]:
        """Return running jobs that come after number `i` in order and may be preempted, the last
        first."""
        world = self._world
        for other in reversed(self._order[i + 1 :]):
            if other in world.waiting or other in self._evicted:
                continue
            if world.may_preempt(other):
                yield other
            elif (at_s := world.preemptible_at_s(other)) > world.now_s:
                self.recheck_s = min(self.recheck_s, at_s)

    def _let_stay(self, job_id: str) -> None:
        """Let an evicted job stay after all if its place is left, or can be by placing others
        elsewhere."""
        if self._is_left(job_id):
            self._soon.put_back(job_id)
        elif not self._give_anew(staying=job_id):
            return
        del self._evicted[job_id]
