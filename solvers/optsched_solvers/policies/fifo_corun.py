"""First in, first out on shared GPUs, without looking at their memory."""

from bisect import insort
from typing import Annotated

from annotated_types import Ge

from optsched.driver import World
from optsched.plugins.options import PluginOptions, declared_options

from .parts.demand_queue import Entry, arrival_key
from .parts.pair_sharing import Singles, joins, start_alone


class FifoCorun:
    """Strict order of priority, then submission: the first job takes free GPUs, else those of the
    first running job with as many that it may share, whether or not their memory holds both. While
    it can do neither, nobody behind it starts.

    A job that comes back from shared GPUs, out of memory or for whatever reason, goes to the end of
    the queue, as if it were submitted again. After a number of times it only takes GPUs of its own.
    """

    name = "fifo-corun"
    title = "first in, first out, two jobs to a GPU whether or not its memory holds both"

    @declared_options
    class Options(PluginOptions):
        attempts: Annotated[
            int,
            Ge(0),
            "Starts beside other jobs that may run out of memory before a job waits for GPUs of "
            "its own.",
        ] = 3

    def __init__(self, options: Options) -> None:
        self.attempts = options.attempts
        self._queue: list[Entry] = []
        self._singles = Singles()
        self._heedless: dict[str, None] = {}
        self._failed: dict[str, int] = {}
        self._round = 0

    def decide(self, world: World) -> None:
        """Start from the head of the queue as long as it finds a place."""
        for job_id in world.take_arrived():
            if job_id in self._heedless:
                del self._heedless[job_id]
                self._failed[job_id] = self._failed.get(job_id, 0) + 1
                self._round += 1
                insort(self._queue, (arrival_key(world, job_id, self._round), job_id))
            else:
                insort(self._queue, (arrival_key(world, job_id), job_id))
        released = world.take_released()
        for name in released:
            self._heedless.pop(name, None)
        self._singles.catch_up(world, released)
        while self._queue and self._start(world, self._queue[0][1]):
            del self._queue[0]

    def _start(self, world: World, job_id: str) -> bool:
        if start_alone(world, job_id, self._singles):
            return True
        if self._failed.get(job_id, 0) >= self.attempts:
            return False
        join = next(joins(world, job_id, self._singles), None)
        if join is None:
            return False
        self._heedless[job_id] = None
        world.start_sharing(job_id, join.option, join.partner, heedless=True)
        self._singles.joined(job_id, join.partner)
        return True
