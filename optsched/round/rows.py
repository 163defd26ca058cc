"""The rows of a round: GPUs, slots, cores and memory of node classes, cluster resources, budgets,
quotas."""

from dataclasses import replace
from itertools import starmap
from typing import Literal

import numpy as np

from ..model import Job, Mode
from ..physics import capacity, placed_rate
from ..physics.capacity import Demand
from ..physics.catalogue import catalogue_of
from .facts import Facts
from .held import Held, Hold
from .model import Floats, Ints, Kind, Patterns, Row, Rows
from .patterns import Columns, NodeClass

MOST_SETS = 64
"""Sets of node classes for which a row is made."""


def build_rows(
    facts: Facts, classes: tuple[NodeClass, ...], patterns: Patterns, held: Held
) -> Rows:
    """Return all rows. Patterns that may use several classes count in the rows of the sets that
    contain all of them."""
    builder, table = _Builder(facts, classes, patterns, held), patterns.table
    anywhere, with_gpus = builder.sets(table.mask), builder.sets(table.mask[table.gpus > 0])
    check = facts.deadline.check
    for mask in with_gpus:
        check()
        builder.gpus(mask)
    for kind in classes:
        check()
        builder.slots(kind)
    for mask in anywhere:
        check()
        builder.of_nodes("cores", mask, "cpus")
        builder.of_nodes("memory", mask, "memory_gib")
    builder.shared()
    return Rows.of(tuple(builder.limits), builder.entries)


class _Set:
    """A set of node classes: its `members`, the `patterns` that use no other class, and which
    `entries` of what is held are on its nodes."""

    def __init__(
        self, mask: int, classes: tuple[NodeClass, ...], table: Columns, held: Held
    ) -> None:
        self.members = [kind for kind in classes if kind.bit & mask]
        self.name = " + ".join(kind.name for kind in self.members)
        inside = np.array([bool(other) and not other & ~mask for other in table.masks], dtype=bool)
        self.patterns = np.flatnonzero(inside[table.mask])
        self.nodes = np.array([bool(kind.bit & mask) for kind in classes])[held.class_of]
        self.entries = self.nodes[held.node]
        self.gpus = table.gpus[self.patterns]
        self.held_gpus = held.total(held.gpus, self.entries)


class _Builder:
    """Adds one row after the other."""

    def __init__(
        self, facts: Facts, classes: tuple[NodeClass, ...], patterns: Patterns, held: Held
    ) -> None:
        self.limits: list[Row] = []
        self.entries: list[tuple[Ints, Ints, Floats]] = []
        self._facts, self._classes, self._fresh = facts, classes, patterns.fresh
        self._table, self._held = patterns.table, held
        self._sets: dict[int, _Set] = {}

    def _add(self, limit: Row, fresh: Ints, amounts: Floats | Ints, held: Floats | Ints) -> None:
        """Add a row with what `fresh` patterns and each hold take."""
        holds = len(self._fresh) + np.arange(len(held))
        self._put(limit, np.concatenate([fresh, holds]), np.concatenate([amounts, held]))

    def _put(self, limit: Row, pattern: Ints, amount: Floats) -> None:
        """Add a row unless nothing takes from it."""
        used = np.flatnonzero(amount)
        if len(used):
            row = np.full(len(used), len(self.limits), dtype=np.int64)
            self.entries.append((row, pattern[used], amount[used]))
            # what higher tiers hold may exceed the whole of it, by rounding
            self.limits.append(replace(limit, capacity=max(0.0, limit.capacity)))

    def sets(self, numbers: Ints) -> list[int]:
        """Return each class that is used by patterns on sets of these numbers, and each set of
        several that one may use, in a fixed order."""
        used = [mask for i in dict.fromkeys(numbers.tolist()) if (mask := self._table.masks[i])]
        every = 0
        for mask in used:
            every |= mask
        several = [mask for mask in used if mask & (mask - 1)]
        singles = [kind.bit for kind in self._classes if kind.bit & every]
        return singles + sorted(several)[:MOST_SETS]

    def _set(self, mask: int) -> _Set:
        if mask not in self._sets:
            self._sets[mask] = _Set(mask, self._classes, self._table, self._held)
        return self._sets[mask]

    def gpus(self, mask: int) -> None:
        """Add rows for GPUs of a set of classes."""
        on = self._set(mask)
        free = float(self._held.room_gpus[on.nodes].sum())
        self._add(Row("GPUs", on.name, free, mask, 1), on.patterns, on.gpus, on.held_gpus)

    def slots(self, kind: NodeClass) -> None:
        """Add rows for slots of each size left on the nodes of a class (nested: a slot of 8 holds
        two of 4).

        A kept job with u GPUs on a node takes floor(u / s) slots of s GPUs, and its share of one
        more where the rest of all kept jobs on that node breaks into it. For every subset of them
        that is at most what they really take.
        """
        table, held = self._table, self._held
        single = np.array([mask == kind.bit for mask in table.masks], dtype=bool)
        together = np.flatnonzero(table.together & single[table.mask])
        sizes = table.slot[together]
        here = np.flatnonzero((held.node_class == kind.number) & (held.gpus > 0))
        node, gpus = held.node[here], held.gpus[here]
        room, count = held.room_gpus, len(held.class_of)
        for slot in sorted({size for size in sizes.tolist() if size > 1}, reverse=True):
            rest = gpus % slot
            broken = np.bincount(node[rest > 0], minlength=count)
            pressure = np.bincount(node, weights=rest, minlength=count)
            with np.errstate(divide="ignore"):
                share = np.where(
                    pressure[node] <= slot, 1.0 / np.maximum(broken[node], 1), rest / slot
                )
            share = np.where((rest > 0) & (room[node] % slot == 0), share, 0.0)
            kept = np.bincount(
                held.owner[here], weights=gpus // slot + share, minlength=len(held.gang)
            )
            free = float((room[list(kind.nodes)] // slot).sum())
            limit = Row("slots", kind.name, free, kind.bit, slot)
            self._add(limit, together, sizes // slot, kept)

    def of_nodes(self, what: str, mask: int, field: Literal["cpus", "memory_gib"]) -> None:
        """Add rows for cores or memory of a set of classes that all have a limit, unless these
        cannot run short where the GPUs do not: no job takes more for each of its GPUs than the
        nodes have for each of theirs."""
        on, held = self._set(mask), self._held
        limits = [getattr(kind.node, field) for kind in on.members]
        if None in limits:
            return
        per_gpu = min(
            most / kind.node.gpus if kind.node.gpus else 0.0
            for most, kind in zip(limits, on.members, strict=True)
        )
        takes = getattr(self._table, field)[on.patterns]
        kept = held.total(getattr(held, field), on.entries)
        if (takes > per_gpu * on.gpus + 1e-9).any() or (kept > per_gpu * on.held_gpus + 1e-9).any():
            free = float(getattr(held, f"room_{field}")[on.nodes].sum())
            self._add(Row(what, on.name, free, mask), on.patterns, takes, kept)

    def shared(self) -> None:
        """Add rows for resources, budgets and quotas, as the table of capacity has them, and for
        what windows leave of them where somebody who could start would meet these."""
        table = catalogue_of(self._facts.instance).capacity
        if not table.shared:
            return
        takes: list[Demand] = [pattern.shared for pattern in self._fresh]
        takes += starmap(self._of_hold, zip(self._held.job, self._held.holds, strict=True))
        free = [float(row.capacity) for row in table.rows[: table.shared]]
        for job, entry in self._held.around:
            for r, amount in _taken(table, job, entry.mode):
                free[r] -= amount
        free += [own.left for own in self._facts.openings.later]
        entries: list[list[tuple[int, float]]] = [[] for _ in free]
        for p, amounts in enumerate(takes):
            for r, amount in amounts:
                entries[r].append((p, amount))
        order = ("resource", "budget", "quota")
        for r in sorted(range(table.shared), key=lambda r: order.index(table.rows[r].kind)):
            self._facts.deadline.check()
            self._put_pairs(Row(*_names(table.rows[r]), free[r]), entries[r])
        for own in self._facts.openings.later:
            what, where = _names(table.rows[own.row])
            limit = Row(what, f"{where} in {own.window}", own.left)
            self._put_pairs(limit, entries[own.number])

    def _put_pairs(self, limit: Row, takes: list[tuple[int, float]]) -> None:
        """Add a row with (pattern, amount) entries."""
        pairs = np.array(takes, dtype=float).reshape(-1, 2)
        self._put(limit, pairs[:, 0].astype(np.int64), pairs[:, 1])

    def _of_hold(self, j: int, hold: Hold) -> Demand:
        """Return what a job takes where it runs already, or beside one that does."""
        job, facts = self._facts.jobs[j], self._facts
        takes = _taken(catalogue_of(facts.instance).capacity, job, hold.mode)
        if hold.kind == Kind.BESIDE and facts.openings.later:
            rate = placed_rate(facts.instance, job, hold.mode, hold.placement)
            takes += facts.openings.met(job, hold.mode, rate, takes)[1]
        return takes


def _taken(table: capacity.Capacity, job: Job, mode: Mode) -> Demand:
    return [*table.together(job, mode), *table.used_up(mode)]


def _names(row: capacity.Row) -> tuple[str, str]:
    """Return what a row limits, and where, or which."""
    if row.kind != "quota":
        return row.kind, row.name
    return row.kind, "all tenants" if row.of is None else f"tenant {row.of}"
