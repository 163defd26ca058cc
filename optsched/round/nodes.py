"""What is free on every node while the options of a round are put in place."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

import numpy as np

from ..model.instance import Placement
from ..model.job import Job, Mode
from ..physics import memory_gib, node_counts
from ..physics.capacity import Domains, Ties
from ..physics.contention import planned_uplinks_gbps
from .model import Kind, RoundModel, is_second
from .patterns import NodeClass, Pattern

NODE_ROWS = ("GPUs", "slots", "cores", "memory")
"""Rows that say nothing beyond what the nodes themselves can hold."""
SLACK = 1e-7
"""Relative excess of a fractional amount that is taken for rounding."""

Held = list[tuple[int, int, int]]
"""(node, GPUs, cores) of one job."""


class _Before:
    """What every packing of a round starts from: nodes less what is blocked, and what running jobs
    hold. `plain` says of each of these that it holds nothing but GPUs and cores."""

    def __init__(self, model: RoundModel) -> None:
        nodes = model.instance.cluster.nodes
        inf = float("inf")
        self.gpus = [node.gpus for node in nodes]
        self.cpus: list[float] = [inf if node.cpus is None else node.cpus for node in nodes]
        self.memory: list[float] = [
            inf if node.memory_gib is None else node.memory_gib for node in nodes
        ]
        order = model.instance.cluster.node_order
        for placement in model.blocked:
            for slot in placement:
                self.gpus[order[slot.node]] -= slot.gpus
                self.cpus[order[slot.node]] -= slot.cpus
        self.domains = Domains(model.instance.cluster, planned_uplinks_gbps(model.instance), SLACK)
        self.kept_on: list[Held] = []
        self.pinned: list[tuple[int, Mode, Placement]] = []
        self.plain: list[bool] = []
        for j in model.kept.tolist():
            entry = model.running[j]
            assert entry is not None
            self._add(model, j, entry.mode, entry.placement, is_second(entry))
        for one in model.pinned:
            self._add(model, one.job, one.mode, one.placement, one.kind == Kind.BESIDE)
        racks = dict.fromkeys(node.rack for node in nodes if node.rack is not None)
        number = {rack: i for i, rack in enumerate(racks)}
        self.rack = [-1 if node.rack is None else number[node.rack] for node in nodes]
        self.racks = [[] for _ in number]  # type: list[list[int]]
        for n, rack in enumerate(self.rack):
            if rack >= 0:
                self.racks[rack].append(n)
        shared = [r for r, row in enumerate(model.rows) if row.what not in NODE_ROWS]
        self.left = {
            r: float(model.capacity[r]) + SLACK * max(1.0, float(model.capacity[r])) for r in shared
        }
        self.takes: dict[int, list[tuple[int, float]]] = defaultdict(list)
        if shared:
            for r, p, amount in zip(
                model.entry_row.tolist(),
                model.entry_pattern.tolist(),
                model.entry_amount.tolist(),
                strict=True,
            ):
                if r in self.left:
                    self.takes[p].append((r, amount))

    def _add(
        self, model: RoundModel, j: int, mode: Mode, placement: Placement, shares: bool
    ) -> None:
        """The GPUs of a pair count once: not with the one that `shares` them."""
        order, profile = model.instance.cluster.node_order, model.jobs[j].profile
        self.kept_on.append(
            [(order[slot.node], 0 if shares else slot.gpus, slot.cpus) for slot in placement]
        )
        self.pinned.append((j, mode, placement))
        self.plain.append(
            bool(mode.gpus)
            and not profile.memory_gib_per_gpu
            and self.domains.ties(model.jobs[j]) is None
        )


class Nodes:
    """What is free on every node, and of what all nodes share, while options are put in place one
    by one.

    Nodes of a class are kept by their free GPUs, so that the fullest node that still fits is found
    without a scan; the first of equals is the one that came first in the cluster.
    """

    def __init__(self, model: RoundModel, fragments_first: bool = False) -> None:
        self._model = model
        self._fragments_first = fragments_first
        if "before" not in model.memo:
            model.memo["before"] = _Before(model)
        before: _Before = model.memo["before"]
        self.gpus, self.cpus, self.memory = (
            list(before.gpus),
            list(before.cpus),
            list(before.memory),
        )
        self.kept_on = before.kept_on
        self._pinned = before.pinned
        self._plain = before.plain
        self._rack, self._racks = before.rack, before.racks
        self._left, self._takes = dict(before.left), before.takes
        self._reserved: list[tuple[int, int]] = []
        self._domains = before.domains.copy()
        self._indexed = False
        self.full: set[int] = set()
        self._members: dict[int, list[NodeClass]] = {}

    # ------------------------------------------------------------------------------------------
    # bookkeeping

    def keep(self, kept: int) -> bool:
        """A running job goes on where it is (`kept` is its position in `model.kept`), or from
        `len(model.kept)` on a pinned option is taken; False if what all nodes share does not allow
        it."""
        if self._plain[kept] and not self._indexed and not self._takes:
            for n, gpus, cpus in self.kept_on[kept]:
                self.gpus[n] -= gpus
                self.cpus[n] -= cpus
            return True
        model = self._model
        j, mode, placement = self._pinned[kept]
        if self._takes:
            pattern = len(model.patterns) + kept
            if not self._has_shared(pattern):
                return False
            self._take_shared(pattern)
        job = model.jobs[j]
        per_gpu = job.profile.memory_gib_per_gpu
        for (n, gpus, cpus), slot in zip(self.kept_on[kept], placement, strict=True):
            memory = memory_gib(job, mode, slot.gpus) if per_gpu or not mode.gpus else 0.0
            self._change(n, -gpus, -cpus, -memory)
        self._domains.take(self._domains.ties(job), [n for n, *_ in self.kept_on[kept]])
        return True

    def can_keep(self, kept: int) -> bool:
        """Whether there is room for `keep`."""
        model = self._model
        j, mode, placement = self._pinned[kept]
        job = model.jobs[j]
        return (
            all(
                self.gpus[n] >= gpus
                and self.cpus[n] >= cpus
                and self.memory[n] * (1 + SLACK) >= memory_gib(job, mode, slot.gpus)
                for (n, gpus, cpus), slot in zip(self.kept_on[kept], placement, strict=True)
            )
            and self._has_shared(len(model.patterns) + kept)
            and self._domains.hold(self._domains.ties(job), [n for n, *_ in self.kept_on[kept]])
        )

    def _change(self, n: int, gpus: int, cpus: int, memory: float) -> None:
        if self._indexed:
            buckets = self._buckets[self._model.class_of[n]]
            del buckets[self.gpus[n]][n]
            buckets[self.gpus[n] + gpus][n] = None
            self._free[self._model.class_of[n]] += gpus
            if self._rack[n] >= 0:
                self._rack_free[self._model.class_of[n]][self._rack[n]] += gpus
        self.gpus[n] += gpus
        self.cpus[n] += cpus
        self.memory[n] += memory

    def index(self) -> None:
        """Prepare for `place`, once the kept jobs are in."""
        model = self._model
        self._buckets = [[{} for _ in range(one.node.gpus + 1)] for one in model.classes]  # type: list[list[dict[int, None]]]
        self._free = [0] * len(model.classes)
        self._rack_free = [np.zeros(len(self._racks), dtype=np.int64) for _ in model.classes]
        for n, c in enumerate(model.class_of):
            free = self.gpus[n]
            self._buckets[c][free][n] = None
            self._free[c] += free
            if self._rack[n] >= 0:
                self._rack_free[c][self._rack[n]] += free
        self._indexed = True

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
        """The most GPUs free on one node, by class."""
        return [
            max((g for g, nodes in enumerate(buckets) if nodes), default=0)
            for buckets in self._buckets
        ]

    def free_gpus(self) -> list[int]:
        """Free GPUs by class."""
        return self._free

    # ----------------------------------------------------------------------------------------------
    # placing

    def place(self, option: int) -> Held | None:
        """Take room for a fresh option, or None where there is none: then its pattern is `full`,
        as there only gets less."""
        model = self._model
        p = int(model.pattern[option])
        if p in self.full:
            return None
        pattern = model.patterns[p]
        job = model.jobs[int(model.job[option])]
        ties = self._domains.ties(job)
        held = self._find(pattern, job) if self._has_shared(p) else None
        if held and ties is not None and not self._domains.hold(ties, [n for n, *_ in held]):
            held = self._find_tied(pattern, job, ties)
        if held is None:
            if ties is None:
                self.full.add(p)
            return None
        self._take_shared(p)
        self._domains.take(ties, [n for n, *_ in held])
        per_gpu = pattern.memory_gib / pattern.gpus if pattern.gpus else pattern.memory_gib
        for n, gpus, cpus in held:
            self._change(n, -gpus, -cpus, -(per_gpu * gpus if pattern.gpus else per_gpu))
        return held

    def _has_shared(self, pattern: int) -> bool:
        return all(amount <= self._left[r] for r, amount in self._takes.get(pattern, ()))

    def _take_shared(self, pattern: int) -> None:
        for r, amount in self._takes.get(pattern, ()):
            self._left[r] -= amount

    def _classes(self, pattern: Pattern) -> list[NodeClass]:
        mask = pattern.classes
        if mask not in self._members:
            self._members[mask] = [c for c in self._model.classes if c.bit & mask]
        return self._members[mask]

    def _find(self, pattern: Pattern, job: Job) -> Held | None:
        mode = pattern.option.mode
        if not pattern.classes:
            return []
        if pattern.together:
            return self._one_node(pattern)
        if sum(self._free[c.number] for c in self._classes(pattern)) < mode.gpus:
            return None
        if pattern.option.spread == "rack":
            return self._in_a_rack(pattern, job)
        return self._spread(pattern, job, None)

    def _in_a_rack(self, pattern: Pattern, job: Job, closed: int = 0) -> Held | None:
        """In the fullest rack that has room on nodes that are not closed."""
        total = sum(self._rack_free[c.number] for c in self._classes(pattern))
        assert isinstance(total, np.ndarray)
        able = np.flatnonzero(total >= pattern.gpus)
        for rack in able[np.argsort(total[able], kind="stable")]:
            nodes = [n for n in self._racks[int(rack)] if not closed >> n & 1]
            held = self._spread(pattern, job, nodes)
            if held is not None:
                return held
        return None

    def _find_tied(self, pattern: Pattern, job: Job, ties: Ties) -> Held | None:
        """On one node or within one rack, else on racks whose uplinks have room, beside no others
        than the job may be."""
        closed, widest = self._domains.closed(ties), self._domains.widest(ties)
        if pattern.together or widest == "node":
            return self._one_node(pattern, closed)
        held = self._in_a_rack(pattern, job, closed)
        if held is not None or widest == "rack" or pattern.option.spread == "rack":
            return held
        closed |= self._domains.behind_slow_uplinks(ties)
        return self._spread(pattern, job, [n for n in range(len(self.gpus)) if not closed >> n & 1])

    def _one_node(self, pattern: Pattern, closed: int = 0) -> Held | None:
        need, cpus, memory = pattern.gpus, pattern.cpus, pattern.memory_gib
        for c in self._classes(pattern):
            for nodes in self._buckets[c.number][need:]:
                for n in nodes:
                    if (
                        self.cpus[n] >= cpus
                        and self.memory[n] * (1 + SLACK) >= memory
                        and not closed >> n & 1
                    ):
                        return [(n, need, cpus)]
        return None

    def _spread(self, pattern: Pattern, job: Job, rack: list[int] | None) -> Held | None:
        """On as few nodes as possible, the emptiest first, or on what is left of nodes in use."""
        counts = node_counts(job, pattern.gpus)
        if counts is not None:
            placed = (self._evenly(pattern, job, rack, n) for n in counts)
            return next((one for one in placed if one is not None), None)
        mode, memory_per_gpu = pattern.option.mode, job.profile.memory_gib_per_gpu
        want, each = mode.gpus, mode.cpus_per_gpu
        classes = self._classes(pattern)
        held: Held = []
        if rack is None:
            largest = max(c.node.gpus for c in classes)
            candidates: Iterator[int] = (
                n
                for g in (range(1, largest + 1) if self._fragments_first else range(largest, 0, -1))
                for c in classes
                if g <= c.node.gpus
                for n in self._buckets[c.number][g]
            )
        else:
            inside = {c.number for c in classes}
            mine = [n for n in rack if self._model.class_of[n] in inside and self.gpus[n]]
            candidates = iter(
                sorted(mine, key=lambda n: self.gpus[n] if self._fragments_first else -self.gpus[n])
            )
        for n in candidates:
            can: int = self.gpus[n]
            if each:
                can = int(min(can, self.cpus[n] // each))
            if memory_per_gpu:
                can = int(min(can, self.memory[n] * (1 + SLACK) // memory_per_gpu))
            if can <= 0:
                continue
            take = min(can, want)
            held.append((n, take, take * each))
            want -= take
            if not want:
                return sorted(held)
        return None

    def _evenly(
        self, pattern: Pattern, job: Job, rack: list[int] | None, count: int
    ) -> Held | None:
        """Equal parts on `count` nodes, on the fullest that still hold one."""
        mode = pattern.option.mode
        part = mode.gpus // count
        cpus, memory = part * mode.cpus_per_gpu, part * job.profile.memory_gib_per_gpu
        classes = self._classes(pattern)
        if rack is None:
            largest = max(c.node.gpus for c in classes)
            candidates: Iterator[int] = (
                n
                for g in range(part, largest + 1)
                for c in classes
                if g <= c.node.gpus
                for n in self._buckets[c.number][g]
            )
        else:
            inside = {c.number for c in classes}
            mine = [n for n in rack if self._model.class_of[n] in inside and self.gpus[n] >= part]
            candidates = iter(sorted(mine, key=lambda n: self.gpus[n]))
        able = (
            n for n in candidates if self.cpus[n] >= cpus and self.memory[n] * (1 + SLACK) >= memory
        )
        held = [(n, part, cpus) for n in islice(able, count)]
        return sorted(held) if len(held) == count else None
