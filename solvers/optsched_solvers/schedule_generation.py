"""Free capacity over time on every row, and the serial schedule generation scheme on it.

Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", EJOR 90 (1996): jobs are
placed one by one, each at the earliest tick at which all it needs is free for its whole length.
"""

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .problem import Activity, Alternative, Choice, Problem, Schedule, Split

EPSILON = 1e-9
FAR = np.int64(2**62)


class FreeCapacity:
    """Free amounts by row and stretch of time; `times[k]` begins stretch k, the last one never ends."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.times: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        capacity = np.array([row.capacity for row in problem.rows], dtype=np.float64)
        self.free: npt.NDArray[np.float64] = capacity.reshape(-1, 1)
        self._gpu_rows = np.array(problem.gpu_row, dtype=np.int64)

    def take(self, start: int, end: int, demands: Sequence[tuple[int, float]], sign: float = 1.0) -> None:
        """Hold `demands` over [start, end); give them back where `sign` is -1."""
        if end <= start or not demands:
            return
        self._break(start)
        last = self._break(end)
        first = int(np.searchsorted(self.times, start))
        for row, amount in demands:
            self.free[row, first:last] -= sign * amount

    def _break(self, at: int) -> int:
        """Index of the stretch that begins at `at`, made if there is none."""
        k = int(np.searchsorted(self.times, at))
        if k == len(self.times) or self.times[k] != at:
            self.times = np.insert(self.times, k, at)
            self.free = np.insert(self.free, k, self.free[:, k - 1], axis=1)
        return k

    def place(self, activity: Activity, choice: Choice, sign: float = 1.0) -> None:
        """Hold what a choice holds, without the checkpoint of a preempted job (see `preempt`)."""
        chosen = activity.alternatives[choice.alternative]
        demands = self.problem.demands(activity, chosen.mode, choice.split, chosen.shared)
        self.take(choice.start, choice.start + chosen.up, demands, sign)

    def preempt(self, activity: Activity) -> None:
        """Hold the nodes of a running job for its checkpoint."""
        hold = activity.hold
        assert hold is not None
        self.take(0, hold.up, self.problem.demands(activity, hold.mode, hold.split, hold.shared))

    def earliest(
        self, activity: Activity, index: int, not_before: int, allowed: frozenset[int] | None = None
    ) -> tuple[int, Split] | None:
        """Earliest start of an alternative at or after `not_before` and the nodes it takes; None if never."""
        chosen = activity.alternatives[index]
        if chosen.fixed is not None:
            return 0, chosen.fixed
        begin = max(0, int(np.searchsorted(self.times, not_before, side="right")) - 1)
        starts = np.maximum(self.times[begin:], not_before)
        open_until = self._open_until(chosen.shared, begin)
        if not chosen.rooms:
            fits = np.flatnonzero(open_until - starts >= chosen.up)
            return (int(starts[fits[0]]), ()) if len(fits) else None
        rooms = [(node, most) for node, most in chosen.rooms if allowed is None or node in allowed]
        if chosen.spread == "node" or chosen.mode.gpus <= 1:
            return self._on_one_node(activity, chosen, rooms, starts, open_until, begin)
        return self._on_many_nodes(activity, chosen, rooms, starts, open_until, begin)

    def _open_until(self, demands: Sequence[tuple[int, float]], begin: int) -> npt.NDArray[np.int64]:
        """For each stretch the first instant at or after its begin at which `demands` are not free."""
        blocked = np.full(len(self.times) - begin, FAR, dtype=np.int64)
        for row, amount in demands:
            bad = self.free[row, begin:] < amount - EPSILON
            blocked[bad] = self.times[begin:][bad]
        return np.minimum.accumulate(blocked[::-1])[::-1]

    def _on_one_node(
        self, activity: Activity, chosen: Alternative, rooms: list[tuple[int, int]],
        starts: npt.NDArray[np.int64], open_until: npt.NDArray[np.int64], begin: int,
    ) -> tuple[int, Split] | None:
        """Earliest on any single node; among equal starts the node with the fewest GPUs left over."""
        nodes = [node for node, most in rooms if most >= chosen.mode.gpus]
        if not nodes:
            return None
        bad = np.zeros((len(nodes), len(starts)), dtype=bool)
        by_node = [self.problem.node_demands(activity, chosen.mode, node, chosen.mode.gpus) for node in nodes]
        if len({len(rows) for rows in by_node}) == 1:
            for rows in zip(*by_node, strict=True):
                bad |= self.free[[row for row, _ in rows], begin:] < rows[0][1] - EPSILON
        else:
            for i, needs in enumerate(by_node):
                for row, amount in needs:
                    bad[i] |= self.free[row, begin:] < amount - EPSILON
        blocked = np.where(bad, self.times[begin:], FAR)
        until = np.minimum(np.minimum.accumulate(blocked[:, ::-1], axis=1)[:, ::-1], open_until)
        fits = until - starts >= chosen.up
        any_node = fits.any(axis=0)
        k = int(any_node.argmax())
        if not any_node[k]:
            return None
        start = int(starts[k])
        candidates = np.flatnonzero(fits[:, k])
        best = int(candidates[0])
        if len(candidates) > 1:
            stop = max(int(np.searchsorted(self.times, start + chosen.up)), begin + k + 1)
            rows_here = self._gpu_rows[np.array(nodes)[candidates]]
            best = int(candidates[int(self.free[rows_here, begin + k : stop].min(axis=1).argmin())])
        return start, ((nodes[best], chosen.mode.gpus),)

    def _on_many_nodes(
        self, activity: Activity, chosen: Alternative, rooms: list[tuple[int, int]],
        starts: npt.NDArray[np.int64], open_until: npt.NDArray[np.int64], begin: int,
    ) -> tuple[int, Split] | None:
        """Earliest split over several nodes: the fewest nodes that have enough, within a rack where it must be."""
        gpus = chosen.mode.gpus
        nodes = np.array([node for node, _ in rooms], dtype=np.int64)
        most = np.array([count for _, count in rooms], dtype=np.float64)
        if not len(nodes) or most.sum() < gpus:
            return None
        per_gpu = [self.problem.node_demands(activity, chosen.mode, int(node), 1) for node in nodes]
        free_gpus = np.minimum(self.free[self._gpu_rows[nodes], begin:], most[:, None])
        enough = (free_gpus.sum(axis=0) >= gpus - EPSILON) & (open_until - starts >= chosen.up)
        for k in np.flatnonzero(enough):
            start = int(starts[k])
            first = begin + int(k)
            stop = max(int(np.searchsorted(self.times, start + chosen.up)), first + 1)
            room = most.copy()
            for i, needs in enumerate(per_gpu):
                for row, amount in needs:
                    room[i] = min(room[i], np.floor(self.free[row, first:stop].min() / amount + EPSILON))
            split = self._fewest(nodes, room, gpus, chosen)
            if split is not None:
                return start, split
        return None

    def _fewest(
        self, nodes: npt.NDArray[np.int64], room: npt.NDArray[np.float64], gpus: int, chosen: Alternative
    ) -> Split | None:
        if chosen.spread == "cluster":
            return _take_largest(nodes, room, gpus)
        racks: dict[str, list[int]] = {}
        for i, node in enumerate(nodes):
            rack = self.problem.instance.cluster.nodes[int(node)].rack
            if rack is not None:
                racks.setdefault(rack, []).append(i)
        splits = [
            split for members in racks.values()
            if (split := _take_largest(nodes[members], room[members], gpus)) is not None
        ]
        return min(splits, key=len) if splits else None


def _take_largest(nodes: npt.NDArray[np.int64], room: npt.NDArray[np.float64], gpus: int) -> Split | None:
    """Whole largest rooms first; the last part goes where it leaves least."""
    if room.sum() < gpus:
        return None
    order = np.argsort(-room, kind="stable")
    split, left = [], gpus
    for position, i in enumerate(order):
        if room[i] >= left:
            rest = [int(other) for other in order[position:] if room[other] >= left]
            tightest = min(rest, key=lambda other: (room[other], int(nodes[other])))
            split.append((int(nodes[tightest]), left))
            return tuple(sorted(split))
        count = int(room[i])
        split.append((int(nodes[i]), count))
        left -= count
    return None


def generate(
    problem: Problem,
    priority: Sequence[float],
    preempted: frozenset[int] = frozenset(),
    ways: dict[int, tuple[int, ...]] | None = None,
    nodes: dict[int, frozenset[int]] | None = None,
) -> Schedule | None:
    """Serial schedule generation: lowest `priority` first among jobs whose predecessors are placed.

    Running jobs continue unless their index is in `preempted`. `ways` limits a job to some of its alternatives,
    `nodes` to some nodes. A job takes the alternative in which it completes first. None where a job fits nowhere or
    a budget runs out.
    """
    capacity = FreeCapacity(problem)
    found: dict[int, Choice] = {}
    budget = dict(problem.instance.cluster.budgets)
    for activity in problem.activities:
        if activity.running is None:
            continue
        if activity.index in preempted and activity.hold is not None:
            capacity.preempt(activity)
        else:
            split = activity.alternatives[0].fixed
            assert split is not None
            found[activity.index] = Choice(0, 0, split)
            capacity.place(activity, found[activity.index])
            _spend(budget, activity.alternatives[0])
    waiting_for = {
        activity.index: {i for i in activity.before if i not in found}
        for activity in problem.activities
        if activity.index not in found
    }
    followers: dict[int, list[int]] = {}
    for index, before in waiting_for.items():
        for i in before:
            followers.setdefault(i, []).append(index)
    ready = [(priority[index], index) for index, before in waiting_for.items() if not before]
    heapq.heapify(ready)
    while ready:
        _, index = heapq.heappop(ready)
        activity = problem.activities[index]
        choice = _first_to_complete(problem, capacity, activity, found, budget, ways, nodes)
        if choice is None:
            return None
        found[index] = choice
        capacity.place(activity, choice)
        _spend(budget, activity.alternatives[choice.alternative])
        for follower in followers.get(index, ()):
            waiting_for[follower].discard(index)
            if not waiting_for[follower]:
                heapq.heappush(ready, (priority[follower], follower))
    if len(found) < len(problem.activities):
        return None
    return [found[activity.index] for activity in problem.activities]


def _first_to_complete(
    problem: Problem,
    capacity: FreeCapacity,
    activity: Activity,
    found: dict[int, Choice],
    budget: dict[str, float],
    ways: dict[int, tuple[int, ...]] | None,
    nodes: dict[int, frozenset[int]] | None,
) -> Choice | None:
    index = activity.index
    not_before = max([activity.release_up, *(_end(problem, i, found[i]) for i in activity.before)])
    if activity.hold is not None:
        not_before = max(not_before, activity.hold.up)
    best: tuple[int, Choice] | None = None
    for which in ways[index] if ways and index in ways else range(len(activity.alternatives)):
        alternative = activity.alternatives[which]
        if alternative.fixed is not None or not _affordable(budget, alternative):
            continue
        if best is not None and not_before + alternative.up >= best[0]:
            continue
        place = capacity.earliest(activity, which, not_before, nodes.get(index) if nodes else None)
        if place is not None and (best is None or place[0] + alternative.up < best[0]):
            best = (place[0] + alternative.up, Choice(which, place[0], place[1]))
    return None if best is None else canonical(problem, activity, best[1])


def _end(problem: Problem, index: int, choice: Choice) -> int:
    return choice.start + problem.activities[index].alternatives[choice.alternative].up


def _affordable(budget: dict[str, float], alternative: Alternative) -> bool:
    return all(need <= budget[name] + EPSILON for name, need in alternative.mode.budgets.items())


def _spend(budget: dict[str, float], alternative: Alternative) -> None:
    for name, need in alternative.mode.budgets.items():
        budget[name] -= need


def canonical(problem: Problem, activity: Activity, choice: Choice) -> Choice:
    """The same choice under the fastest alternative whose spread its split satisfies.

    A gang allowed to spread may land on one node, where it runs faster. A job preempted only to go on where it was
    had better continue.
    """
    chosen = activity.alternatives[choice.alternative]
    if activity.hold is not None and choice.start <= activity.hold.up and choice.split == activity.hold.split:
        mode, held = chosen.mode, activity.hold.mode
        if (mode.gpus, mode.cpus_per_gpu, mode.cpus) == (held.gpus, held.cpus_per_gpu, held.cpus):
            return Choice(0, 0, activity.hold.split)
    if chosen.fixed is not None or not choice.split or chosen.spread == "node":
        return choice
    racks = {problem.instance.cluster.nodes[node].rack for node, _ in choice.split}
    spans = {"cluster"}
    if len(choice.split) == 1:
        spans |= {"rack", "node"}
    elif len(racks) == 1 and None not in racks:
        spans.add("rack")
    best = choice.alternative
    for i, other in enumerate(activity.alternatives):
        if other.fixed is None and other.mode == chosen.mode and other.spread in spans and (
            other.seconds < activity.alternatives[best].seconds
        ):
            best = i
    return Choice(best, choice.start, choice.split)
