"""Hosts, the GPUs they hold, and what the whole cluster shares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from annotated_types import MaxLen, MinLen

from ..frozen import frozen
from .quantity import Amount, Count, Gib, Instant, Rate, Weight
from .value import Value, empty

MOST_OF_A_NAME = 256
Name = Annotated[str, MaxLen(MOST_OF_A_NAME)]
"""What something is called: every message and table repeats it."""
Label = Annotated[str, MinLen(1), MaxLen(255)]
"""A word by which nodes, or jobs, are found."""
FOR_EVER_S = 1e10
"""The end of a window that lasts until it is lifted: the last instant that there is."""
POWER_CAP = "power_w"
"""The cluster resource, in watts, on which every GPU that works draws."""


Steps = tuple[tuple[Instant, Amount], ...]
"""An amount that changes over time: each holds from its instant on, the first also before."""


@frozen
class Node(Value):
    """One host. `None` for cores or memory means that this is not modelled and never binds.

    `gpu_memory_gib` is the memory of each GPU; `gpu_price_per_h` what one GPU costs for an hour.
    `memory_gbps` is the bandwidth of the host's memory in Gbit/s, which all jobs on the node share.
    `model_cache_gib` is the cache for models that jobs fetch; None is no cache, so that each start
    fetches. `labels` are what jobs may require of a node, or forbid.
    """

    name: str
    gpu_type: str | None = None
    gpus: Count = 0
    gpu_memory_gib: Gib | None = None
    cpus: Count | None = None
    memory_gib: Gib | None = None
    memory_gbps: Rate | None = None
    model_cache_gib: Gib | None = None
    rack: str | None = None
    labels: tuple[Label, ...] = ()
    gpu_price_per_h: Amount = 1.0

    __hash__ = Value.__hash__


@frozen
class Tenant(Value):
    """A payer for jobs. `gpu_quota` caps the GPUs that its jobs and those of all tenants below it
    hold at once; `None` is no cap.

    `borrow_gpus` is how many more they may hold while other tenants leave as many of their quotas
    idle. `weight` is its share beside the others of its `parent` (see `shares`).
    """

    name: Name
    parent: Name | None = None
    gpu_quota: Count | None = None
    borrow_gpus: Count = 0
    weight: Weight = 1.0

    __hash__ = Value.__hash__


@frozen
class Tier:
    """A name for the jobs of one `priority`, and whom one of them that waits may preempt: `any`
    that is not above it (jobs of lower priorities whatever that costs these, those of its own where
    that pays), those of `lower` priorities alone, or `never` anybody."""

    name: Name
    priority: int
    preempts: Literal["never", "lower", "any"] = "any"


@frozen
class Window(Value):
    """A time, known beforehand, in which no job may be on some nodes: maintenance, or a reservation
    of them for `tenants` and `users` (any of these), whose jobs may. Of `resources` there are then
    only so much, and the jobs of the tenants of `quotas`, with those below them, hold only so many
    GPUs, borrowed ones included."""

    nodes: tuple[str, ...] = ()
    from_s: Instant
    to_s: Instant
    name: Name = "maintenance"
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    resources: Mapping[str, Amount] = field(default_factory=empty)
    quotas: Mapping[str, Count] = field(default_factory=empty)

    __hash__ = Value.__hash__

    @property
    def lowers(self) -> bool:
        """Return whether there is less then of something that all nodes share."""
        return bool(self.resources or self.quotas)

    def bars(self, tenant: str | None, user: str | None) -> bool:
        """Return whether jobs of this tenant and user may not be there."""
        return tenant not in self.tenants and user not in self.users


@dataclass(frozen=True, kw_only=True)
class Cluster(Value):
    """All nodes, plus what is shared by all of them.

    `resources` are renewable (held while a job runs: licences, power); `budgets` are used up by the
    plan (energy, money). The resource `power_w` is a power cap: jobs hold what their GPUs draw
    without naming it. `rack_uplink_gbps` is what a rack's gangs can exchange with other racks; that
    of a rack it does not name never binds. With `uplinks` "reserved" gangs that do not fit on an
    uplink together do not run together; "shared" lets them, and slows them down (see `contention`).
    `reference_gpu` is the GPU type on which `duration_s` was measured; it is a label.
    `carbon_g_per_kwh` is what a kWh emits and `energy_price_per_kwh` what it costs, always or from
    each of some instants on. `windows` are the times in which nodes are not there for all. `tiers`
    name priorities; jobs of one that has no name preempt `any`.
    """

    nodes: tuple[Node, ...] = ()
    resources: Mapping[str, Amount] = field(default_factory=empty)
    budgets: Mapping[str, Amount] = field(default_factory=empty)
    rack_uplink_gbps: Mapping[str, Rate] = field(default_factory=empty)
    uplinks: Literal["reserved", "shared"] = "reserved"
    reference_gpu: str | None = None
    carbon_g_per_kwh: Amount | Steps | None = None
    energy_price_per_kwh: Amount | Steps | None = None
    tiers: tuple[Tier, ...] = ()
    windows: tuple[Window, ...] = ()

    __hash__ = Value.__hash__

    @cached_property
    def node(self) -> dict[str, Node]:
        """Return the nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def node_order(self) -> dict[str, int]:
        """Return the position of each node in `nodes`, by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def gpu_types(self) -> tuple[str | None, ...]:
        """Return GPU types in order of first appearance; `None` stands for GPUs of no named
        type."""
        return tuple(dict.fromkeys(node.gpu_type for node in self.nodes if node.gpus > 0))

    @cached_property
    def lowest_gpu_price_per_h(self) -> dict[str | None, float]:
        """Return the lowest price of a GPU of each type."""
        prices: dict[str | None, float] = {}
        for node in self.nodes:
            if node.gpus:
                prices[node.gpu_type] = min(
                    node.gpu_price_per_h, prices.get(node.gpu_type, node.gpu_price_per_h)
                )
        return prices

    @cached_property
    def preempts(self) -> dict[int, str]:
        """Return whom jobs preempt, by priority, of those that are named."""
        return {tier.priority: tier.preempts for tier in self.tiers}

    @cached_property
    def total_gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: nothing derived travels between processes."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}
