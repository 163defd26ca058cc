"""One table of capacity: what there is of everything that jobs hold, and what each of them holds.

A row is one capacity, a demand is (row, amount) pairs. What jobs hold of a row at an instant adds
up to at most its capacity, but for GPUs that two jobs share, which count once, and for a budget,
of which what all jobs use over the whole plan adds up. The verifiers do not read this table.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Literal

from ..frozen import record
from ..model import Cluster, Job, Mode, Node, Quotas, Tenant, Window
from . import Span, cpus, fits_type, memory_gib

Kind = Literal["resource", "quota", "budget", "GPUs", "cores", "memory"]
FRACTIONAL = frozenset({"resource", "budget", "memory"})
"""Amounts of these are rounded; GPUs and cores are whole."""

Demand = list[tuple[int, float]]
"""(row, amount), each row at most once for each node."""


@record
class Row:
    """One capacity. `of` is its node, tenant, resource or budget; a quota of None is that of
    all tenants together."""

    kind: Kind
    of: str | None
    capacity: float

    @property
    def name(self) -> str:
        """Return the capacity as people call it."""
        if self.kind == "resource":
            return str(self.of)
        if self.kind == "budget":
            return f"budget {self.of}"
        if self.of is None:
            return "all quotas"
        return f"{self.kind} of {self.of}"

    def slack(self, relative: float) -> float:
        """Return the excess that is taken for rounding; none of what is counted in whole
        numbers."""
        return relative * max(1.0, self.capacity) if self.kind in FRACTIONAL else 0.0


def or_inf(amount: float | None) -> float:
    """Return a limit as a number: none is infinite."""
    return inf if amount is None else amount


def gpus_that_fit(
    gpus: int, cpus: float, memory_gib: float, cpus_per_gpu: int, gib_per_gpu: float
) -> int:
    """Return how many of the GPUs of a node have their cores and memory beside them."""
    most: float = gpus
    if cpus_per_gpu:
        most = min(most, cpus / cpus_per_gpu)
    if gib_per_gpu:
        most = min(most, memory_gib / gib_per_gpu + 1e-9)
    return max(0, int(most))


class Capacity:
    """All rows of a cluster and its tenants: first the `shared` ones that belong to no node, then
    those of nodes. `gpus`, `cores` and `memory` have the row of each node, None where it does not
    bind; the others have the row by name. `quotas_over` has the rows of the quotas that the jobs of
    a tenant count against; `borrowers` are the tenants whose row may be more than their quota."""

    def __init__(self, cluster: Cluster, tenants: tuple[Tenant, ...]) -> None:
        self.rows: list[Row] = []
        self.resources = self._add("resource", cluster.resources)
        quotas = Quotas.of(tenants)
        self.quotas = {of: self._row("quota", of, most) for of, most in quotas.limits.items()}
        self.quotas_over = {
            name: tuple(self.quotas[of] for of in over) for name, over in quotas.over.items()
        }
        self.borrowers = frozenset(tenant.name for tenant in tenants if tenant.borrow_gpus)
        self.budgets = self._add("budget", cluster.budgets)
        self.shared = len(self.rows)
        self._windows = cluster.windows
        nodes = cluster.nodes
        self.gpus = [self._row("GPUs", node.name, node.gpus) for node in nodes]
        self.cores = [self._of_node("cores", node.name, node.cpus) for node in nodes]
        self.memory = [self._of_node("memory", node.name, node.memory_gib) for node in nodes]

    def _row(self, kind: Kind, of: str | None, capacity: float) -> int:
        self.rows.append(Row(kind, of, capacity))
        return len(self.rows) - 1

    def _of_node(self, kind: Kind, node: str, capacity: float | None) -> int | None:
        return None if capacity is None else self._row(kind, node, capacity)

    def _add(self, kind: Kind, capacities: Mapping[str, float]) -> dict[str, int]:
        return {name: self._row(kind, name, amount) for name, amount in capacities.items()}

    def on_node(self, job: Job, mode: Mode, node: int, gpus: int) -> Demand:
        """Return what `job` holds of the node at this position where it has `gpus` GPUs."""
        held: Demand = [(self.gpus[node], gpus)] if gpus else []
        cores, memory = self.cores[node], self.memory[node]
        if cores is not None and (count := cpus(mode, gpus)):
            held.append((cores, count))
        if memory is not None and (gib := memory_gib(job, mode, gpus)):
            held.append((memory, gib))
        return held

    def together(self, job: Job, mode: Mode) -> Demand:
        """Return what `job` holds of resources and quotas wherever it is."""
        held: Demand = [
            (self.resources[name], amount)
            for name, amount in mode.resources.items()
            if amount and name in self.resources
        ]
        if mode.gpus:
            held.extend((row, mode.gpus) for row in self.quotas_of(job))
        return held

    def left_in(self, window: Window) -> Demand:
        """Return all that there is of the rows of which a window leaves less."""
        return [
            *((self.resources[name], most) for name, most in window.resources.items()),
            *((self.quotas[name], most) for name, most in window.quotas.items()),
        ]

    def left_at(self, time_s: float) -> dict[int, float]:
        """Return all that there is at an instant of the rows of which windows leave less."""
        left: dict[int, float] = {}
        for window in self._windows:
            if window.from_s <= time_s < window.to_s:
                for row, most in self.left_in(window):
                    left[row] = min(most, left.get(row, self.rows[row].capacity))
        return left

    @cached_property
    def dips(self) -> dict[int, list[tuple[float, float, float]]]:
        """Return by row from when to when windows leave how much less of it, in times apart."""
        lower = [window for window in self._windows if window.lowers]
        dips: dict[int, list[tuple[float, float, float]]] = {}
        instants = sorted({at_s for window in lower for at_s in (window.from_s, window.to_s)})
        for from_s, to_s in pairwise(instants):
            for row, most in self.left_at(from_s).items():
                less, own = self.rows[row].capacity - most, dips.setdefault(row, [])
                before_s = own.pop()[0] if own and own[-1][1:] == (from_s, less) else from_s
                own.append((before_s, to_s, less))
        return dips

    def quotas_of(self, job: Job) -> tuple[int, ...]:
        """Return the rows of the quotas that a job counts against."""
        return self.quotas_over.get(job.tenant or "", ())

    def used_up(self, mode: Mode) -> Demand:
        """Return what a job that completes in `mode` uses of budgets."""
        return [
            (self.budgets[name], amount)
            for name, amount in mode.budgets.items()
            if amount and name in self.budgets
        ]

    def allows(self, job: Job, mode: Mode) -> bool:
        """Return whether quotas, resources and budgets would serve `mode` with nothing else
        there."""
        return all(
            amount <= self.rows[row].capacity
            for row, amount in (*self.together(job, mode), *self.used_up(mode))
        ) and not any(
            amount and name not in known
            for amounts, known in ((mode.resources, self.resources), (mode.budgets, self.budgets))
            for name, amount in amounts.items()
        )


def kind(node: Node) -> tuple[object, ...]:
    """Return a key that is equal for nodes that serve the same jobs, however much of it they
    have."""
    return node.gpu_type, node.gpu_memory_gib, node.gpus > 0, node.labels


def alike(node: Node) -> tuple[object, ...]:
    """Return a key that is equal for nodes that can hold the same of every job."""
    return kind(node), node.gpus, node.cpus, node.memory_gib


def serves(node: Node, job: Job, mode: Mode) -> bool:
    """Return whether a node is one for `job` however much of it is free: by labels, type and memory
    of its GPUs."""
    return fits_type(job, mode, node) and all(
        (label in node.labels) == (wanted == "required")
        for label, wanted in job.node_labels.items()
    )


def asks(job: Job) -> tuple[object, ...]:
    """Return a key that is equal for jobs that ask the same of nodes, and of other jobs there, in
    equal modes."""
    profile = job.profile
    return (
        job.memory_gib,
        profile.gpu_memory_gib,
        profile.memory_gib_per_gpu,
        job.labels,
        job.node_labels or (),  # most are empty, and tables are slow to hash
        job.affinity or (),
        job.anti_affinity or (),
    )


Level = Literal["node", "rack"]
LEVELS: tuple[Level, ...] = ("node", "rack")
Mark = tuple[Literal["has", "near", "averse"], str, Level]
"""What is counted in each node or rack: jobs with a label, and jobs averse to it. Those that have
it are counted twice, as what others must not meet and as what others need: of two states of which
one will be, the one has the more of the first, the other the less of the second."""


@record
class Ties:
    """The ties of a job to others that hold something in the same node or rack: their traffic on
    the uplinks over which it would send `gbps`, and labels."""

    gbps: float
    labels: tuple[str, ...]
    near: Mapping[str, Level]
    averse: Mapping[str, Level]


class Domains:
    """The use of racks by jobs, and which jobs are where.

    A gang on several nodes that are not in one rack takes its traffic of the uplink of each rack;
    where uplinks are not `reserved` it only must be within their limits by itself. Nodes are told
    by their position, sets of them are masks.
    """

    def __init__(
        self,
        cluster: Cluster,
        uplink_gbps: Mapping[str, float],
        slack: float,
        *,
        reserved: bool = True,
    ) -> None:
        nodes = cluster.nodes
        self._rack = [node.rack for node in nodes]
        self._reserved = reserved
        self._limit = {rack: gbps + slack * max(1.0, gbps) for rack, gbps in uplink_gbps.items()}
        self.gbps = dict.fromkeys(uplink_gbps, 0.0)
        self._marks: dict[Mark, dict[int | str, int]] = {}
        self._members: dict[int | str, int] = {n: 1 << n for n in range(len(nodes))}
        for n, node in enumerate(nodes):
            if node.rack is not None:
                self._members[node.rack] = self._members.get(node.rack, 0) | 1 << n

    def ties(self, job: Job) -> Ties | None:
        """Return what `job` minds, or others mind of it; None where that is nothing."""
        gbps = job.profile.network_gbps if self._limit else 0.0
        if gbps or job.labels or job.affinity or job.anti_affinity:
            return Ties(gbps, job.labels, job.affinity, job.anti_affinity)
        return None

    def minds(self, job: Job) -> bool:
        """Return whether it makes a difference to `job` who else is where."""
        ties = self.ties(job)
        return ties is not None and bool(ties.gbps or ties.near or ties.averse)

    def copy(self) -> "Domains":
        """Return a copy, to try things in."""
        return self._with(
            dict(self.gbps), {mark: dict(counts) for mark, counts in self._marks.items()}
        )

    def overlap(self, other: "Domains") -> "Domains":
        """Return what jobs mind of one or of the other."""
        marks: dict[Mark, dict[int | str, int]] = {}
        for mark in self._marks | other._marks:
            mine, theirs = self._marks.get(mark, {}), other._marks.get(mark, {})
            which = (
                mine.keys() & theirs.keys() if mark[0] == "near" else mine.keys() | theirs.keys()
            )
            fewer = min if mark[0] == "near" else max
            marks[mark] = {
                where: fewer(mine.get(where, 0), theirs.get(where, 0)) for where in which
            }
        gbps = {rack: max(gbps, other.gbps[rack]) for rack, gbps in self.gbps.items()}
        return self._with(gbps, marks)

    def _with(self, gbps: dict[str, float], marks: dict[Mark, dict[int | str, int]]) -> "Domains":
        new = object.__new__(Domains)
        vars(new).update(vars(self), gbps=gbps, _marks=marks)
        return new

    def take(self, ties: Ties | None, nodes: Sequence[int], sign: int = 1) -> None:
        """Take what a job holds of these nodes, or give it back where `sign` is -1."""
        if ties is None:
            return
        if ties.gbps and self._reserved:
            for rack in self._crossed(nodes):
                self.gbps[rack] += sign * ties.gbps
        marks: list[Mark] = [("averse", *tie) for tie in ties.averse.items()]
        for label in ties.labels:
            marks += [(kind, label, level) for kind in ("has", "near") for level in LEVELS]
        for mark in marks:
            counts = self._marks.setdefault(mark, {})
            for where in self._domains(mark[2], nodes):
                counts[where] = counts.get(where, 0) + sign
                if not counts[where]:
                    del counts[where]

    def _domains(self, level: Level, nodes: Iterable[int]) -> set[int | str]:
        if level == "node":
            return {*nodes}
        return {rack for n in nodes if (rack := self._rack[n]) is not None}

    def hold(self, ties: Ties | None, nodes: Sequence[int]) -> bool:
        """Return whether a job may be on these nodes beside those that are there."""
        if ties is None or not nodes:
            return True
        closed = self.closed(ties)
        return (
            not any(closed >> n & 1 for n in nodes)
            and all(len(self._domains(level, nodes)) == 1 for level in self._first(ties).values())
            and self.carry(ties, nodes)
        )

    def carry(self, ties: Ties | None, nodes: Sequence[int]) -> bool:
        """Return whether the uplinks between these nodes have room for the traffic of a job."""
        return ties is None or not any(
            self._is_slow(rack, ties.gbps) for rack in self._crossed(nodes)
        )

    def _crossed(self, nodes: Sequence[int]) -> list[str]:
        """Return the racks whose uplink a placement uses."""
        if len(nodes) < 2 or not self._limit:
            return []
        racks = dict.fromkeys(self._rack[n] for n in nodes)
        if len(racks) == 1 and None not in racks:
            return []
        return [rack for rack in racks if rack is not None and rack in self._limit]

    def _is_slow(self, rack: str, gbps: float) -> bool:
        return self.gbps[rack] + gbps > self._limit[rack]

    def _marked(self, mark: Mark) -> int:
        return _union(self._members[where] for where in self._marks.get(mark, ()))

    def _first(self, ties: Ties) -> dict[str, Level]:
        """Return the labels that a job wants near, has itself, and would be the first to bring."""
        return {
            label: level
            for label, level in ties.near.items()
            if label in ties.labels and not self._marks.get(("has", label, "node"))
        }

    def closed(self, ties: Ties) -> int:
        """Return the nodes that a job cannot use at all while those that are there stay."""
        nodes = _union(self._marked(("has", *tie)) for tie in ties.averse.items())
        for label in ties.labels:
            nodes |= _union(self._marked(("averse", label, level)) for level in LEVELS)
        first = self._first(ties)
        for label, level in ties.near.items():
            if label in first:
                able = range(len(self._rack))
                nodes |= ~_union(1 << n for n in able if self._domains(level, [n]))
            else:
                nodes |= ~self._marked(("near", label, level))
        return nodes

    def widest(self, ties: Ties) -> Span:
        """Return how far a job may be spread at most."""
        return min(self._first(ties).values(), key=LEVELS.index, default="cluster")

    def opens(self, ties: Ties) -> bool:
        """Return whether a job that comes may open nodes to others."""
        return bool(ties.labels)

    def why_closed(self, ties: Ties, nodes: int) -> str | None:
        """Return why a job can use none of `nodes` while those that are there stay, in one
        clause."""
        if nodes & ~self.closed(ties):
            return None
        for label, level in ties.averse.items():
            if not nodes & ~self._marked(("has", label, level)):
                return f"jobs with label {label}, with which it shares no {level}, are wherever it could run"  # noqa: E501
        for label in ties.labels:
            if not nodes & ~_union(self._marked(("averse", label, level)) for level in LEVELS):
                return f"jobs that keep apart from label {label}, which it has, are wherever it could run"  # noqa: E501
        for label, level in ties.near.items():
            if not nodes & self._marked(("near", label, level)):
                return f"no {level} where it could run has a job with label {label}, which it needs beside it"  # noqa: E501
        return "each node where it could run lacks a job that it needs beside it, or has one that it avoids"  # noqa: E501

    def behind_slow_uplinks(self, ties: Ties | None) -> int:
        """Return the nodes that a gang over several racks cannot use."""
        if ties is None:
            return 0
        slow = (rack for rack in self.gbps if self._is_slow(rack, ties.gbps))
        return _union(self._members.get(rack, 0) for rack in slow)


def _union(masks: Iterable[int]) -> int:
    nodes = 0
    for mask in masks:
        nodes |= mask
    return nodes
