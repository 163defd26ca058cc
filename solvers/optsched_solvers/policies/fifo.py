"""First in, first out."""

from heapq import heappop, heappush

from optsched.driver.world import World

from .parts.demand_queue import Entry, arrival_key
from .parts.starting import start_fitting


class Fifo:
    """Strict order of priority, then submission: while the first job does not fit, nobody behind it
    starts."""

    name = "fifo"
    title = "first in, first out; the head of the queue blocks it"

    def __init__(self) -> None:
        self._queue: list[Entry] = []

    def decide(self, world: World) -> None:
        """Start from the head of the queue as long as it fits."""
        for job_id in world.take_arrived():
            heappush(self._queue, (arrival_key(world, job_id), job_id))
        while self._queue and start_fitting(world, self._queue[0][1]):
            heappop(self._queue)
