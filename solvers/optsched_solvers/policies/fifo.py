"""First in, first out."""

from collections import deque
from heapq import heappop, heappush
from math import inf

from optsched.driver import World

from .parts.demand_queue import Entry, Key, arrival_key
from .parts.starting import start_fitting


class Fifo:
    """Strict order of priority, then submission: while the first job does not fit, nobody behind it
    starts."""

    name = "fifo"
    title = "first in, first out; the head of the queue blocks it"

    def __init__(self) -> None:
        self._line: deque[str] = deque()
        self._last: Key = (-inf, 0.0, 0.0, 0.0)
        """That of the last in line; those of the others are not kept, as many may wait."""
        self._others: list[Entry] = []
        """Those that came after one that they precede, in a heap; the line is in order itself."""
        self._blocked: str | None = None

    def decide(self, world: World) -> None:
        """Start from the head of the queue as long as it fits."""
        line, others = self._line, self._others
        for job_id in world.take_arrived():
            key = arrival_key(world, job_id)
            if line and key < self._last:
                heappush(others, (key, job_id))
            else:
                line.append(job_id)
                self._last = key
        if world.take_released():
            self._blocked = None
        while line or others:
            in_line = not others or (bool(line) and arrival_key(world, line[0]) < others[0][0])
            job_id = line[0] if in_line else others[0][1]
            if job_id == self._blocked or not start_fitting(world, job_id):
                self._blocked = job_id
                return
            if in_line:
                line.popleft()
            else:
                heappop(others)
