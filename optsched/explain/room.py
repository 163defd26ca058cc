"""What is free on real nodes after a round, and who would have to leave for more."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from ..model.instance import Placement
from ..model.job import Job, Mode
from ..physics import memory_gib
from ..physics.capacity import Ties
from ..physics.modes import WIDEST_FIRST
from ..round.held import SLACK
from ..round.model import NODE_ROWS, Ints, RoundModel
from ..round.patterns import Pattern

MOST_EXACT = 10
"""On a node with no more movable jobs than this, the cheapest to leave are found by trying all."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The nodes a pattern would get and the jobs (by index) that would have to leave, with the
    value lost."""

    nodes: tuple[int, ...]
    jobs: tuple[int, ...]
    lost: float


@dataclass(slots=True)
class _Hold:
    job: int
    gpus: int
    cpus: int
    memory: float


class Room:
    """`held` is what each job (by index in the model) holds from now on, `chosen` its option or -1.
    Jobs that must be kept never leave."""

    def __init__(
        self, model: RoundModel, chosen: Ints, held: dict[int, tuple[Mode, Placement]]
    ) -> None:
        self._model = model
        self.gpus: list[int] = model.held.room_gpus.tolist()
        self.cpus: list[float] = model.held.room_cpus.tolist()
        self.memory: list[float] = model.held.room_memory_gib.tolist()
        self.holders: list[list[_Hold]] = [[] for _ in self.gpus]
        self.on: dict[int, list[int]] = {}
        self.value = {
            j: float(model.options.value[o]) for j, o in enumerate(chosen.tolist()) if o >= 0
        }
        order = model.instance.cluster.node_order
        for j, (mode, placement) in held.items():
            self.on[j] = []
            for slot in placement:
                n = order[slot.node]
                self._put(
                    n, _Hold(j, slot.gpus, slot.cpus, memory_gib(model.jobs[j], mode, slot.gpus))
                )
                self.on[j].append(n)
        self._takes = model.rows.shared
        shared = [r for r, row in enumerate(model.rows.limits) if row.what not in NODE_ROWS]
        used = model.usage(chosen[chosen >= 0])
        self._left = {r: float(model.rows.capacity[r] - used[r]) for r in shared}
        self._pattern = {
            j: int(model.options.pattern[o]) for j, o in enumerate(chosen.tolist()) if o >= 0
        }
        self._users: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for j, p in self._pattern.items():
            for r, amount in self._takes.get(p, ()):
                self._users[r].append((j, amount))
        self._domains = model.held.domains.copy()
        for j in held:
            self._domains.take(self._domains.ties(model.jobs[j]), self.on[j])
        self._known: dict[object, Leaving | None] = {}

    def _put(self, n: int, hold: _Hold) -> None:
        self.holders[n].append(hold)
        self.gpus[n] -= hold.gpus
        self.cpus[n] -= hold.cpus
        self.memory[n] -= hold.memory

    def short(self, p: int) -> tuple[str, ...]:
        """The shared rows of which too little is left for a pattern."""
        return tuple(
            self._model.rows.limits[r].name
            for r, amount in self._takes.get(p, ())
            if not self._enough(r, amount)
        )

    def _enough(self, r: int, amount: float, back: float = 0.0) -> bool:
        return amount <= self._left[r] + back + SLACK * max(
            1.0, float(self._model.rows.capacity[r])
        )

    def free(self, p: int, job: Job) -> tuple[int, int]:
        """GPUs free for a pattern: the most that lie as it needs them (on one node, in one rack,
        anywhere), and all. For one without GPUs 1 where a node has its cores and memory free."""
        pattern = self._model.patterns.fresh[p]
        if not pattern.classes:
            return 1, 1
        most = [0]
        for region in self._regions(pattern, self._domains.ties(job)):
            most.append(sum(self._usable(pattern, n, ()) for n in region))
        total = sum(
            self.gpus[n]
            for one in self._model.classes
            if one.bit & pattern.classes
            for n in one.nodes
        )
        return max(most), total

    def cheapest(self, p: int, job: Job) -> Leaving | None:
        """Who would have to leave for a pattern, at the least value that was found; None where
        those who may leave are too few. What they would give back of uplinks is not counted."""
        pattern = self._model.patterns.fresh[p]
        takes, ties = tuple(self._takes.get(p, ())), self._domains.ties(job)
        key = (
            pattern.classes,
            pattern.together,
            pattern.gpus,
            pattern.cpus,
            pattern.memory_gib,
            ("node" if pattern.together else pattern.option.spread),
            takes,
            ties,
        )
        if key not in self._known:
            self._known[key] = self._cheapest(p, pattern, ties)
        return self._known[key]

    def _cheapest(self, p: int, pattern: Pattern, ties: Ties | None) -> Leaving | None:
        first: list[int] = []
        for r, amount in self._takes.get(p, ()):
            users = sorted(
                ((j, much) for j, much in self._users[r] if self._may_leave(j)),
                key=lambda one: (self.value[one[0]] / one[1], one[0]),
            )
            back = sum(much for j, much in users if j in first)
            for j, much in users:
                if self._enough(r, amount, back):
                    break
                if j not in first:
                    first.append(j)
                    back += much
            if not self._enough(r, amount, back):
                return None
        gone = frozenset(first)
        best = Leaving((), (), 0.0) if not pattern.classes else None
        for region in self._regions(pattern, ties) if pattern.classes else ():
            found = self._in_region(
                pattern, region, gone, float("inf") if best is None else best.lost
            )
            if found is not None and (best is None or found.lost < best.lost):
                best = found
                if not best.jobs:
                    break
        if best is None:
            return None
        jobs = self._needed(p, pattern, best.nodes, (*first, *best.jobs))
        return Leaving(best.nodes, jobs, sum(self.value[j] for j in jobs))

    def _may_leave(self, j: int) -> bool:
        return j in self.value and not self._model.must[j]

    def _regions(self, pattern: Pattern, ties: Ties | None) -> list[list[int]]:
        """Where a pattern may lie: single nodes, racks, or all nodes of its classes whose uplinks
        have room."""
        inside = [
            n for kind in self._model.classes if kind.bit & pattern.classes for n in kind.nodes
        ]
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

    def _usable(self, pattern: Pattern, n: int, gone: Collection[int]) -> int:
        """GPUs of a pattern that node `n` has room for once `gone` have left; 1 for a pattern
        without GPUs."""
        gpus, cpus, memory = self.gpus[n], self.cpus[n], self.memory[n]
        if gone:
            for hold in self.holders[n]:
                if hold.job in gone:
                    gpus, cpus, memory = gpus + hold.gpus, cpus + hold.cpus, memory + hold.memory
        slack = SLACK * max(1.0, pattern.memory_gib)
        if not pattern.gpus:
            return int(cpus >= pattern.cpus and memory + slack >= pattern.memory_gib)
        each, per_gpu = pattern.cpus // pattern.gpus, pattern.memory_gib / pattern.gpus
        most = max(0, gpus)
        if each:
            most = int(min(most, max(0, cpus) // each))
        if per_gpu:
            most = int(min(most, max(0.0, memory + slack) // per_gpu))
        return most

    def _in_region(
        self, pattern: Pattern, region: list[int], gone: frozenset[int], limit: float
    ) -> Leaving | None:
        """The cheapest to leave in a region, if their value is below `limit`."""
        need = max(pattern.gpus, 1)
        have = sum(self._usable(pattern, n, gone) for n in region)
        if have >= need:
            return Leaving(self._nodes(pattern, region, gone), (), 0.0)
        users: dict[int, int] = {}
        for n in region:
            for hold in self.holders[n]:
                if hold.job not in gone and self._may_leave(hold.job):
                    users[hold.job] = users.get(hold.job, 0) + hold.gpus
        if not users or min(self.value[j] for j in users) >= limit:
            return None
        if sum(self._usable(pattern, n, gone | users.keys()) for n in region) < need:
            return None
        if len(region) == 1 and len(users) <= MOST_EXACT:
            jobs = self._by_trying(
                pattern, region[0], gone, sorted(users, key=lambda j: (self.value[j], j)), limit
            )
        else:
            by_density = sorted(users, key=lambda j: (self.value[j] / max(users[j], 0.1), j))
            jobs = self._by_density(pattern, region, gone, by_density)
        lost = sum(self.value[j] for j in jobs)
        if not jobs or lost >= limit:
            return None
        return Leaving(self._nodes(pattern, region, gone.union(jobs)), jobs, lost)

    def _by_trying(
        self, pattern: Pattern, n: int, gone: frozenset[int], users: list[int], limit: float
    ) -> tuple[int, ...]:
        """The cheapest of all sets of `users` whose leaving makes room on node `n`, if below
        `limit`; else nothing."""
        need, best, least = max(pattern.gpus, 1), (), limit  # type: int, tuple[int, ...], float

        def extend(i: int, taken: tuple[int, ...], lost: float) -> None:
            nonlocal best, least
            for k in range(i, len(users)):
                more = lost + self.value[users[k]]
                if more >= least:  # users come by value: no later one is cheaper
                    return
                with_it = (*taken, users[k])
                if self._usable(pattern, n, gone.union(with_it)) >= need:
                    best, least = with_it, more
                    return
                extend(k + 1, with_it, more)

        extend(0, (), 0.0)
        return best

    def _by_density(
        self, pattern: Pattern, region: list[int], gone: frozenset[int], users: list[int]
    ) -> tuple[int, ...]:
        """Users in the given order until there is room, then without those that are not needed
        after all; or one alone, if that is cheaper."""
        need, left = max(pattern.gpus, 1), set(gone)
        room = {n: self._usable(pattern, n, gone) for n in region}
        total = sum(room.values())

        def change(j: int) -> int:
            """GPUs more or less once what `left` has of job `j` has changed."""
            before = sum(room[n] for n in self.on[j] if n in room)
            for n in self.on[j]:
                if n in room:
                    room[n] = self._usable(pattern, n, left)
            return sum(room[n] for n in self.on[j] if n in room) - before

        found: list[int] = []
        alone: int | None = None
        for j in sorted(users, key=lambda j: (self.value[j], j)):
            left.add(j)
            more = change(j)
            left.discard(j)
            change(j)
            if total + more >= need:
                alone = j
                break
        for j in users:
            if total >= need:
                break
            left.add(j)
            found.append(j)
            total += change(j)
        for j in sorted(found, key=lambda j: (-self.value[j], j)):
            left.discard(j)
            less = change(j)
            if total + less >= need:
                total += less
                found.remove(j)
            else:
                left.add(j)
                change(j)
        if alone is not None and self.value[alone] <= sum(self.value[j] for j in found):
            return (alone,)
        return tuple(found)

    def _nodes(self, pattern: Pattern, region: list[int], gone: frozenset[int]) -> tuple[int, ...]:
        """Nodes of a region on which a pattern would lie, those with most room first, in the
        cluster's order."""
        left, found = max(pattern.gpus, 1), []
        room = {n: self._usable(pattern, n, gone) for n in region}
        for n in sorted(region, key=lambda n: -room[n]):
            if left <= 0 or not room[n]:
                break
            found.append(n)
            left -= room[n]
        return tuple(sorted(found))

    def _needed(
        self, p: int, pattern: Pattern, nodes: tuple[int, ...], jobs: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Those of `jobs` without whose leaving there would be too little, the dearest left out
        first."""
        needed = list(jobs)
        for j in sorted(jobs, key=lambda j: (-self.value[j], j)):
            rest = frozenset(needed) - {j}
            if (
                sum(self._usable(pattern, n, rest) for n in nodes) < max(pattern.gpus, 1)
                and pattern.classes
            ):
                continue
            if all(
                self._enough(r, amount, sum(much for k, much in self._users[r] if k in rest))
                for r, amount in self._takes.get(p, ())
            ):
                needed.remove(j)
        return tuple(needed)
