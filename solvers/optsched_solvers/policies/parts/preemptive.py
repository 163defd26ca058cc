"""What the preemptive rules share: who is evicted for whom, and who waits for a place that is
coming free."""

import math
from collections.abc import Iterable, Iterator
from itertools import chain

from optsched.driver import Fit, Outlook, Reservations, Room, World
from optsched.model import Placement
from optsched.physics import TIME_TOLERANCE_S

from .demand_queue import DemandQueue, Entry, Key, arrival_key
from .running_order import RunningOrder


class Preemptive:
    """Base of the rules that give each job a rank and let a lower rank evict a higher one.

    Waiting jobs are served in order of priority, rank and arrival. One that fits starts. One that
    fits once the jobs being checkpointed are gone claims that place. Else running jobs of lower
    priority or higher rank are evicted, the last in order first, until it fits; those whose place
    turns out not to be needed stay. Jobs of equal priority and rank never evict each other.

    With `reserves` a place is kept for who waits too long (see `reservation`), and who starts there
    is evicted by higher priority only.
    """

    reserves = False

    def __init__(self) -> None:
        self.queue = DemandQueue()
        self.order = RunningOrder()
        self.reservations = Reservations()
        self._recheck_s = math.inf
        self._begun = False

    def rank(self, world: World, job_id: str) -> float:
        """Lower runs first; must not change while a job waits, and a preemption must not lower
        it."""
        raise NotImplementedError

    def rise_s(self, world: World, job_id: str) -> float:
        """Return when the rank of a running job will next rise; infinite where ranks only fall
        while jobs run."""
        return math.inf

    def given_back(self, world: World, released: list[str]) -> None:
        """Note jobs (and nodes) that have come free since the last decision, for rules that learn
        from those that are done."""

    def moment(self, world: World) -> "Moment":
        """Return one decision: who gives way for whom."""
        return Moment(self, world)

    def decide(self, world: World) -> None:
        """Start, claim or evict, and ask for the next decision."""
        self.serve(world)
        if not world.waiting:
            return
        self.order.catch_up(world, self)
        wake_s = min(self._recheck_s, self.order.next_rise_s(world))
        if wake_s < math.inf:
            world.wake_at(wake_s)

    def serve(self, world: World) -> None:
        """Start, claim or evict, for one waiting job after the other."""
        if not self._begun:
            self._begun = True
            for job_id in world.running:
                self.order.add(job_id)
        released, risen = world.take_released(), self.order.apply_rises(world, self)
        self.given_back(world, released)
        if released or risen or world.now_s >= self._recheck_s:
            self.queue.unblock()
            self._recheck_s = math.inf
        if len(world.waiting) == 1 and not world.saving and self._start_the_only_one(world):
            return
        if self.reserves:
            self._serve_the_reserved(world)
        self.enqueue_arrived(world)
        if self.queue.best() is not None:
            moment = self.moment(world)
            moment.decide()
            self._recheck_s = min(self._recheck_s, moment.recheck_s)

    def _serve_the_reserved(self, world: World) -> None:
        """Start who has a reservation if there is room; else keep the place, or one for the
        next."""
        kept = self.reservations
        while True:
            if kept.renew(world):
                self.queue.unblock()
            for job_id in kept.overstaying(world):
                world.preempt(job_id)
            fit = kept.place(world)
            if kept.current is not None and world.now_s < kept.current.due_s < math.inf:
                world.wake_at(kept.current.due_s)
            if fit is None or kept.current is None:
                return
            job_id = kept.current.job
            world.start(job_id, *fit)
            kept.began(world)
            self.order.add(job_id)

    def _start_the_only_one(self, world: World) -> bool:
        """Start a job that has just arrived where nobody else waits, if it fits: then its rank does
        not matter."""
        job_id = next(iter(world.waiting))
        if not world.has_arrived(job_id):
            return False
        fit = world.fit(job_id)
        if fit is None:
            return False
        world.take_arrived()
        world.protected.discard(job_id)
        world.start(job_id, *fit)
        self.order.add(job_id)
        return True

    def enqueue_arrived(self, world: World) -> None:
        """Queue those that have come to wait, in the order of the rule."""
        for job_id in world.take_arrived():
            if job_id in world.waiting:  # else it has started on the place kept for it
                self.enqueue(world, job_id)

    def put_in_order(self, world: World, waiting: Iterable[str]) -> None:
        """Rank the running jobs and these waiting ones anew."""
        self.queue, self.order = DemandQueue(), RunningOrder()
        for job_id in world.running:
            self.order.add(job_id)
        for job_id in waiting:
            self.enqueue(world, job_id)

    def enqueue(self, world: World, job_id: str) -> None:
        """Put a waiting job in order."""
        key = arrival_key(world, job_id, self.rank(world, job_id))
        self.queue.push(key, job_id, world.demand(job_id), reconsider=True)  # it may evict more
        if self.reserves:
            self.reservations.arrived(world, job_id)


class Moment:
    """One decision. `soon` is what will be free when all saving jobs are gone, less what has been
    claimed of it."""

    def __init__(self, rule: Preemptive, world: World) -> None:
        self.rule = rule
        self.queue = rule.queue
        self.order = rule.order
        self.world = world
        self.soon: Outlook | None = None
        self._claimed: list[Placement] = []
        self._room: Room | None = None
        self._nobody_gives_way = False
        self._most: Room | None = None
        self.recheck_s = math.inf

    def decide(self) -> None:
        world, queue = self.world, self.queue
        started: list[str] = []
        claimed: list[Entry] = []
        if world.saving and queue.best() is not None:
            self.look_ahead()
        while entry := queue.best():
            job_id = entry[1]
            if job_id not in world.waiting:
                queue.pop()  # it has started on the place kept for it
                continue
            room = self._startable(bool(claimed))
            fit = self.fit(job_id, room)
            if fit is not None:
                queue.pop()
                started.append(job_id)
                self.start(job_id, fit)
                if room is not world.free:
                    world.take(room, job_id, fit)
                continue
            fit = None if self.soon is None else self.fit(job_id, self.soon.room)
            if fit is not None and self.soon is not None:
                queue.pop()
                world.take(self.soon.room, job_id, fit)
                self._claimed.append(fit[1])
                if self._room is not None:
                    self._room.meet(world.free, self.soon.room, fit[1])
                claimed.append(entry)
            elif not self.evict_for(entry):
                queue.block()
        for job_id in started:  # only now: what has just started cannot be evicted yet
            self.order.add(job_id)
        for key, job_id in claimed:
            queue.push(key, job_id, world.demand(job_id))

    def start(self, job_id: str, fit: Fit) -> None:
        """Start a job, and note what it takes of what will be free."""
        self.world.start(job_id, *fit)
        if self.soon is not None:
            self.world.take(self.soon.room, job_id, fit)

    def fit(self, job_id: str, room: Room) -> Fit | None:
        """Fit as `World.fit` does, beside what is kept for another job."""
        return self.rule.reservations.fit(self.world, job_id, room)

    def look_ahead(self) -> Outlook:
        if self.soon is None:
            self.soon = Outlook(self.world, self.world.saving)
        return self.soon

    def _startable(self, claims: bool) -> Room:
        """Return what is free now and not claimed: all that is free but on nodes with claims, where
        less may be left."""
        if not claims or self.soon is None:
            return self.world.free
        if self._room is None:
            self._room = self.world.free.copy()
            for placement in self._claimed:
                self._room.meet(self.world.free, self.soon.room, placement)
        return self._room

    def evict_for(self, entry: Entry) -> bool:
        """Preempt what must give way for the job to fit, now or once it is saved; return whether
        that can be done."""
        key, job_id = entry
        world = self.world
        if self._nobody_gives_way or (
            self._most is not None and self.fit(job_id, self._most) is None
        ):
            return False
        self.order.catch_up(world, self.rule)
        taken: list[tuple[Key, str]] = []
        victims = self.needed(job_id, self._last_first(job_id, key, taken))
        for other_id in victims or ():
            world.preempt(other_id)
        self.order.restore(world, taken)
        self.evicted(victims or [])
        return victims is not None

    def _last_first(self, job_id: str, key: Key, taken: list[tuple[Key, str]]) -> Iterator[str]:
        """Return running jobs that may be evicted for a job of this key, the last in order first;
        `taken` gets all that were looked at."""
        world = self.world
        while (last := self.order.pop_last(world, self.rule)) is not None:
            taken.append(last)
            if not gives_way(last[0], key):
                return
            other_id = last[1]
            if self.rule.reservations.protects(world, other_id, job_id):
                continue
            if world.may_preempt(other_id):
                yield other_id
            elif world.now_s < (at_s := world.preemptible_at_s(other_id)):
                self.recheck_s = min(self.recheck_s, at_s)

    def needed(self, job_id: str, candidates: Iterable[str]) -> list[str] | None:
        """Return those who must be released for the job to fit: one candidate after the other
        until it does, without those whose place turns out not to be needed. None where it never
        does."""
        candidates = iter(candidates)
        first = next(candidates, None)
        if first is None:  # nor for whoever comes later in this moment
            self._nobody_gives_way = True
            return None
        soon = self.look_ahead()

        def fits() -> bool:
            return self.fit(job_id, soon.room) is not None

        victims, enough = soon.release_until(fits, chain((first,), candidates))
        if enough:
            return soon.only_needed(fits, victims)
        self._most = soon.room.copy()  # whoever comes later has no more victims than this one had
        for other_id in reversed(victims):
            soon.put_back(other_id)
        return None

    def evicted(self, victims: list[str]) -> None:
        """Note that victims have been preempted."""
        if victims:
            self._room = None
        self.rule.enqueue_arrived(self.world)


def gives_way(running: Key, waiting: Key) -> bool:
    """Return whether a running job is to be evicted for a waiting one, by priority, then by
    rank."""
    if running[0] != waiting[0]:
        return running[0] > waiting[0]
    return running[1] > waiting[1] + TIME_TOLERANCE_S
