"""Free capacity of every node while the options of a round are put in place."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from ..model import Job
from ..physics import memory_gib, memory_gib_per_gpu, node_counts
from ..physics.capacity import Ties, gpus_that_fit, or_inf
from ..physics.modes import WIDEST_FIRST
from .held import SLACK
from .model import Ints, RoundModel
from .patterns import NodeClass, Pattern

FULL = 0.01
"""How much a fuller node counts against one that is left less even."""
Taken = list[tuple[int, int, int]]
"""(node, GPUs, cores) of one job."""


class Nodes:
    """Free capacity of every node, and of what all nodes share, while options are put in place one
    by one.

    Nodes of a class are kept by their free GPUs, so that the fullest node that still fits is found
    without a scan; the first of equals is the one that came first in the cluster. Where cores or
    memory are scarce, a node is sought of which as much is left of each. `full` are
    patterns for which there is no room: there only gets less.
    """

    def __init__(self, model: RoundModel) -> None:
        self._model, self._held = model, model.held
        self.gpus: list[int] = self._held.room_gpus.tolist()
        self.cpus: list[float] = self._held.room_cpus.tolist()
        self.memory: list[float] = self._held.room_memory_gib.tolist()
        self._class_of = model.class_of
        self._rack, self._racks = self._held.rack, self._held.racks
        self._takes = model.rows.shared
        self._left = [
            limit.capacity + SLACK * max(1.0, limit.capacity) for limit in model.rows.limits
        ]
        self._reserved: list[tuple[int, int]] = []
        self._domains = self._held.domains.copy()
        self._indexed = False
        self.full: set[int] = set()
        self._members: dict[int, list[NodeClass]] = {}

    # ------------------------------------------------------------------------------------------
    # bookkeeping

    def keep(self, hold: int) -> bool:
        """Take the given GPUs of a hold, by its number; False if what nodes share does not allow
        it."""
        pattern = len(self._model.patterns.fresh) + hold
        ties, nodes = self._ties(hold), self._nodes_of(hold)
        if not (self._has_shared(pattern) and self._domains.carry(ties, nodes)):
            return False
        self._take_shared(pattern)
        for n, gpus, cpus, memory in self._held.holds[hold].parts:
            self._change(n, -gpus, -cpus, -memory)
        self._domains.take(ties, nodes)
        return True

    def keep_all(self, holds: Ints) -> bool:
        """Take the given GPUs of many holds at once, before `index`; False, and none of them, where
        what all nodes share may not allow it."""
        held, rows = self._held, self._model.rows
        taken = np.zeros(len(held.holds), dtype=bool)
        taken[holds] = True
        patterns = np.zeros(len(self._model.patterns.gpus), dtype=bool)
        patterns[len(self._model.patterns.fresh) + holds] = True
        which = patterns[rows.pattern] & rows.is_shared[rows.row]
        uses = np.bincount(rows.row[which], rows.amount[which], minlength=len(rows.limits))
        left = np.array(self._left) - uses
        if self._indexed or (left < 0).any():
            return False
        self._left = left.tolist()
        own = taken[held.owner]
        for room, amounts in (
            (self.gpus, held.gpus),
            (self.cpus, held.cpus),
            (self.memory, held.memory_gib),
        ):
            used = np.bincount(held.node[own], amounts[own], minlength=len(room))
            room[:] = (np.array(room) - used.astype(amounts.dtype)).tolist()
        for hold in held.tied:
            if taken[hold]:
                self._domains.take(self._ties(hold), self._nodes_of(hold))
        return True

    def can_keep(self, hold: int) -> bool:
        """Return whether there is room for `keep`."""
        return (
            all(
                self.gpus[n] >= gpus and self._has(n, cpus, memory)
                for n, gpus, cpus, memory in self._held.holds[hold].parts
            )
            and self._has_shared(len(self._model.patterns.fresh) + hold)
            and self._domains.hold(self._ties(hold), self._nodes_of(hold))
        )

    def _has(self, n: int, cpus: float, memory_gib: float) -> bool:
        return self.cpus[n] >= cpus and self.memory[n] * (1 + SLACK) >= memory_gib

    def _ties(self, hold: int) -> Ties | None:
        return self._domains.ties(self._model.jobs[self._held.job[hold]])

    def _nodes_of(self, hold: int) -> list[int]:
        return [n for n, *_ in self._held.holds[hold].parts]

    def place_of(self, hold: int) -> Taken:
        """Return what a hold has of nodes."""
        return [part[:3] for part in self._held.holds[hold].parts]

    def _change(self, n: int, gpus: int, cpus: int, memory: float) -> None:
        if self._indexed:
            buckets = self._buckets[self._class_of[n]]
            del buckets[self.gpus[n]][n]
            buckets[self.gpus[n] + gpus][n] = None
            self._count(n, gpus)
            if (room := self._rooms.get(self._class_of[n])) is not None:
                room[:, self._position[n]] += (gpus, cpus, memory)
        self.gpus[n] += gpus
        self.cpus[n] += cpus
        self.memory[n] += memory

    def index(self) -> None:
        """Prepare for `place`, once the kept jobs are in."""
        model = self._model
        self._buckets: list[list[dict[int, None]]] = [
            [{} for _ in range(kind.node.gpus + 1)] for kind in model.classes
        ]
        self._free = [0] * len(model.classes)
        self._rack_free = [np.zeros(len(self._racks), dtype=np.int64) for _ in model.classes]
        for n, c in enumerate(model.class_of):
            self._buckets[c][self.gpus[n]][n] = None
            self._count(n, self.gpus[n])
        room = np.array([self.gpus, self.cpus, self.memory], dtype=float)
        scarce = [kind for kind in model.classes if kind.bit & model.scarce and kind.node.gpus]
        self._rooms = {kind.number: room[:, kind.nodes] for kind in scarce}
        self._position = {n: i for kind in scarce for i, n in enumerate(kind.nodes)}
        self._indexed = True

    def _count(self, n: int, gpus: int) -> None:
        """Note that so many more GPUs of a node are free."""
        self._free[self._class_of[n]] += gpus
        if self._rack[n] >= 0:
            self._rack_free[self._class_of[n]][self._rack[n]] += gpus

    def reserve(self) -> None:
        """Take what is promised to others out of reach, once the kept jobs are in and before
        anything is placed."""
        order = self._model.instance.cluster.node_order
        for placement, _ in self._model.reserved:
            for slot in placement:
                n = order[slot.node]
                gpus = max(0, min(slot.gpus, self.gpus[n]))
                self._reserved.append((n, gpus))
                self._change(n, -gpus, 0, 0.0)

    def open_reserved(self) -> None:
        """Put what is promised to others within reach again: for jobs that will be done in time."""
        for n, gpus in self._reserved:
            self._change(n, gpus, 0, 0.0)
        self._reserved = []
        self.full.clear()

    def most_together(self) -> list[int]:
        """Return the most GPUs free on one node, by class."""
        return [
            max((g for g, nodes in enumerate(buckets) if nodes), default=0)
            for buckets in self._buckets
        ]

    def free_gpus(self) -> list[int]:
        """Free GPUs by class."""
        return self._free

    # ----------------------------------------------------------------------------------------------
    # placing

    def place(self, option: int) -> Taken | None:
        """Take room for a fresh option, or None where there is none: then its pattern is `full`,
        as there only gets less."""
        model = self._model
        p = int(model.options.pattern[option])
        if p in self.full:
            return None
        pattern = model.patterns.fresh[p]
        job = model.jobs[int(model.options.job[option])]
        ties = self._domains.ties(job)
        held = self._find(pattern, job, None) if self._has_shared(p) else None
        if held and ties is not None and not self._domains.hold(ties, [n for n, *_ in held]):
            held = self._find(pattern, job, ties)
        if held is None:
            if ties is None:
                self.full.add(p)
            return None
        self.take(option, held)
        return held

    def can_take(self, option: int, held: Taken) -> bool:
        """Return whether there is room for `take`; racks and uplinks are not looked at."""
        p = int(self._model.options.pattern[option])
        pattern = self._model.patterns.fresh[p]
        per_gpu = pattern.memory_gib / max(pattern.gpus, 1)
        return self._has_shared(p) and all(
            self.gpus[n] >= gpus and self._has(n, cpus, per_gpu * max(gpus, 1))
            for n, gpus, cpus in held
        )

    def take(self, option: int, held: Taken) -> None:
        """Take the given room for a fresh option."""
        p, job = int(self._model.options.pattern[option]), int(self._model.options.job[option])
        pattern = self._model.patterns.fresh[p]
        self._take_shared(p)
        self._domains.take(self._domains.ties(self._model.jobs[job]), [n for n, *_ in held])
        per_gpu = pattern.memory_gib / max(pattern.gpus, 1)
        for n, gpus, cpus in held:
            self._change(n, -gpus, -cpus, -per_gpu * max(gpus, 1))

    def _has_shared(self, pattern: int) -> bool:
        takes = self._takes.get(pattern)
        return takes is None or all(amount <= self._left[r] for r, amount in takes)

    def _take_shared(self, pattern: int) -> None:
        for r, amount in self._takes.get(pattern, ()):
            self._left[r] -= amount

    def _classes(self, pattern: Pattern) -> list[NodeClass]:
        mask = pattern.classes
        if mask not in self._members:
            self._members[mask] = [c for c in self._model.classes if c.bit & mask]
        return self._members[mask]

    def _find(self, pattern: Pattern, job: Job, ties: Ties | None) -> Taken | None:
        """Find room on one node or within one rack, else on racks whose uplinks have room, beside
        no others than the job may be."""
        if not pattern.classes:
            return []
        closed, widest = 0, pattern.option.spread
        if ties is not None:
            closed = self._domains.closed(ties)
            widest = max(widest, self._domains.widest(ties), key=WIDEST_FIRST.index)
        if pattern.together or widest == "node":
            return self._one_node(pattern, closed)
        if sum(self._free[c.number] for c in self._classes(pattern)) < pattern.gpus:
            return None
        if ties is None and widest == "cluster":
            return self._spread(pattern, job, None)
        held = self._in_a_rack(pattern, job, closed)
        if held is not None:
            return held
        if widest == "rack":
            return self._outside_racks(pattern, job, closed)
        closed |= self._domains.behind_slow_uplinks(ties)
        return self._spread(pattern, job, [n for n in range(len(self.gpus)) if not closed >> n & 1])

    def _in_a_rack(self, pattern: Pattern, job: Job, closed: int) -> Taken | None:
        """Take GPUs in the fullest rack that has room on nodes that are not closed."""
        total = sum(self._rack_free[c.number] for c in self._classes(pattern))
        assert isinstance(total, np.ndarray)
        able = np.flatnonzero(total >= pattern.gpus)
        for rack in able[np.argsort(total[able], kind="stable")]:
            nodes = [n for n in self._racks[int(rack)] if not closed >> n & 1]
            held = self._spread(pattern, job, nodes)
            if held is not None:
                return held
        return None

    def _outside_racks(self, pattern: Pattern, job: Job, closed: int) -> Taken | None:
        """Take GPUs on one node that is in no rack and not closed."""
        able = (n for free in self._buckets for own in free[pattern.gpus :] for n in own)
        for n in sorted(n for n in able if self._rack[n] < 0 and not closed >> n & 1):
            held = self._spread(pattern, job, [n])
            if held is not None:
                return held
        return None

    def _one_node(self, pattern: Pattern, closed: int) -> Taken | None:
        for c in self._classes(pattern):
            scarce = c.number in self._rooms and not closed
            n = self._balanced(c, pattern) if scarce else self._fullest(c, pattern, closed)
            if n is not None:
                return [(n, pattern.gpus, pattern.cpus)]
        return None

    def _fullest(self, c: NodeClass, pattern: Pattern, closed: int) -> int | None:
        for nodes in self._buckets[c.number][pattern.gpus :]:
            for n in nodes:
                if self._has(n, pattern.cpus, pattern.memory_gib) and not closed >> n & 1:
                    return n
        return None

    def _balanced(self, c: NodeClass, pattern: Pattern) -> int | None:
        """Return the node whose GPUs, cores and memory would be left in parts that are most alike:
        nothing is left that lacks the other. Of equals the fullest."""
        room = self._rooms[c.number]
        takes = np.array([[pattern.gpus], [pattern.cpus], [pattern.memory_gib * (1 - SLACK)]])
        able = np.flatnonzero((room >= takes).all(axis=0))
        if not len(able):
            return None
        limits = np.array(
            [[c.largest.gpus], [or_inf(c.largest.cpus)], [or_inf(c.largest.memory_gib)]]
        )
        which = np.isfinite(limits[:, 0])
        left = ((room[:, able] - takes)[which]) / limits[which]
        uneven = left.max(axis=0) - left.min(axis=0) + FULL * left[0]
        return c.nodes[int(able[uneven.argmin()])]

    def _spread(self, pattern: Pattern, job: Job, rack: list[int] | None) -> Taken | None:
        """Take GPUs on as few nodes as possible, the emptiest first."""
        counts = node_counts(job, pattern.gpus)
        if counts is not None:
            placed = (self._evenly(pattern, job, rack, n) for n in counts)
            return next((held for held in placed if held is not None), None)
        mode, memory_per_gpu = pattern.option.mode, memory_gib_per_gpu(job, pattern.option.mode)
        want, each = mode.gpus, mode.cpus_per_gpu
        held: Taken = []
        for n in self._by_free(pattern, rack, 1, False):
            memory = self.memory[n] * (1 + SLACK)
            can = gpus_that_fit(self.gpus[n], self.cpus[n], memory, each, memory_per_gpu)
            if take := min(can, want):
                held.append((n, take, take * each))
                want -= take
                if not want:
                    return sorted(held)
        return None

    def _evenly(
        self, pattern: Pattern, job: Job, rack: list[int] | None, count: int
    ) -> Taken | None:
        """Take equal parts on `count` nodes, on the fullest that still hold one."""
        mode = pattern.option.mode
        part = mode.gpus // count
        cpus, memory = part * mode.cpus_per_gpu, memory_gib(job, mode, part)
        able = (n for n in self._by_free(pattern, rack, part, True) if self._has(n, cpus, memory))
        held = [(n, part, cpus) for n in islice(able, count)]
        return sorted(held) if len(held) == count else None

    def _by_free(
        self, pattern: Pattern, rack: list[int] | None, least: int, fullest_first: bool
    ) -> Iterator[int]:
        """Return nodes of a pattern, of the whole cluster or a rack, with at least so many free
        GPUs, in the order of these."""
        classes = self._classes(pattern)
        if rack is not None:
            inside = {kind.number for kind in classes}
            mine = (n for n in rack if self.gpus[n] >= least and self._class_of[n] in inside)
            return iter(
                sorted(mine, key=lambda n: self.gpus[n] if fullest_first else -self.gpus[n])
            )
        sizes = range(least, max(kind.node.gpus for kind in classes) + 1)
        return (
            n
            for free in (sizes if fullest_first else reversed(sizes))
            for kind in classes
            if free <= kind.node.gpus
            for n in self._buckets[kind.number][free]
        )
