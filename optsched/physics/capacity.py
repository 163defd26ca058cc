"""One table of capacity: what there is of everything that jobs hold, and what each of them holds.

A row is one capacity, a demand is (row, amount) pairs. What jobs hold of a row at an instant adds
up to at most its capacity, but for GPUs that two jobs share, which count once, and for a budget,
of which what all jobs use over the whole plan adds up. The verifiers do not read this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..model.cluster import Cluster, Tenant, gpu_caps, quota_pool
from ..model.instance import Placement
from ..model.job import Job, Mode
from . import cpus, memory_gib, uplinks

Kind = Literal["resource", "quota", "budget", "uplink", "GPUs", "cores", "memory"]
FRACTIONAL = frozenset({"resource", "budget", "uplink", "memory"})
"""Amounts of these are rounded; GPUs and cores are whole."""

Demand = list[tuple[int, float]]
"""(row, amount), each row at most once for each node."""


@dataclass(frozen=True, slots=True)
class Row:
    """One capacity. `of` is its node, rack, tenant, resource or budget; a quota of None is that of
    all tenants together."""

    kind: Kind
    of: str | None
    capacity: float

    @property
    def name(self) -> str:
        """The capacity as people call it."""
        if self.kind == "resource":
            return str(self.of)
        if self.kind == "budget":
            return f"budget {self.of}"
        if self.of is None:
            return "all quotas"
        return f"{self.kind} of {'rack ' if self.kind == 'uplink' else ''}{self.of}"

    def slack(self, relative: float) -> float:
        """The excess that is taken for rounding; none of what is counted in whole numbers."""
        return relative * max(1.0, self.capacity) if self.kind in FRACTIONAL else 0.0


class Capacity:
    """All rows of a cluster and its tenants: first the `shared` ones that belong to no node, then
    those of nodes. `gpus`, `cores` and `memory` have the row of each node, None where it does not
    bind; the others have the row by name. `borrowers` are the tenants whose row may be more than
    their quota."""

    def __init__(self, cluster: Cluster, tenants: tuple[Tenant, ...]) -> None:
        self._cluster = cluster
        self.rows: list[Row] = []
        self.resources = self._add("resource", cluster.resources)
        self.quotas = self._add("quota", gpu_caps(tenants))
        pool = quota_pool(tenants)
        self.pool = None if pool is None else self._row("quota", None, pool)
        self.borrowers = frozenset(tenant.name for tenant in tenants if tenant.borrow_gpus)
        self.budgets = self._add("budget", cluster.budgets)
        self.uplinks = self._add("uplink", cluster.rack_uplink_gbps)
        self.shared = len(self.rows)
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
        """What `job` holds of the node at this position where it has `gpus` GPUs."""
        held: Demand = [(self.gpus[node], gpus)] if gpus else []
        cores, memory = self.cores[node], self.memory[node]
        if cores is not None and (count := cpus(mode, gpus)):
            held.append((cores, count))
        if memory is not None and (gib := memory_gib(job, mode, gpus)):
            held.append((memory, gib))
        return held

    def together(self, job: Job, mode: Mode) -> Demand:
        """What `job` holds of resources and quotas wherever it is."""
        held: Demand = [
            (self.resources[name], amount)
            for name, amount in mode.resources.items()
            if amount and name in self.resources
        ]
        if mode.gpus and job.tenant in self.quotas:
            held.append((self.quotas[job.tenant], mode.gpus))
            if self.pool is not None:
                held.append((self.pool, mode.gpus))
        return held

    def used_up(self, mode: Mode) -> Demand:
        """What a job that completes in `mode` uses of budgets."""
        return [
            (self.budgets[name], amount)
            for name, amount in mode.budgets.items()
            if amount and name in self.budgets
        ]

    def held(self, job: Job, mode: Mode, placement: Placement) -> Demand:
        """All that `job` holds on `placement`, its traffic over uplinks included."""
        demand = self.together(job, mode)
        for slot in placement:
            node = self._cluster.node_order[slot.node]
            demand += self.on_node(job, mode, node, slot.gpus)
        traffic = uplinks(self._cluster, job, placement)
        return demand + [(self.uplinks[rack], gbps) for rack, gbps in traffic.items()]

    def allows(self, job: Job, mode: Mode) -> bool:
        """Whether quotas, resources and budgets would serve `mode` with nothing else there."""
        return all(
            amount <= self.rows[row].capacity
            for row, amount in (*self.together(job, mode), *self.used_up(mode))
        ) and not any(
            amount and name not in known
            for amounts, known in ((mode.resources, self.resources), (mode.budgets, self.budgets))
            for name, amount in amounts.items()
        )
