"""List scheduling: at each event start whatever fits, in the order of a rule."""

from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.physics.modes import Option

from .demand_queue import DemandQueue, arrival_key


class ListScheduling:
    """Base of the rules that never preempt and skip what does not fit (Graham, SIAM J. Appl. Math.
    17, 1969).

    A rule gives each waiting job a rank, the lowest first; priority comes before it, arrival after
    it.
    """

    def __init__(self) -> None:
        self._queue = DemandQueue()

    def rank(self, world: World, job_id: str) -> float:
        """Lower starts first; must not change while the job waits."""
        raise NotImplementedError

    def enqueue(self, world: World) -> None:
        """Those that have come to wait; once something has come free all are looked at again."""
        for job_id in world.take_arrived():
            key = arrival_key(world, job_id, self.rank(world, job_id))
            self._queue.push(key, job_id, world.demand(job_id))
        if world.take_released():
            self._queue.unblock()

    def find(self, world: World, job_id: str) -> tuple[Option, Placement] | None:
        """Return how and where a waiting job starts now; None where it goes on waiting."""
        return world.fit(job_id)

    def started(self, world: World, job_id: str) -> None:
        """Note that a job has been started."""

    def decide(self, world: World) -> None:
        """Start every job that finds a place, in order."""
        self.enqueue(world)
        while entry := self._queue.best():
            job_id = entry[1]
            found = self.find(world, job_id)
            if found is None:
                self._queue.block()
                continue
            self._queue.pop()
            world.start(job_id, *found)
            self.started(world, job_id)
