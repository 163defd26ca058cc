"""Free capacity over time on every row, and where jobs fit first."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy

from .problem import Activity, Alternative, Problem, Split
from .windows import Ticks, merged, past

EPSILON = 1e-9
FAR = 2**62
"""Later than any instant."""


class Row:
    """Free amount of one capacity over time: `free[k]` from `times[k]` until `times[k + 1]`, the
    last for ever."""

    __slots__ = ("_seen", "free", "times")

    def __init__(self, capacity: float) -> None:
        self.times: list[int] = [0]
        self.free: list[float] = [capacity]
        self._seen: dict[float, int] = {}

    def copy(self) -> "Row":
        """Return a row with the same free amounts that changes on its own."""
        row = Row.__new__(Row)
        row.times, row.free, row._seen = self.times[:], self.free[:], dict(self._seen)
        return row

    def take(self, start: int, end: int, amount: float) -> None:
        """Take `amount` over [start, end)."""
        first, last = self._break(start), self._break(end)
        for k in range(first, last):
            self.free[k] -= amount

    def _break(self, at: int) -> int:
        k = bisect_left(self.times, at)
        if k == len(self.times) or self.times[k] != at:
            self.times.insert(k, at)
            self.free.insert(k, self.free[k - 1])
        return k

    def earliest(self, not_before: int, length: int, amount: float, latest: int = FAR) -> int:
        """Return the first start at or after `not_before` from which `amount` is free for `length`;
        any instant after `latest` where there is none until then.

        Remembers for each amount before when it never was free, which only taking more cannot
        change.
        """
        times, free, need = self.times, self.free, amount - EPSILON
        count = len(times)
        seen = self._seen.get(amount, 0)
        k = bisect_right(times, max(seen, not_before)) - 1
        if seen >= not_before or seen >= times[bisect_right(times, not_before) - 1]:
            while k + 1 < count and free[k] < need:
                k += 1
            self._seen[amount] = max(seen, times[k])
        while True:
            while free[k] < need:
                k += 1
                if k == count:
                    raise ValueError("the amount exceeds the capacity")
                if times[k] > latest:
                    return times[k]
            start = times[k] if times[k] > not_before else not_before
            end = start + length
            k += 1
            while k < count and times[k] < end:
                if free[k] < need:
                    break
                k += 1
            else:
                return start
            if k == count:
                return start

    def least(self, start: int, end: int) -> float:
        """Return the least that is free at any instant of [start, end)."""
        k = bisect_right(self.times, start) - 1
        return min(self.free[k : max(bisect_left(self.times, end), k + 1)])

    def nearest_change(self, at: int) -> int:
        """Return how far an instant is from the nearest at which something changes."""
        k = bisect_left(self.times, at)
        return min(abs(time - at) for time in self.times[k - 1 : k + 1])

    def next_change(self, after: int) -> int | None:
        """Return the first instant after `after` at which something changes."""
        k = bisect_right(self.times, after)
        return self.times[k] if k < len(self.times) else None


class FreeCapacity:
    """Free capacity of every row of a problem, and where jobs fit first."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rows = [Row(row.capacity) for row in problem.rows]
        self._gpu_row = problem.gpu_row
        totals: dict[str | None, float] = defaultdict(float)
        for row, gpu_type in zip(problem.gpu_row, problem.node_types, strict=True):
            totals[gpu_type] += problem.rows[row].capacity
        self._pool = {gpu_type: Row(total) for gpu_type, total in totals.items()}
        self._type_of_row = dict(zip(problem.gpu_row, problem.node_types, strict=True))
        for dip in problem.windows.dips():
            begin, end = problem.tick.floor(dip.span[0]), problem.tick.ceil(dip.span[1])
            self.rows[dip.row].take(begin, end, dip.amount)

    def copy(self) -> "FreeCapacity":
        """Return the same free capacity, to be taken on its own."""
        free = copy(self)
        free.rows = [row.copy() for row in self.rows]
        free._pool = {gpu_type: row.copy() for gpu_type, row in self._pool.items()}
        return free

    def take(self, start: int, end: int, demands: Iterable[tuple[int, float]]) -> None:
        """Hold `demands` over [start, end)."""
        if end > start:
            for row, amount in demands:
                self.rows[row].take(start, end, amount)
                if row in self._type_of_row:
                    self._pool[self._type_of_row[row]].take(start, end, amount)

    def closed(self, activity: Activity, split: Split) -> Ticks:
        """Return when one of the nodes of a split is closed for a job."""
        of_node = self.problem.windows.ticks(activity.job, self.problem.tick)
        return merged(span for node, _ in split for span in of_node.get(node, ()))

    def earliest(
        self,
        activity: Activity,
        index: int,
        not_before: int,
        allowed: Mapping[int, int] | None = None,
        before: int = FAR,
    ) -> tuple[int, Split] | None:
        """Return the earliest start of an alternative at or after `not_before` and the nodes it
        takes, of those `allowed` at most so many GPUs of each; None if it fits on no node, or not
        before the start `before`."""
        chosen = activity.alternatives[index]
        if not chosen.rooms:
            return self.settle(not_before, chosen.up, chosen.shared), ()
        rooms = (
            [(node, min(most, allowed[node])) for node, most in chosen.rooms if node in allowed]
            if allowed is not None
            else chosen.rooms
        )
        if chosen.spread == "node" or chosen.mode.gpus <= 1:
            return self._on_one_node(activity, chosen, rooms, not_before, before)
        return self._on_many_nodes(activity, chosen, rooms, not_before, before)

    def settle(
        self,
        start: int,
        length: int,
        demands: Sequence[tuple[int, float]],
        latest: int = FAR,
        closed: Ticks = (),
    ) -> int:
        """Return the first start from which all `demands` are free together for `length`, and it is
        not `closed`; anything later than `latest` where there is none until then."""
        start = past(closed, start, length)
        while closed and start <= latest:
            settled = self.settle(start, length, demands, latest)
            start = past(closed, settled, length)
            if start == settled:
                return start
        if closed:
            return start
        if len(demands) == 1:
            return self.rows[demands[0][0]].earliest(start, length, demands[0][1], latest)
        agreed = 0
        while agreed < len(demands) and start <= latest:
            agreed = 0
            for row, amount in demands:
                later = self.rows[row].earliest(start, length, amount, latest)
                if later > start:
                    start, agreed = later, 0
                    break
                agreed += 1
        return start

    def _on_one_node(
        self,
        activity: Activity,
        chosen: Alternative,
        rooms: Sequence[tuple[int, int]],
        not_before: int,
        before: int,
    ) -> tuple[int, Split] | None:
        """Return the earliest start on any single node; among equal starts the node with the fewest
        GPUs left over, then that where something else starts or ends nearest to its end, so that
        GPUs of a node become free together."""
        gpus, length = chosen.mode.gpus, chosen.up
        best_start, best_node, best_rest = before, -1, (0.0, 0)
        if chosen.shared:
            not_before = self.settle(not_before, length, chosen.shared)
        closed = self.problem.windows.ticks(activity.job, self.problem.tick)
        for node, most in rooms:
            if most < gpus:
                continue
            demands = self.problem.table.on_node(activity.job, chosen.mode, node, gpus)
            start = self.settle(
                not_before,
                length,
                [*demands, *chosen.shared] if chosen.shared else demands,
                best_start,
                closed.get(node, ()),
            )
            if start > best_start or (start == best_start and best_node < 0):
                continue
            row = self.rows[self._gpu_row[node]]
            left = row.least(start, start + length)
            rest = left, row.nearest_change(start + length) if left > gpus else 0
            if start < best_start or rest < best_rest:
                best_start, best_node, best_rest = start, node, rest
        return None if best_node < 0 else (best_start, ((best_node, gpus),))

    def _on_many_nodes(
        self,
        activity: Activity,
        chosen: Alternative,
        rooms: Sequence[tuple[int, int]],
        not_before: int,
        before: int,
    ) -> tuple[int, Split] | None:
        """Return the earliest split over several nodes: the fewest nodes that have enough, within a
        rack where it must be."""
        gpus, length = chosen.mode.gpus, chosen.up
        if sum(most for _, most in rooms) < gpus:
            return None
        needs = [
            (node, most, self.problem.table.on_node(activity.job, chosen.mode, node, 1))
            for node, most in rooms
        ]
        closed = self.problem.windows.ticks(activity.job, self.problem.tick)
        together = self._pool[self.problem.node_types[rooms[0][0]]]
        start = not_before
        while start < before:
            start = together.earliest(start, length, float(gpus))
            if chosen.shared:
                start = self.settle(start, length, chosen.shared)
            if start >= before:
                return None
            there = needs
            if closed:
                there = [n for n in needs if past(closed.get(n[0], ()), start, length) == start]
            split = self._fewest(chosen, gpus, self._rooms_now(there, start, length))
            if split is not None:
                return start, split
            over = (end for node, _ in rooms for _, end in closed.get(node, ()) if end > start)
            later = min(over, default=None)
            change = together.next_change(start)
            if later is None or (change is not None and change < later):
                later = change
            if later is None:
                return None
            start = later
        return None

    def _rooms_now(
        self, needs: list[tuple[int, int, list[tuple[int, float]]]], start: int, length: int
    ) -> list[tuple[int, int]]:
        """Return (GPUs free for `length`, node) of the nodes that have any."""
        rooms = []
        for node, most, demands in needs:
            room = most
            for row, amount in demands:
                room = min(
                    room, int(self.rows[row].least(start, start + length) / amount + EPSILON)
                )
                if room <= 0:
                    break
            else:
                rooms.append((room, node))
        return rooms

    def _fewest(self, chosen: Alternative, gpus: int, rooms: list[tuple[int, int]]) -> Split | None:
        if chosen.spread == "cluster":
            return take_largest(rooms, gpus)
        racks: dict[str | int, list[tuple[int, int]]] = {}
        for room, node in rooms:
            racks.setdefault(self.problem.racks[node], []).append((room, node))
        splits = [
            split
            for members in racks.values()
            if (split := take_largest(members, gpus)) is not None
        ]
        return min(splits, key=len) if splits else None


def take_largest(rooms: list[tuple[int, int]], gpus: int) -> Split | None:
    """Take whole largest rooms first; the last part goes where it leaves least. `rooms` are (GPUs,
    node)."""
    if sum(room for room, _ in rooms) < gpus:
        return None
    left, split = gpus, []
    ordered = sorted(rooms, key=lambda pair: (-pair[0], pair[1]))
    for position, (room, node) in enumerate(ordered):
        if room >= left:
            _, tightest = min(pair for pair in ordered[position:] if pair[0] >= left)
            split.append((tightest, left))
            return tuple(sorted(split))
        split.append((node, room))
        left -= room
    return None
