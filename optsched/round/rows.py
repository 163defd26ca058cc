"""The rows of a round: GPUs, slots, cores and memory of node classes, cluster resources, budgets, quotas."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..cluster import gpu_caps, quota_pool
from ..instance import Instance, Placement
from ..physics import memory_gib
from .model import Floats, Ints, Row, is_second
from .patterns import NodeClass, Pattern

if TYPE_CHECKING:
    from .build import _Facts

MOST_SETS = 64
"""Sets of node classes for which a row is made."""


@dataclass(frozen=True, slots=True)
class Held:
    """What running jobs hold, one entry for each, in order: `on` has (node, GPUs, cores, memory in GiB)."""

    on: list[list[tuple[int, int, int, float]]]
    gpus: list[float]
    resources: list[dict[str, float]]
    budgets: list[dict[str, float]]
    quota: list[str | None]

    @staticmethod
    def of(
        instance: Instance, classes: tuple[NodeClass, ...], class_of: list[int], facts: "_Facts", kept: Ints
    ) -> "Held":
        """Read off the running entries."""
        order = instance.cluster.node_order
        held = Held([], [], [], [], [])
        for j in kept:
            entry, job = facts.running[j], facts.jobs[j]
            assert entry is not None
            counts = not is_second(entry)  # the GPUs of a pair count once
            held.on.append([
                (order[slot.node], slot.gpus if counts else 0, slot.cpus, memory_gib(job, entry.mode, slot.gpus))
                for slot in entry.placement
            ])
            held.gpus.append(float(entry.mode.gpus))
            held.resources.append(entry.mode.resources)
            held.budgets.append(entry.mode.budgets)
            capped = job.tenant is not None and instance.tenant[job.tenant].gpu_quota is not None
            held.quota.append(job.tenant if capped else None)
        return held


@dataclass(slots=True)
class BuiltRows:
    """Rows and the entries of their matrix (see `RoundModel`)."""

    rows: tuple[Row, ...]
    entry_row: Ints
    entry_pattern: Ints
    entry_amount: Floats


class _Entries:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.row: list[int] = []
        self.pattern: list[int] = []
        self.amount: list[float] = []

    def add(self, row: Row, entries: Iterable[tuple[int, float]]) -> None:
        """A row, unless nothing takes from it."""
        number = len(self.rows)
        before = len(self.row)
        for pattern, amount in entries:
            if amount:
                self.row.append(number)
                self.pattern.append(pattern)
                self.amount.append(amount)
        if len(self.row) > before:
            self.rows.append(row)


def build_rows(
    instance: Instance,
    classes: tuple[NodeClass, ...],
    flat: Sequence[Pattern],
    held: Held,
    blocked: Sequence[Placement],
) -> BuiltRows:
    """All rows. Patterns that may use several classes count in the rows of the sets that contain all of them."""
    class_of_node = {i: one.number for one in classes for i in one.nodes}
    order = instance.cluster.node_order
    taken: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for placement in blocked:
        for slot in placement:
            gpus, cpus = taken[order[slot.node]]
            taken[order[slot.node]] = gpus + slot.gpus, cpus + slot.cpus
    entries = _Entries()
    base = len(flat)
    gpu_sets = _sets((one.classes for one in flat if one.gpus), classes)
    all_sets = _sets((one.classes for one in flat if one.classes), classes)
    by_mask: dict[int, list[int]] = defaultdict(list)
    for i, one in enumerate(flat):
        by_mask[one.classes].append(i)
    held_bits = [[(1 << class_of_node[n], g, c, m) for n, g, c, m in on] for on in held.on]

    for mask in gpu_sets:
        inside = [i for other in by_mask if other and not other & ~mask for i in by_mask[other]]
        members = [one for one in classes if one.bit & mask]
        free = sum(one.node.gpus * len(one.nodes) for one in members)
        free -= sum(g for n, (g, _) in taken.items() if 1 << class_of_node[n] & mask)
        name = _name(members)
        entries.add(
            Row("GPUs", name, free, mask, 1),
            [(i, float(flat[i].gpus)) for i in inside]
            + [(base + k, float(sum(g for bit, g, _, _ in on if bit & mask))) for k, on in enumerate(held_bits)],
        )
    for one in classes:
        levels = sorted({p.slot for p in flat if p.together and p.slot > 1 and p.classes == one.bit}, reverse=True)
        if levels:
            _slot_rows(entries, one, levels, flat, by_mask[one.bit], held, base, taken)
    for mask in all_sets:
        inside = [i for other in by_mask if other and not other & ~mask for i in by_mask[other]]
        members = [one for one in classes if one.bit & mask]
        if all(one.node.cpus is not None for one in members) and _binds(
            ((flat[i].cpus, flat[i].gpus) for i in inside),
            ((sum(c for _, _, c, _ in on), sum(g for _, g, _, _ in on)) for on in held.on),
            min((one.node.cpus or 0) / one.node.gpus if one.node.gpus else 0.0 for one in members),
        ):
            free = sum((one.node.cpus or 0) * len(one.nodes) for one in members)
            free -= sum(c for n, (_, c) in taken.items() if 1 << class_of_node[n] & mask)
            entries.add(
                Row("cores", _name(members), float(free), mask),
                [(i, float(flat[i].cpus)) for i in inside]
                + [(base + k, float(sum(c for bit, _, c, _ in on if bit & mask))) for k, on in enumerate(held_bits)],
            )
        if all(one.node.memory_gib is not None for one in members) and _binds(
            ((flat[i].memory_gib, flat[i].gpus) for i in inside),
            ((sum(m for *_, m in on), sum(g for _, g, _, _ in on)) for on in held.on),
            min((one.node.memory_gib or 0.0) / one.node.gpus if one.node.gpus else 0.0 for one in members),
        ):
            entries.add(
                Row("memory", _name(members), sum((one.node.memory_gib or 0.0) * len(one.nodes) for one in members),
                    mask),
                [(i, flat[i].memory_gib) for i in inside]
                + [(base + k, sum(m for bit, _, _, m in on if bit & mask)) for k, on in enumerate(held_bits)],
            )
    _shared_rows(entries, instance, flat, held, base)
    return BuiltRows(
        tuple(entries.rows),
        np.array(entries.row, dtype=np.int64),
        np.array(entries.pattern, dtype=np.int64),
        np.array(entries.amount, dtype=float),
    )


def _sets(masks: Iterable[int], classes: tuple[NodeClass, ...]) -> list[int]:
    """Each class that is used, and each set that some pattern may use, in a fixed order."""
    used = dict.fromkeys(masks)
    singles = [one.bit for one in classes if any(one.bit & mask for mask in used)]
    several = [mask for mask in used if mask & (mask - 1)]
    return singles + sorted(several)[:MOST_SETS]


def _name(members: list[NodeClass]) -> str:
    return " + ".join(one.name for one in members)


def _binds(fresh: Iterable[tuple[float, float]], kept: Iterable[tuple[float, float]], per_gpu: float) -> bool:
    """Whether the amounts could run short although the GPUs do not: some job takes more for each of its GPUs than the
    nodes have for each of theirs."""
    return any(
        amount > (per_gpu * gpus if gpus else 0.0) + 1e-9 for pairs in (fresh, kept) for amount, gpus in pairs
    )


def _slot_rows(
    entries: _Entries, one: NodeClass, levels: list[int], flat: Sequence[Pattern], inside: list[int], held: Held,
    base: int, taken: dict[int, tuple[int, int]],
) -> None:
    """Slots of each size left on the nodes of a class (nested: a slot of 8 holds two of 4).

    A kept job with u GPUs on a node takes floor(u / s) slots of s GPUs, and its share of one more where the rest of
    all kept jobs on that node breaks into it. For every subset of them that is at most what they really take.
    """
    size = one.node.gpus
    members = set(one.nodes)
    on_node: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for k, on in enumerate(held.on):
        for n, gpus, _, _ in on:
            if n in members and gpus:
                on_node[n].append((k, gpus))
    for slot in levels:
        takes: dict[int, float] = defaultdict(float)
        total = size // slot * len(one.nodes)
        for n, (gpus, _) in taken.items():
            if n in members:
                total -= size // slot - (size - gpus) // slot
        for n, users in on_node.items():
            room = size - taken[n][0] if n in taken else size
            rest = [(k, gpus % slot) for k, gpus in users]
            broken = [(k, left) for k, left in rest if left]
            whole = room % slot
            pressure = sum(left for _, left in broken)
            for k, gpus in users:
                takes[k] += gpus // slot
            if whole == 0:
                for k, left in broken:
                    takes[k] += 1.0 / len(broken) if pressure <= slot else left / slot
        entries.add(
            Row("slots", one.name, float(total), one.bit, slot),
            [(i, float(flat[i].slot // slot)) for i in inside if flat[i].together]
            + [(base + k, amount) for k, amount in takes.items()],
        )


def _shared_rows(
    entries: _Entries, instance: Instance, flat: Sequence[Pattern], held: Held, base: int
) -> None:
    """Cluster resources, budgets, quotas (each tenant's own with what it may borrow, and all together)."""
    cluster = instance.cluster
    modes = [one.option.mode for one in flat]
    for name, amount in cluster.resources.items():
        entries.add(
            Row(f"resource {name}", "", amount),
            [(i, mode.resources.get(name, 0.0)) for i, mode in enumerate(modes)]
            + [(base + k, used.get(name, 0.0)) for k, used in enumerate(held.resources)],
        )
    for name, amount in cluster.budgets.items():
        entries.add(
            Row(f"budget {name}", "", amount),
            [(i, mode.budgets.get(name, 0.0)) for i, mode in enumerate(modes)]
            + [(base + k, used.get(name, 0.0)) for k, used in enumerate(held.budgets)],
        )
    for tenant, cap in gpu_caps(instance.tenants).items():
        entries.add(
            Row("quota", f"tenant {tenant}", float(cap)),
            [(i, float(one.gpus)) for i, one in enumerate(flat) if one.quota == tenant]
            + [(base + k, held.gpus[k]) for k, name in enumerate(held.quota) if name == tenant],
        )
    pool = quota_pool(instance.tenants)
    if pool is not None:
        entries.add(
            Row("quota", "all tenants", float(pool)),
            [(i, float(one.gpus)) for i, one in enumerate(flat) if one.quota is not None]
            + [(base + k, held.gpus[k]) for k, name in enumerate(held.quota) if name is not None],
        )
