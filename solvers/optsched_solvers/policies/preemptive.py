"""What the preemptive rules share: who is evicted for whom, and who waits for a place that is coming free."""

import math

from optsched.instance import Placement
from optsched.physics import TIME_TOLERANCE_S
from optsched.simulate.outlook import Outlook
from optsched.simulate.placement import Room
from optsched.simulate.world import World

from .demand_queue import DemandQueue, Entry, Key, arrival_key
from .running_order import RunningOrder


class Preemptive:
    """Base of the rules that give each job a rank and let a lower rank evict a higher one.

    Waiting jobs are served in order of priority, rank and arrival. One that fits starts. One that fits once
    the jobs being checkpointed are gone claims that place. Else running jobs of lower priority or higher rank
    are evicted, the last in order first, until it fits; those whose place turns out not to be needed stay.
    Jobs of equal priority and rank never evict each other.
    """

    def __init__(self) -> None:
        self.queue = DemandQueue()
        self.order = RunningOrder(self.rank, self.rise_s)
        self._recheck_s = math.inf
        self._begun = False

    def rank(self, world: World, job_id: str) -> float:
        """Lower runs first; must not change while a job waits, and a preemption must not lower it."""
        raise NotImplementedError

    def rise_s(self, world: World, job_id: str) -> float:
        """When the rank of a running job will next rise; infinite where ranks only fall while jobs run."""
        return math.inf

    def decide(self, world: World) -> None:
        """Start, claim or evict, for one waiting job after the other."""
        if not self._begun:
            self._begun = True
            for job_id in world.running:
                self.order.add(job_id)
        released, risen = world.take_released(), self.order.apply_rises(world)
        if released or risen or world.now_s >= self._recheck_s:
            self.queue.unblock()
            self._recheck_s = math.inf
        if len(world.waiting) == 1 and not world.saving and self._start_the_only_one(world):
            return
        self.enqueue_arrived(world)
        if self.queue.best() is not None:
            moment = _Moment(self, world)
            moment.decide()
            self._recheck_s = min(self._recheck_s, moment.recheck_s)
        if not world.waiting:
            return
        self.order.catch_up(world)
        wake_s = min(self._recheck_s, self.order.next_rise_s(world))
        if wake_s < math.inf:
            world.wake_at(wake_s)

    def _start_the_only_one(self, world: World) -> bool:
        """Start a job that has just arrived where nobody else waits, if it fits: then its rank does not matter."""
        job_id = next(iter(world.waiting))
        if not world.has_arrived(job_id):
            return False
        found = world.fit(job_id)
        if found is None:
            return False
        world.take_arrived()
        world.start(job_id, *found)
        self.order.add(job_id)
        return True

    def enqueue_arrived(self, world: World) -> None:
        """Those that have come to wait, in the order of the rule."""
        for job_id in world.take_arrived():
            key = arrival_key(world, job_id, self.rank(world, job_id))
            self.queue.push(key, job_id, world.demand(job_id), reconsider=True)  # it may evict more


class _Moment:
    """One decision. `soon` is what will be free when all saving jobs are gone, less what has been claimed of
    it."""

    def __init__(self, rule: Preemptive, world: World) -> None:
        self._rule = rule
        self._queue = rule.queue
        self._order = rule.order
        self._world = world
        self._soon: Outlook | None = None
        self._claimed: list[Placement] = []
        self._room: Room | None = None
        self._nobody_gives_way = False
        self._most: Room | None = None
        self.recheck_s = math.inf

    def decide(self) -> None:
        world, queue = self._world, self._queue
        started: list[str] = []
        claimed: list[Entry] = []
        if world.saving and queue.best() is not None:
            self._look_ahead()
        while entry := queue.best():
            job_id = entry[1]
            room = self._startable(bool(claimed))
            found = world.fit(job_id, room)
            if found is not None:
                queue.pop()
                started.append(job_id)
                if self._soon is None and room is world.free:
                    world.start(job_id, *found)
                    continue
                need = world.need(job_id, found[0])
                world.start(job_id, *found)
                if self._soon is not None:
                    self._soon.room.take(need, found[1])
                if room is not world.free:
                    room.take(need, found[1])
                continue
            found = None if self._soon is None else world.fit(job_id, self._soon.room)
            if found is not None and self._soon is not None:
                queue.pop()
                self._soon.room.take(world.need(job_id, found[0]), found[1])
                self._claimed.append(found[1])
                if self._room is not None:
                    self._room.meet(world.free, self._soon.room, found[1])
                claimed.append(entry)
            elif not self._evict_for(entry):
                queue.block()
        for job_id in started:  # only now: what has just started cannot be evicted yet
            self._order.add(job_id)
        for key, job_id in claimed:
            queue.push(key, job_id, world.demand(job_id))

    def _look_ahead(self) -> Outlook:
        if self._soon is None:
            self._soon = Outlook(self._world)
            for job_id in self._world.saving:
                self._soon.release(job_id)
        return self._soon

    def _startable(self, claims: bool) -> Room:
        """What is free now and not claimed: all that is free but on nodes with claims, where less may be left."""
        if not claims or self._soon is None:
            return self._world.free
        if self._room is None:
            self._room = self._world.free.copy()
            for placement in self._claimed:
                self._room.meet(self._world.free, self._soon.room, placement)
        return self._room

    def _evict_for(self, entry: Entry) -> bool:
        """Preempt what must give way for the job to fit, now or once it is saved; whether that can be
        done."""
        key, job_id = entry
        world = self._world
        if self._nobody_gives_way or (self._most is not None and world.fit(job_id, self._most) is None):
            return False
        self._order.catch_up(world)
        victims: list[str] = []
        taken = []
        fits = False
        while not fits and (last := self._order.pop_last(world)) is not None:
            taken.append(last)
            if not _gives_way(last[0], key):
                break
            other_id = last[1]
            if world.may_preempt(other_id):
                self._look_ahead().release(other_id)
                victims.append(other_id)
                fits = world.fit(job_id, self._look_ahead().room) is not None
            elif world.now_s < (at_s := world.preemptible_at_s(other_id)):
                self.recheck_s = min(self.recheck_s, at_s)
        soon = self._look_ahead() if victims else None
        if not fits:  # whoever comes later in this moment has no more victims than this one had
            if soon is None:
                self._nobody_gives_way = True
            else:
                self._most = soon.room.copy()
        for other_id in reversed(victims[:-1] if fits else victims[:]):  # where it fits, the last was needed
            assert soon is not None
            soon.put_back(other_id)
            if fits and world.fit(job_id, soon.room) is None:
                soon.release(other_id)
            else:
                victims.remove(other_id)
        for other_id in victims:
            world.preempt(other_id)
        self._order.restore(world, taken)
        if victims:
            self._room = None
        self._rule.enqueue_arrived(world)
        return fits


def _gives_way(running: Key, waiting: Key) -> bool:
    """Whether a running job is to be evicted for a waiting one, by priority, then by rank."""
    if running[0] != waiting[0]:
        return running[0] > waiting[0]
    return running[1] > waiting[1] + TIME_TOLERANCE_S
