"""List scheduling: at each event start whatever fits, in the order of a rule."""

from collections.abc import Hashable

from optsched.driver import Fit, Reservation, Reservations, World

from .demand_queue import DemandQueue, arrival_key
from .starting import start_at


class ListScheduling:
    """Base of the rules that never preempt and skip what does not fit (Graham, SIAM J. Appl. Math.
    17, 1969).

    A rule gives each waiting job a rank, the lowest first; priority comes before it, arrival after
    it.
    """

    def __init__(self) -> None:
        self._queue = DemandQueue()
        self._kept: Reservations | None = None

    def keep_place(self, kept: Reservation) -> None:
        """Keep a place for a job that waits, until it starts."""
        self._kept = Reservations()
        self._kept.current = kept

    def rank(self, world: World, job_id: str) -> float:
        """Lower starts first; must not change while the job waits. Arrival alone decides unless a
        rule says otherwise."""
        return 0.0

    def group(self, world: World, job_id: str) -> Hashable:
        """Return what is the same for jobs of which none starts where the first does not."""
        return world.demand(job_id)

    def arrived(self, world: World, job_id: str) -> None:
        """Note that a job has come to wait."""

    def released(self, world: World, job_id: str) -> None:
        """Note that a job, or a node that comes back, has given back what it held."""

    def enqueue(self, world: World) -> None:
        """Queue those that have come to wait; once something has come free look at all again."""
        released = world.take_released()
        for job_id in released:
            self.released(world, job_id)
        for job_id in world.take_arrived():
            self.arrived(world, job_id)
            key = arrival_key(world, job_id, self.rank(world, job_id))
            self._queue.push(key, job_id, self.group(world, job_id))
        if released:
            self._queue.unblock()

    def find(self, world: World, job_id: str) -> Fit | None:
        """Return how and where a waiting job starts now; None where it goes on waiting."""
        return world.fit(job_id) if self._kept is None else self._kept.fit(world, job_id)

    def start(self, world: World, job_id: str) -> bool:
        """Start a waiting job if it finds a place; return whether it has."""
        return start_at(world, job_id, self.find(world, job_id))

    def decide(self, world: World) -> None:
        """Start every job that finds a place, in order."""
        self.enqueue(world)
        if self._kept is not None:
            self._start_kept(world, self._kept)
        self.serve(world)

    def serve(self, world: World) -> None:
        """Start every job that finds a place, in the order of the queue."""
        self._queue.serve(lambda job_id: self.start(world, job_id))

    def _start_kept(self, world: World, reservations: Reservations) -> None:
        """Start the job for which a place is kept, if there is room for it."""
        reservations.renew(world)
        kept, place = reservations.current, reservations.place(world)
        if kept is None or place is not None:
            self._kept = None
            self._queue.unblock()
        if kept is not None and place is not None:
            world.start(kept.job, *place)
            self._queue.remove(kept.job, self.group(world, kept.job))
