"""Running jobs, the last in order first, without looking at all of them at each event."""

import math
from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from typing import Protocol

from optsched.driver import World

from .demand_queue import Key, arrival_key


class Ranks(Protocol):
    """A rule that ranks jobs, the lower the sooner, and says when the rank of a running one will
    next rise; infinite for never."""

    def rank(self, world: World, job_id: str) -> float: ...
    def rise_s(self, world: World, job_id: str) -> float: ...


class RunningOrder:
    """The jobs that may be evicted, in a heap by the key that each had when it was last looked at.

    A rank that falls while its job runs is only looked at when the job comes up. When a rank will
    rise must be known beforehand; then it is looked at again. The rule is named in each call, not
    kept: two objects that know each other stay in memory until garbage is collected.
    """

    def __init__(self) -> None:
        self._key: dict[str, Key] = {}
        self._heap: list[tuple[Key, str]] = []
        self._rise: dict[str, float] = {}
        self._rises: list[tuple[float, str]] = []
        self._new: dict[str, None] = {}

    def add(self, job_id: str) -> None:
        """Note that a job has started. It is looked at when someone may have to give way."""
        self._new[job_id] = None

    def catch_up(self, world: World, rule: Ranks) -> None:
        """Look at the jobs that have started. One that may never be preempted in its stay is left
        out."""
        for job_id in self._new:
            if job_id in world.running and world.preemptible_at_s(job_id) < math.inf:
                self._look_at(world, rule, job_id)
        self._new.clear()

    def _look_at(self, world: World, rule: Ranks, job_id: str) -> None:
        key = arrival_key(world, job_id, rule.rank(world, job_id))
        self._put(key, job_id)
        rise_s = rule.rise_s(world, job_id)
        if rise_s < math.inf:
            rise_s = max(rise_s, math.nextafter(world.now_s, math.inf))
            self._rise[job_id] = rise_s
            heappush(self._rises, (rise_s, job_id))

    def _put(self, key: Key, job_id: str) -> None:
        self._key[job_id] = key
        heappush(self._heap, (_reversed(key), job_id))

    def apply_rises(self, world: World, rule: Ranks) -> bool:
        """Look again at the jobs whose rank has risen by now; return whether there were any."""
        risen = False
        while self._rises and self._rises[0][0] <= world.now_s:
            rise_s, job_id = heappop(self._rises)
            if self._rise.get(job_id) == rise_s and job_id in world.running:
                self._look_at(world, rule, job_id)
                risen = True
        return risen

    def next_rise_s(self, world: World) -> float:
        """Return when the rank of a running job will next rise."""
        while self._rises:
            rise_s, job_id = self._rises[0]
            if self._rise.get(job_id) == rise_s and job_id in world.running:
                return rise_s
            heappop(self._rises)
        return math.inf

    def pop_last(self, world: World, rule: Ranks) -> tuple[Key, str] | None:
        """Take out the job that is last in order now; it must be given back by `restore`."""
        heap = self._heap
        while heap:
            stale, job_id = heap[0]
            known = self._key.get(job_id)
            if job_id not in world.running or known is None or _reversed(known) != stale:
                heappop(heap)
                continue
            key = arrival_key(world, job_id, rule.rank(world, job_id))
            if key < known:
                self._key[job_id] = key
                heapreplace(heap, (_reversed(key), job_id))
                continue
            while heap and heap[0] == (stale, job_id):  # left by an earlier stay of the same key
                heappop(heap)
            return key, job_id
        return None

    def restore(self, world: World, taken: Iterable[tuple[Key, str]]) -> None:
        """Put back those of the jobs taken out that still run."""
        for key, job_id in taken:
            if job_id in world.running:
                self._put(key, job_id)


def _reversed(key: Key) -> Key:
    priority, rank, submit_s, index = key
    return -priority, -rank, -submit_s, -index
