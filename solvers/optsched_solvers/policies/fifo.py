"""First in, first out."""

from collections import deque
from heapq import heappop, heappush

from optsched.driver import World

from .parts.demand_queue import Entry, arrival_key
from .parts.starting import start_fitting


class Fifo:
    """Strict order of priority, then submission: while the first job does not fit, nobody behind it
    starts."""

    name = "fifo"
    title = "first in, first out; the head of the queue blocks it"

    def __init__(self) -> None:
        self._line: deque[Entry] = deque()
        self._others: list[Entry] = []
        """Those that came after one that they precede, in a heap; the line is in order itself."""
        self._blocked: str | None = None

    def decide(self, world: World) -> None:
        """Start from the head of the queue as long as it fits."""
        line, others = self._line, self._others
        for job_id in world.take_arrived():
            entry = arrival_key(world, job_id), job_id
            if line and entry < line[-1]:
                heappush(others, entry)
            else:
                line.append(entry)
        if world.take_released():
            self._blocked = None
        while line or others:
            in_line = not others or (bool(line) and line[0] < others[0])
            job_id = (line if in_line else others)[0][1]
            if job_id == self._blocked or not start_fitting(world, job_id):
                self._blocked = job_id
                return
            if in_line:
                line.popleft()
            else:
                heappop(others)
