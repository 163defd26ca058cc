"""Waiting jobs in order, with those set aside that cannot start now anyway."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from optsched.driver.demand import Demand
from optsched.driver.world import World

Key = tuple[float, float, float, float]
"""Lower first: -priority, rank, submission, position; it ends with the job's arrival, so that no
two are equal."""
Entry = tuple[Key, str]


def arrival_key(world: World, job_id: str, rank: float = 0.0) -> Key:
    """Priority first (higher earlier), then `rank` (lower earlier), then arrival."""
    return (-world.job(job_id).priority, rank, *world.order(job_id))


def in_order(world: World, jobs: Iterable[str]) -> list[str]:
    """Return jobs by priority and arrival."""
    return sorted(jobs, key=lambda job_id: arrival_key(world, job_id))


class DemandQueue:
    """Waiting jobs, the best first, in one heap for each demand.

    Jobs of one demand fit at the same instants: when the best of them does not, `block` sets all of
    them aside until `unblock`. An event then costs O(demands + starts x log(jobs)), however many
    jobs wait.
    """

    def __init__(self) -> None:
        self._heaps: dict[Demand, list[Entry]] = {}
        self._heads: list[tuple[Entry, int, Demand]] = []
        self._blocked: dict[Demand, None] = {}

    def push(self, key: Key, job_id: str, demand: Demand, *, reconsider: bool = False) -> None:
        """Add a waiting job. With `reconsider` its demand is looked at again if it comes before all
        others of it: for rules by which the first of a demand may start although those behind it
        may not."""
        heap = self._heaps.setdefault(demand, [])
        entry = (key, job_id)
        heappush(heap, entry)
        if heap[0] is entry and (reconsider or demand not in self._blocked):
            self._blocked.pop(demand, None)
            heappush(self._heads, (entry, demand.number, demand))

    def best(self) -> Entry | None:
        """The first job that is not set aside; None without one."""
        while self._heads:
            entry, _, demand = self._heads[0]
            heap = self._heaps[demand]
            if heap and heap[0] is entry and demand not in self._blocked:
                return entry
            heappop(self._heads)  # a better one came before it, or it has left
        return None

    def demand(self) -> Demand:
        """The demand in whose heap the job is that `best` just named."""
        return self._heads[0][2]

    def serve(self, start: Callable[[str], bool]) -> None:
        """Try jobs in order with `start`, which says whether it has started the job: it then leaves
        the queue. Those of one demand with a job that cannot start are set aside."""
        while entry := self.best():
            demand = self.demand()
            if start(entry[1]):
                self._pop(demand)
            else:
                self._blocked[demand] = None

    def pop(self) -> None:
        """Remove the job that `best` just named."""
        self._pop(self.demand())

    def _pop(self, demand: Demand) -> None:
        heap = self._heaps[demand]
        heappop(heap)
        if heap:
            heappush(self._heads, (heap[0], demand.number, demand))

    def block(self) -> None:
        """Set aside the job that `best` just named, and all of its demand."""
        self._blocked[heappop(self._heads)[2]] = None

    def unblock(self) -> None:
        """Look at all jobs again."""
        for demand in self._blocked:
            if heap := self._heaps[demand]:
                self._heads.append((heap[0], demand.number, demand))
        self._blocked.clear()
        heapify(self._heads)
