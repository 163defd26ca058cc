"""Free capacity of real nodes after a round, and who would have to leave for more."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from math import inf

from ..frozen import record
from ..model import Job, Mode, Placement
from ..physics import memory_gib
from ..physics.capacity import Ties, gpus_that_fit
from ..physics.modes import WIDEST_FIRST
from ..round.held import SLACK
from ..round.model import NODE_ROWS, Ints, RoundModel
from ..round.patterns import Pattern

MOST_EXACT = 10
"""On a node with no more movable jobs than this, the cheapest to leave are found by trying all."""


@record
class Leaving:
    """The nodes a pattern would get and the jobs (by index) that would have to leave, with the
    value lost."""

    nodes: tuple[int, ...]
    jobs: tuple[int, ...]
    lost: float


class Room:
    """`held` is what each job (by index in the model) holds from now on, `chosen` its option or -1.
    Mandatory jobs never leave. `free` are the GPUs, cores and memory left on each node."""

    def __init__(
        self, model: RoundModel, chosen: Ints, held: dict[int, tuple[Mode, Placement]]
    ) -> None:
        self._model = model
        room = model.held.room_gpus, model.held.room_cpus, model.held.room_memory_gib
        self.free = [list(own) for own in zip(*(column.tolist() for column in room), strict=True)]
        self._holders: list[dict[int, tuple[int, int, float]]] = [{} for _ in self.free]
        self._on: dict[int, list[int]] = {}
        self._domains = model.held.domains.copy()
        for j, (mode, placement) in held.items():
            job = model.jobs[j]
            self._on[j] = [model.instance.cluster.node_order[slot.node] for slot in placement]
            self._domains.take(self._domains.ties(job), self._on[j])
            for n, slot in zip(self._on[j], placement, strict=True):
                own = slot.gpus, slot.cpus, memory_gib(job, mode, slot.gpus)
                self._holders[n][j] = own
                self.free[n] = [
                    there - amount for there, amount in zip(self.free[n], own, strict=True)
                ]
        self._takes = model.rows.shared
        used = model.usage(chosen[chosen >= 0])
        self._left = {
            r: float(model.rows.capacity[r] - used[r])
            for r, row in enumerate(model.rows.limits)
            if row.what not in NODE_ROWS
        }
        self.value: dict[int, float] = {}
        self._users: dict[int, dict[int, float]] = defaultdict(dict)
        for j, option in enumerate(chosen.tolist()):
            if option >= 0:
                self.value[j] = float(model.options.value[option])
                for r, amount in self._takes.get(int(model.options.pattern[option]), ()):
                    self._users[r][j] = amount
        self._known: dict[object, Leaving | None] = {}

    def short(self, p: int) -> tuple[str, ...]:
        """Return the shared rows of which too little is left for a pattern."""
        return tuple(
            self._model.rows.limits[r].name
            for r, amount in self._takes.get(p, ())
            if not self._enough(r, amount)
        )

    def _enough(self, r: int, amount: float, gone: Collection[int] = ()) -> bool:
        """Return whether enough of a shared row is left once `gone` have left."""
        capacity, users = float(self._model.rows.capacity[r]), self._users[r]
        back = sum(users[j] for j in users if j in gone)
        return amount <= self._left[r] + back + SLACK * max(1.0, capacity)

    def room(self, p: int, job: Job) -> tuple[int, int]:
        """Return the GPUs free for a pattern: the most that lie as it needs them (on one node, in
        one rack, anywhere), and all. For one without GPUs 1 where a node has its cores and memory
        free."""
        pattern = self._model.patterns.fresh[p]
        if not pattern.classes:
            return 1, 1
        regions = self._regions(pattern, self._domains.ties(job))
        most = max((self._usable(pattern, region) for region in regions), default=0)
        return most, sum(self.free[n][0] for n in self._nodes_of(pattern))

    def _nodes_of(self, pattern: Pattern) -> list[int]:
        kinds = (kind for kind in self._model.classes if kind.bit & pattern.classes)
        return [n for kind in kinds for n in kind.nodes]

    def cheapest(self, p: int, job: Job) -> Leaving | None:
        """Return who would have to leave for a pattern, at the least value that was found; None
        where those who may leave are too few. What they would give back of uplinks is not
        counted."""
        pattern = self._model.patterns.fresh[p]
        takes, ties = tuple(self._takes.get(p, ())), self._domains.ties(job)
        amounts = pattern.gpus, pattern.cpus, pattern.memory_gib
        where = pattern.classes, pattern.together, pattern.option.spread
        key = amounts, where, takes, ties
        if key not in self._known:
            self._known[key] = self._cheapest(p, pattern, ties)
        return self._known[key]

    def _cheapest(self, p: int, pattern: Pattern, ties: Ties | None) -> Leaving | None:
        first: list[int] = []
        for r, amount in self._takes.get(p, ()):
            users = self._users[r]
            for j in sorted(users, key=lambda j: (self.value[j] / users[j], j)):
                if self._enough(r, amount, first):
                    break
                if j not in first and self._may_leave(j):
                    first.append(j)
            if not self._enough(r, amount, first):
                return None
        best = Leaving((), (), 0.0) if not pattern.classes else None
        for region in self._regions(pattern, ties) if pattern.classes else ():
            limit = inf if best is None else best.lost
            leaving = self._in_region(pattern, region, frozenset(first), limit)
            if leaving is not None and (best is None or leaving.lost < best.lost):
                best = leaving
                if not best.jobs:
                    break
        if best is None:
            return None
        jobs = self._needed(p, pattern, best.nodes, (*first, *best.jobs))
        return Leaving(best.nodes, jobs, sum(self.value[j] for j in jobs))

    def _may_leave(self, j: int) -> bool:
        return j in self.value and not self._model.must[j]

    def _regions(self, pattern: Pattern, ties: Ties | None) -> list[list[int]]:
        """Return where a pattern may lie: single nodes, racks, or all nodes of its classes whose
        uplinks have room."""
        inside = self._nodes_of(pattern)
        spread, slow = pattern.option.spread, 0
        if ties is not None:
            closed, slow = self._domains.closed(ties), self._domains.behind_slow_uplinks(ties)
            inside = [n for n in inside if not closed >> n & 1]
            spread = max(spread, self._domains.widest(ties), key=WIDEST_FIRST.index)
        if pattern.together or spread == "node":
            return [[n] for n in inside]
        if spread != "rack" and not slow:
            return [inside]
        members = set(inside)
        racks = [[n for n in rack if n in members] for rack in self._model.held.racks]
        return racks if spread == "rack" else [*racks, [n for n in inside if not slow >> n & 1]]

    def _usable(self, pattern: Pattern, nodes: Iterable[int], gone: Collection[int] = ()) -> int:
        """Return the GPUs of a pattern that nodes have room for once `gone` have left; of one
        without GPUs how many nodes have room for it."""
        return sum(self._usable_on(pattern, n, gone) for n in nodes)

    def _usable_on(self, pattern: Pattern, n: int, gone: Collection[int]) -> int:
        gpus, cpus, memory = self.free[n]
        if gone:
            for j, held in self._holders[n].items():
                if j in gone:
                    gpus, cpus, memory = gpus + held[0], cpus + held[1], memory + held[2]
        memory += SLACK * max(1.0, pattern.memory_gib)
        if not pattern.gpus:
            return int(cpus >= pattern.cpus and memory >= pattern.memory_gib)
        each, per_gpu = pattern.cpus // pattern.gpus, pattern.memory_gib / pattern.gpus
        return gpus_that_fit(gpus, cpus, memory, each, per_gpu)

    def _has_room(self, pattern: Pattern, nodes: Iterable[int], gone: Collection[int]) -> bool:
        return self._usable(pattern, nodes, gone) >= max(pattern.gpus, 1)

    def _in_region(
        self, pattern: Pattern, region: list[int], gone: frozenset[int], limit: float
    ) -> Leaving | None:
        """Return the cheapest to leave in a region, if their value is below `limit`."""
        if self._has_room(pattern, region, gone):
            return Leaving(self._nodes(pattern, region, gone), (), 0.0)
        users: dict[int, int] = defaultdict(int)
        for n in region:
            for j, (gpus, _, _) in self._holders[n].items():
                if j not in gone and self._may_leave(j):
                    users[j] += gpus
        if not users or min(self.value[j] for j in users) >= limit:
            return None
        if not self._has_room(pattern, region, gone | users.keys()):
            return None
        by_value = sorted(users, key=lambda j: (self.value[j], j))
        if len(region) == 1 and len(users) <= MOST_EXACT:
            jobs = self._by_trying(pattern, region, gone, by_value, limit)
        else:
            by_density = sorted(users, key=lambda j: (self.value[j] / max(users[j], 0.1), j))
            jobs = self._by_density(pattern, region, gone, by_value, by_density)
        lost = sum(self.value[j] for j in jobs)
        if not jobs or lost >= limit:
            return None
        return Leaving(self._nodes(pattern, region, gone.union(jobs)), jobs, lost)

    def _by_trying(
        self,
        pattern: Pattern,
        node: list[int],
        gone: frozenset[int],
        users: list[int],
        limit: float,
    ) -> tuple[int, ...]:
        """Return the cheapest of all sets of `users`, which come by value, whose leaving makes room
        on a node, if below `limit`; else nothing."""
        best, least = (), limit  # type: tuple[int, ...], float

        def extend(i: int, taken: tuple[int, ...], lost: float) -> None:
            nonlocal best, least
            for k in range(i, len(users)):
                more = lost + self.value[users[k]]
                if more >= least:  # no later one is cheaper
                    return
                with_it = (*taken, users[k])
                if self._has_room(pattern, node, gone.union(with_it)):
                    best, least = with_it, more
                    return
                extend(k + 1, with_it, more)

        extend(0, (), 0.0)
        return best

    def _by_density(
        self,
        pattern: Pattern,
        region: list[int],
        gone: frozenset[int],
        by_value: list[int],
        by_density: list[int],
    ) -> tuple[int, ...]:
        """Return users by density until there is room, then without those that are not needed after
        all; or one alone, if that is cheaper."""
        need, left, inside = max(pattern.gpus, 1), set(gone), set(region)
        total = self._usable(pattern, region, gone)

        def gain(j: int) -> int:
            """Return the GPUs more once job `j` has left, too; it is in `left` afterwards."""
            mine = [n for n in self._on[j] if n in inside]
            left.discard(j)
            before = self._usable(pattern, mine, left)
            left.add(j)
            return self._usable(pattern, mine, left) - before

        alone: int | None = None
        for j in by_value:
            is_enough = total + gain(j) >= need
            left.discard(j)
            if is_enough:
                alone = j
                break
        chosen: list[int] = []
        for j in by_density:
            if total >= need:
                break
            total += gain(j)
            chosen.append(j)
        for j in sorted(chosen, key=lambda j: (-self.value[j], j)):
            more = gain(j)
            if total - more >= need:
                total -= more
                left.discard(j)
                chosen.remove(j)
        if alone is not None and self.value[alone] <= sum(self.value[j] for j in chosen):
            return (alone,)
        return tuple(chosen)

    def _nodes(self, pattern: Pattern, region: list[int], gone: frozenset[int]) -> tuple[int, ...]:
        """Return the nodes of a region on which a pattern would lie, those with most room first, in
        the cluster's order."""
        missing, nodes = max(pattern.gpus, 1), []
        room = {n: self._usable_on(pattern, n, gone) for n in region}
        for n in sorted(region, key=lambda n: -room[n]):
            if missing <= 0 or not room[n]:
                break
            nodes.append(n)
            missing -= room[n]
        return tuple(sorted(nodes))

    def _needed(
        self, p: int, pattern: Pattern, nodes: tuple[int, ...], jobs: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return those of `jobs` without whose leaving there would be too little, the dearest left
        out first."""
        needed = list(jobs)
        for j in sorted(jobs, key=lambda j: (-self.value[j], j)):
            rest = frozenset(needed) - {j}
            if (self._has_room(pattern, nodes, rest) or not pattern.classes) and all(
                self._enough(r, amount, rest) for r, amount in self._takes.get(p, ())
            ):
                needed.remove(j)
        return tuple(needed)
