"""The rows of a round: GPUs, slots, cores and memory of node classes, cluster resources, budgets,
quotas."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..model.cluster import gpu_caps, quota_pool
from ..model.instance import Instance
from .deadline import Deadline
from .held import Held
from .model import Bools, Floats, Ints, Row
from .patterns import Columns, NodeClass, Pattern

MOST_SETS = 64
"""Sets of node classes for which a row is made."""


@dataclass(slots=True)
class BuiltRows:
    """Rows and the entries of their matrix (see `RoundModel`)."""

    rows: tuple[Row, ...]
    entry_row: Ints
    entry_pattern: Ints
    entry_amount: Floats


class _Entries:
    def __init__(self, fresh: int) -> None:
        self.rows: list[Row] = []
        self._fresh = fresh
        self.row: list[Ints] = []
        self.pattern: list[Ints] = []
        self.amount: list[Floats] = []

    def add(
        self,
        row: Row,
        fresh: Sequence[int] | Ints,
        amounts: Sequence[float] | Floats | Ints,
        kept: Floats,
    ) -> None:
        """A row with what `fresh` patterns and each running job take, unless nothing takes from
        it."""
        pattern = np.concatenate(
            [np.asarray(fresh, dtype=np.int64), self._fresh + np.arange(len(kept))]
        )
        amount = np.concatenate([np.asarray(amounts, dtype=float), kept])
        used = np.flatnonzero(amount)
        if len(used):
            self.row.append(np.full(len(used), len(self.rows), dtype=np.int64))
            self.pattern.append(pattern[used])
            self.amount.append(amount[used])
            self.rows.append(row)


def build_rows(
    instance: Instance,
    classes: tuple[NodeClass, ...],
    flat: Sequence[Pattern],
    table: Columns,
    held: Held,
    deadline: Deadline,
) -> BuiltRows:
    """All rows. Patterns (`flat`, `table`) that may use several classes count in the rows of the
    sets that contain all of them."""
    entries = _Entries(len(flat))
    masks = table.masks
    in_order = table.mask.tolist()
    all_sets = _sets((masks[i] for i in dict.fromkeys(in_order) if masks[i]), classes)
    gpu_sets = _sets(
        (masks[i] for i in dict.fromkeys(table.mask[table.gpus > 0].tolist()) if masks[i]), classes
    )
    inside: dict[int, Ints] = {}
    where: dict[int, Bools] = {}
    for mask in dict.fromkeys((*gpu_sets, *all_sets)):
        deadline.check()
        within = np.array([bool(other) and not other & ~mask for other in masks], dtype=bool)
        inside[mask] = (
            np.flatnonzero(within[table.mask]) if len(masks) else np.zeros(0, dtype=np.int64)
        )
        where[mask] = np.array([bool(one.bit & mask) for one in classes], dtype=bool)[held.class_of]

    for mask in gpu_sets:
        own, on, nodes = inside[mask], [one for one in classes if one.bit & mask], where[mask]
        free = sum(one.node.gpus * len(one.nodes) for one in on) - int(held.taken_gpus[nodes].sum())
        entries.add(
            Row("GPUs", _name(on), float(free), mask, 1),
            own,
            table.gpus[own],
            held.total(held.gpus, nodes[held.node]),
        )
    numbers = {mask: i for i, mask in enumerate(masks)}
    for kind in classes:
        deadline.check()
        here = np.flatnonzero(table.together & (table.mask == numbers.get(kind.bit, -1)))
        levels = sorted({slot for slot in table.slot[here].tolist() if slot > 1}, reverse=True)
        if levels:
            _slot_rows(entries, kind, levels, here, table.slot[here], held)
    for mask in all_sets:
        deadline.check()
        own, on, nodes = inside[mask], [one for one in classes if one.bit & mask], where[mask]
        if any(one.node.cpus is None for one in on) and any(
            one.node.memory_gib is None for one in on
        ):
            continue
        holds = nodes[held.node]
        gpus, held_gpus = table.gpus[own], held.total(held.gpus, holds)
        cpus, held_cpus = table.cpus[own], held.total(held.cpus, holds)
        if all(one.node.cpus is not None for one in on) and _binds(
            cpus,
            gpus,
            held_cpus,
            held_gpus,
            min((one.node.cpus or 0) / one.node.gpus if one.node.gpus else 0.0 for one in on),
        ):
            free = sum((one.node.cpus or 0) * len(one.nodes) for one in on) - int(
                held.taken_cpus[nodes].sum()
            )
            entries.add(Row("cores", _name(on), float(free), mask), own, cpus, held_cpus)
        if any(one.node.memory_gib is None for one in on):
            continue
        memory, held_memory = table.memory_gib[own], held.total(held.memory_gib, holds)
        if _binds(
            memory,
            gpus,
            held_memory,
            held_gpus,
            min(
                (one.node.memory_gib or 0.0) / one.node.gpus if one.node.gpus else 0.0 for one in on
            ),
        ):
            total = sum((one.node.memory_gib or 0.0) * len(one.nodes) for one in on)
            entries.add(Row("memory", _name(on), total, mask), own, memory, held_memory)
    _shared_rows(entries, instance, flat, held, deadline)
    none = np.zeros(0)
    return BuiltRows(
        tuple(entries.rows),
        np.concatenate([none.astype(np.int64), *entries.row]),
        np.concatenate([none.astype(np.int64), *entries.pattern]),
        np.concatenate([none, *entries.amount]),
    )


def _sets(masks: Iterable[int], classes: tuple[NodeClass, ...]) -> list[int]:
    """Each class that is used, and each set that some pattern may use, in a fixed order."""
    used = dict.fromkeys(masks)
    every = 0
    for mask in used:
        every |= mask
    singles = [one.bit for one in classes if one.bit & every]
    several = [mask for mask in used if mask & (mask - 1)]
    return singles + sorted(several)[:MOST_SETS]


def _name(members: list[NodeClass]) -> str:
    return " + ".join(one.name for one in members)


def _binds(
    fresh: Floats | Ints, fresh_gpus: Floats | Ints, kept: Floats, kept_gpus: Floats, per_gpu: float
) -> bool:
    """Whether the amounts could run short although the GPUs do not: some job takes more for each of
    its GPUs than the nodes have for each of theirs."""
    return bool(
        (fresh > per_gpu * fresh_gpus + 1e-9).any() or (kept > per_gpu * kept_gpus + 1e-9).any()
    )


def _slot_rows(
    entries: _Entries, one: NodeClass, levels: list[int], together: Ints, slots: Ints, held: Held
) -> None:
    """Slots of each size left on the nodes of a class (nested: a slot of 8 holds two of 4).

    A kept job with u GPUs on a node takes floor(u / s) slots of s GPUs, and its share of one more
    where the rest of all kept jobs on that node breaks into it. For every subset of them that is at
    most what they really take.
    """
    here = np.flatnonzero((held.node_class == one.number) & (held.gpus > 0))
    node, gpus = held.node[here], held.gpus[here]
    nodes = np.array(one.nodes, dtype=np.int64)
    room = one.node.gpus - held.taken_gpus
    count = len(held.class_of)
    for slot in levels:
        rest = gpus % slot
        broken = np.bincount(node[rest > 0], minlength=count)
        pressure = np.bincount(node, weights=rest, minlength=count)
        with np.errstate(divide="ignore"):
            share = np.where(pressure[node] <= slot, 1.0 / np.maximum(broken[node], 1), rest / slot)
        share = np.where((rest > 0) & (room[node] % slot == 0), share, 0.0)
        kept = np.bincount(
            held.owner[here], weights=gpus // slot + share, minlength=len(held.gang)
        ).astype(float)
        entries.add(
            Row("slots", one.name, float((room[nodes] // slot).sum()), one.bit, slot),
            together,
            (slots // slot).astype(float),
            kept,
        )


def _shared_rows(
    entries: _Entries, instance: Instance, flat: Sequence[Pattern], held: Held, deadline: Deadline
) -> None:
    """Cluster resources, budgets, quotas (each tenant's own with what it may borrow, and all
    together)."""
    cluster = instance.cluster
    every = range(len(flat))
    modes = [one.option.mode for one in flat] if cluster.resources or cluster.budgets else []
    for name, amount in cluster.resources.items():
        entries.add(
            Row(name, "", amount),
            every,
            [mode.resources.get(name, 0.0) for mode in modes],
            np.array([used.get(name, 0.0) for used in held.resources], dtype=float),
        )
    for name, amount in cluster.budgets.items():
        entries.add(
            Row(f"budget {name}", "", amount),
            every,
            [mode.budgets.get(name, 0.0) for mode in modes],
            np.array([used.get(name, 0.0) for used in held.budgets], dtype=float),
        )
    caps = gpu_caps(instance.tenants)
    if not caps:
        return
    number = {tenant: i for i, tenant in enumerate(caps)}
    tenant_of = np.array(
        [-1 if one.quota is None else number[one.quota] for one in flat], dtype=np.int64
    )
    gpus = np.array([one.gpus for one in flat], dtype=float)
    holder = np.array([-1 if name is None else number[name] for name in held.quota], dtype=np.int64)
    by_tenant = np.argsort(tenant_of, kind="stable")
    ends = np.searchsorted(tenant_of[by_tenant], np.arange(len(caps) + 1))
    for tenant, i in number.items():
        deadline.check()
        own = by_tenant[ends[i] : ends[i + 1]]
        entries.add(
            Row("quota", f"tenant {tenant}", float(caps[tenant])),
            own,
            gpus[own],
            held.gang * (holder == i),
        )
    pool = quota_pool(instance.tenants)
    if pool is not None:
        own = np.flatnonzero(tenant_of >= 0)
        entries.add(
            Row("quota", "all tenants", float(pool)), own, gpus[own], held.gang * (holder >= 0)
        )
