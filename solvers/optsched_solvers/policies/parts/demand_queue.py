"""Waiting jobs in order, with those set aside that cannot start now anyway."""

from collections.abc import Callable, Hashable, Iterable
from heapq import heapify, heappop, heappush, nsmallest
from itertools import chain
from typing import Any

from optsched.driver import World

Key = tuple[float, float, float, float]
"""Lower first: -priority, rank, submission, position; it ends with the job's arrival, so that no
two are equal."""
Entry = tuple[Key, str]


def arrival_key(world: World, job_id: str, rank: float = 0.0) -> Key:
    """Return a key: priority first (higher earlier), then `rank` (lower earlier), then arrival."""
    return (-world.job(job_id).priority, rank, *world.order(job_id))


def in_order(world: World, jobs: Iterable[str]) -> list[str]:
    """Return jobs by priority and arrival."""
    return sorted(jobs, key=lambda job_id: arrival_key(world, job_id))


class DemandQueue:
    """Waiting jobs, the best first, in one heap for each demand, or other group of jobs that fit at
    the same instants.

    When the best of a group does not fit, `block` sets all of them aside until `unblock`. An event
    then costs O(groups + starts x log(jobs)), however many jobs wait.
    """

    def __init__(self) -> None:
        self._heaps: dict[Any, list[Entry]] = {}
        self._heads: list[tuple[Entry, int, Any]] = []  # numbered, as groups have no order
        self._offers = 0
        self._blocked: dict[Any, None] = {}

    def push(self, key: Key, job_id: str, group: Hashable, *, reconsider: bool = False) -> None:
        """Add a waiting job. With `reconsider` its group is looked at again if it comes before all
        others of it: for rules by which the first of a group may start although those behind it may
        not."""
        heap = self._heaps.setdefault(group, [])
        entry = (key, job_id)
        heappush(heap, entry)
        if heap[0] is entry and (reconsider or group not in self._blocked):
            self._blocked.pop(group, None)
            self._offer(entry, group)

    def _offer(self, entry: Entry, group: Any) -> None:
        self._offers += 1
        heappush(self._heads, (entry, self._offers, group))

    def best(self) -> Entry | None:
        """Return the first job that is not set aside; None without one."""
        while self._heads:
            entry, _, group = self._heads[0]
            heap = self._heaps[group]
            if heap and heap[0] is entry and group not in self._blocked:
                return entry
            heappop(self._heads)  # a better one came before it, or it has left
        return None

    def group(self) -> Any:
        """Return the group of the job that `best` just named."""
        return self._heads[0][2]

    def first(self, each: int = 1) -> list[str]:
        """Return the first jobs of each group, at most so many, in the order of all."""
        heaps = self._heaps.values()
        entries = chain.from_iterable(
            heap[:1] if each == 1 else nsmallest(each, heap) for heap in heaps
        )
        return [job_id for _, job_id in sorted(entries)]

    def serve(self, start: Callable[[str], bool]) -> None:
        """Try jobs in order with `start`, which says whether it has started the job: it then leaves
        the queue. Those of one group with a job that cannot start are set aside."""
        while entry := self.best():
            group = self.group()
            if start(entry[1]):
                self.remove(entry[1], group)
            else:
                self._blocked[group] = None

    def pop(self) -> None:
        """Remove the job that `best` just named."""
        self.remove(self._heads[0][0][1], self.group())

    def remove(self, job_id: str, group: Hashable) -> None:
        """Remove a job of a group."""
        heap = self._heaps[group]
        if heap[0][1] == job_id:
            heappop(heap)
        else:
            heap[:] = [entry for entry in heap if entry[1] != job_id]
            heapify(heap)
        if heap:
            self._offer(heap[0], group)

    def block(self) -> None:
        """Set aside the job that `best` just named, and all of its group."""
        self._blocked[heappop(self._heads)[2]] = None

    def set_aside(self, group: Hashable) -> None:
        """Set aside the jobs of a group."""
        self._blocked[group] = None

    def look_again(self, group: Hashable) -> None:
        """Look again at jobs of a group that was set aside and is not empty."""
        del self._blocked[group]
        self._offer(self._heaps[group][0], group)

    def unblock(self) -> None:
        """Look at all jobs again."""
        for group in self._blocked:
            if heap := self._heaps[group]:
                self._offer(heap[0], group)
        self._blocked.clear()
