"""Dally: gangs wait for a narrow place as long as its timers say, and those most hurt by the
network go first."""

import math
from collections import deque
from typing import Annotated

from annotated_types import Ge

from optsched.driver import Fit, Outlook, Room, World
from optsched.model import Placement
from optsched.physics import TIME_TOLERANCE_S, Span, hold_to_save_s, setup_s, span
from optsched.physics.modes import Option
from optsched.plugins.options import Duration, PluginOptions, declared_options

from .parts.demand_queue import DemandQueue, arrival_key
from .parts.locality_gate import LEVELS, LocalityGate, Patience
from .parts.starting import is_free, wake

UNHURT = 0.98
"""A job at this share of its rate alone on one node is not worth moving."""


class DelayTimers:
    """For each gang size the moving average of the last waits after which such gangs got one node,
    or one rack.

    Until a size has a history its timers are `machine_s` and `rack_s`. The timer for a rack is
    never shorter than that for a machine.
    """

    def __init__(self, machine_s: float, rack_s: float, history: int) -> None:
        self._first_s: dict[Span, float] = {"node": machine_s, "rack": rack_s}
        self._history = history
        self._waits: dict[tuple[int, Span], deque[float]] = {}

    def patience(self, gpus: int) -> Patience:
        """Return how long a gang of this size waits now."""
        machine_s = self._timer_s(gpus, "node")
        return Patience(rack_s=machine_s, cluster_s=max(machine_s, self._timer_s(gpus, "rack")))

    def _timer_s(self, gpus: int, level: Span) -> float:
        waits = self._waits.get((gpus, level))
        return sum(waits) / len(waits) if waits else self._first_s[level]

    def accepted(self, gpus: int, level: Span, wait_s: float) -> None:
        """Note that a gang of this size has got a place of this level after such a wait; one over
        racks teaches nothing."""
        if level != "cluster":
            self._waits.setdefault((gpus, level), deque(maxlen=self._history)).append(wait_s)

    def facts(self) -> dict[str, float]:
        """Return the timers as they stand, in seconds, of every gang size with a history."""
        names: dict[Span, str] = {"node": "machine", "rack": "rack"}
        known = sorted(self._waits)
        return {
            f"timer_{names[level]}_{gpus}_s": round(self._timer_s(gpus, level), 3)
            for gpus, level in known
        }


class Dally:
    """Delay scheduling by consolidation level, with timers that tune themselves and
    network-sensitive preemption.

    A waiting gang is offered what is free: one machine it takes at once, one rack only after its
    machine timer, any nodes only after its rack timer; a gang too large for a level skips that
    level's timer. Waits count from arrival or the last preemption. Of waiting jobs the one with the
    smallest network sensitivity (seconds its work would have taken at its best place / seconds it
    ran) is offered first; one that never ran has 1. Every `review` seconds the running job most
    hurt by its place is preempted, with less sensitive ones in its way, if that gives it a narrower
    place and saves more GPU time than all their pauses cost.
    """

    name = "dally-style"
    title = "delay timers for one machine, then one rack; those the network hurts most go first and may move"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        machine_s: Annotated[
            Duration, "The timer of one machine, before a gang size has a history."
        ] = 3600.0
        rack_s: Annotated[Duration, "The timer of one rack, before a gang size has a history."] = (
            7200.0
        )
        history: Annotated[int, Ge(1), "How many waits the moving averages are of."] = 20
        review_s: Annotated[Duration, "Time between reviews of running jobs; 0 for none."] = 600.0

    def __init__(self, options: Options) -> None:
        self._review_s = options.review_s
        self._timers = DelayTimers(options.machine_s, options.rack_s, options.history)
        self._gate = LocalityGate()
        self._queue = DemandQueue()
        self._since_s: dict[str, float] = {}
        self._sensitivity: dict[str, float] = {}
        self._claims: dict[str, Fit] = {}
        self._recheck_s = math.inf
        self._review_at_s = -math.inf
        self._taken: dict[Span, int] = dict.fromkeys(LEVELS, 0)
        self._declined = self._moved = 0
        self._spread: dict[str, None] = {}
        self._begun = False

    def decide(self, world: World) -> None:
        """Offer what is free, then see whether a running job is worth moving."""
        if not self._begun:
            self._begun = True
            for job_id in world.running:
                self._note_spread(world, job_id)
        self._enqueue(world)
        if world.take_released() or world.now_s >= self._recheck_s - TIME_TOLERANCE_S:
            self._recheck_s = math.inf
            self._queue.unblock()
        self._offer(world)
        if self._review_s and world.now_s >= self._review_at_s and not self._claims:
            self._review_at_s = world.now_s + self._review_s
            if self._move_the_most_hurt(world):
                self._enqueue(world)
                self._queue.unblock()
                self._offer(world)
        reviews = self._review_s and self._spread
        wake(world, min(self._recheck_s, self._review_at_s if reviews else math.inf))

    def facts(self) -> dict[str, float]:
        """Return timers, how starts of gangs were consolidated, offers declined and jobs moved."""
        starts = sum(self._taken.values())
        shares = {
            f"share_{name}": round(self._taken[level] / starts, 6) if starts else 0.0
            for level, name in zip(LEVELS, ("machine", "rack", "network"), strict=True)
        }
        counts = {"gang_starts": starts, "declined": self._declined, "moved": self._moved}
        return {**shares, **counts, **self._timers.facts()}

    # ---------------------------------------------------------------------------------------------
    # offers

    def _enqueue(self, world: World) -> None:
        for job_id in world.take_arrived():
            self._since_s[job_id] = world.now_s
            self._push(world, job_id, world.entry(job_id) is not None)

    def _push(self, world: World, job_id: str, ran: bool) -> None:
        """Add a job to the queue, where those that ran have groups of their own."""
        key = arrival_key(world, job_id, self._sensitivity.get(job_id, 1.0))
        self._queue.push(key, job_id, (world.demand(job_id).number, ran), reconsider=True)

    def _offer(self, world: World) -> None:
        """Start every job that accepts its offer, the most hurt first."""
        room = self._unclaimed(world)
        queue = self._queue
        while entry := queue.best():
            job_id = entry[1]
            if job_id in self._claims or job_id not in world.waiting:
                queue.pop()
                continue
            wait_s, patience = world.now_s - self._since_s[job_id], self._patience(world, job_id)
            fit = self._gate.find(world, job_id, patience, wait_s, room)
            if fit is None:
                queue.block()
                self._declined += (
                    self._gate.find(world, job_id, Patience(rack_s=0, cluster_s=0), 0, room)
                    is not None
                )
                self._recheck_s = min(
                    self._recheck_s, self._gate.opens_s(world, job_id, patience, wait_s)
                )
                continue
            queue.pop()
            if room is not None:
                world.take(room, job_id, fit)
            self._start(world, job_id, *fit)

    def _start(self, world: World, job_id: str, option: Option, placement: Placement) -> None:
        wait_s = world.now_s - self._since_s.pop(job_id)
        world.start(job_id, option, placement)
        self._note_spread(world, job_id)
        if option.mode.gpus > 1:
            level = span(world.cluster, placement)
            self._taken[level] += 1
            self._timers.accepted(option.mode.gpus, level, wait_s)

    def _note_spread(self, world: World, job_id: str) -> None:
        """Note a job whose place may hurt it: reviews look only at these."""
        if (
            len(world.placement(job_id)) > 1
            and world.options(job_id)
            and _exposure(world, job_id) > 0
        ):
            self._spread[job_id] = None

    def _patience(self, world: World, job_id: str) -> Patience:
        return self._timers.patience(world.service_gpus(job_id))

    def _unclaimed(self, world: World) -> Room | None:
        """Start those whose claimed place is free; return what is free besides the claims of
        others, None without any."""
        for job_id, fit in list(self._claims.items()):
            if is_free(world, job_id, fit):
                del self._claims[job_id]
                self._start(world, job_id, *fit)
            elif job_id not in world.saving and not world.saving:
                del self._claims[job_id]  # its place is not to be had after all
                if job_id in world.waiting:
                    self._push(world, job_id, True)
        if not self._claims:
            return None
        soon = Outlook(world, world.saving)
        for job_id, (option, placement) in self._claims.items():
            need = world.need(job_id, option)
            if soon.room.holds(need, placement):
                soon.room.take(need, placement)
        return world.free.overlap(soon.room)

    # --------------------------------------------------------------------------------------------
    # moving

    def _move_the_most_hurt(self, world: World) -> bool:
        """Preempt the running job that its place hurts most and that a narrower one pays for, with
        those in its way; return whether there is one."""
        hurt = []
        for job_id in list(self._spread):
            if job_id not in world.running:
                del self._spread[job_id]
                continue
            hold = world.hold(job_id)
            if len(hold.placement) > 1 and hold.partner is None and world.may_preempt(job_id):
                share = world.rate_now(job_id) / world.fastest(job_id).rate
                if share < UNHURT:
                    hurt.append((self._sensed(world, job_id), world.order(job_id), job_id))
        return any(self._move(world, job_id) for _, _, job_id in sorted(hurt)[:8])

    def _move(self, world: World, job_id: str) -> bool:
        hold = world.hold(job_id)
        narrower = LEVELS.index(span(world.cluster, hold.placement)) - 1
        if narrower < 0:
            return False
        patience = Patience(rack_s=0.0 if narrower else math.inf, cluster_s=math.inf)
        outlook = Outlook(world, (*world.saving, job_id))

        def find() -> Fit | None:
            return self._gate.find(world, job_id, patience, 0.0, outlook.room)

        fit, victims = find(), list[str]()
        if fit is None:
            own = _exposure(world, job_id)
            others = sorted(
                (exposure, world.held_gpus(other), world.order(other), other)
                for other in world.running
                if other != job_id
                and world.may_preempt(other)
                and world.hold(other).partner is None
                and world.job(other).priority <= world.job(job_id).priority
                and (exposure := _exposure(world, other)) < own
            )
            victims, _ = outlook.release_until(
                lambda: find() is not None, (other for *_, other in others)
            )
            fit = find()
        if fit is None or span(world.cluster, fit[1]) == span(world.cluster, hold.placement):
            return False
        for other in victims[:-1]:  # the last was needed
            outlook.put_back(other)
            again = find()
            if again is None:
                outlook.release(other)
            else:
                fit = again
                victims.remove(other)
        if not self._pays(world, job_id, fit, victims):
            return False
        for other in (job_id, *victims):
            self._sensitivity[other] = self._sensed(world, other)
            world.preempt(other)
        self._claims[job_id] = fit
        self._moved += 1
        return True

    def _pays(self, world: World, job_id: str, fit: Fit, victims: list[str]) -> bool:
        """Return whether the GPU time saved is more than what all the pauses take."""
        left_s, option = world.remaining_work_s(job_id), fit[0]
        held = world.held_gpus(job_id)
        now = left_s / world.rate_now(job_id) * held
        then = left_s / option.rate * option.mode.gpus
        pauses = sum(
            _pause_s(world, other) * world.held_gpus(other) for other in (job_id, *victims)
        )
        return now - then > pauses

    def _sensed(self, world: World, job_id: str) -> float:
        """Return seconds that the work done takes at the job's best place / seconds it ran; 1 where
        it has not."""
        ran_s = world.attained_gpu_s(job_id) / world.held_gpus(job_id)
        done_s = (world.believed_work_s(job_id) - world.remaining_work_s(job_id)) / world.fastest(
            job_id
        ).rate
        return min(1.0, done_s / ran_s) if ran_s > 0 else 1.0


def _exposure(world: World, job_id: str) -> float:
    """Return how much of its rate a job can lose to the network: 0 for one that does not care where
    it is."""
    profile, best = world.profile(job_id), world.fastest(job_id)
    locality = profile.locality
    worst = 1.0
    if locality is not None and locality.node > 0 and best.mode.gpus > 1:
        widest = next(
            (rate for rate in (locality.cluster, locality.rack) if rate is not None), locality.node
        )
        worst = widest / locality.node
    if profile.network_gbps and best.mode.gpus > 1 and world.cluster.uplinks == "shared":
        worst /= 1.0 + profile.network_duty
    return 1.0 - worst


def _pause_s(world: World, job_id: str) -> float:
    job = world.job(job_id)
    return hold_to_save_s(job) + setup_s(job, True)
