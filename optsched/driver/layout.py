"""What never changes of a cluster in a simulation, and what a job takes of it."""

from ..frozen import entity
from ..model import Cluster, Job, Placement, Slot, Tenant
from ..physics import Span
from ..physics.capacity import Capacity, Domains, Ties

UNLIMITED = 1 << 60
"""Cores of a node on which they are not modelled."""
SLACK = 1e-7
"""Relative excess of a fractional amount that is taken for rounding; the verifier allows ten times
as much."""
NO_GPUS = "no GPUs"
"""Key of the pool of nodes without GPUs; a pool of GPUs is keyed by (gpu_type,)."""


Barred = tuple[float, float, int]
"""From when to when a job may not be on some nodes, a mask."""


@entity
class Need:
    """What a job takes when it starts in one mode.

    `nodes` is a mask of the nodes that can serve the mode at all (node i is bit i), `pool` the
    number of its GPU type in the layout. `cpus` and `memory_gib` are those of a CPU-only job.
    `shared` is what it holds of resources and quotas, `budgets` what it uses beyond the least that
    the job needs of each budget, both by row of the table of capacity. `ties` is
    what it minds of other jobs. `counts` are the numbers of nodes over which it may be split
    equally, None where it may be in any way. `windows` are those in which
    it may not be on some nodes, and `stay_s` is how long it must be able to stay where it starts.
    """

    gpus: int
    pool: int
    nodes: int
    spread: Span
    needs_node: bool
    cpus_per_gpu: int
    memory_gib_per_gpu: float
    cpus: int
    memory_gib: float
    shared: tuple[tuple[int, float], ...]
    budgets: tuple[tuple[int, float], ...]
    ties: Ties | None = None
    counts: tuple[int, ...] | None = None
    windows: tuple[Barred, ...] = ()
    stay_s: float = 0.0


class Layout:
    """What never changes of a cluster, with nodes, GPU types and racks numbered. Jobs have left
    before a window takes resources or quotas away if they are asked `notice_s` before it."""

    def __init__(self, cluster: Cluster, tenants: tuple[Tenant, ...]) -> None:
        self.cluster = cluster
        self.table = Capacity(cluster, tenants)
        self.slack = [row.slack(SLACK) for row in self.table.rows[: self.table.shared]]
        self.names = [node.name for node in cluster.nodes]
        self.order = cluster.node_order
        self.bit = [1 << i for i in range(len(cluster.nodes))]
        self.domains = Domains(
            cluster, cluster.rack_uplink_gbps, SLACK, reserved=cluster.uplinks == "reserved"
        )
        self.dips = self.table.dips
        self.notice_s = 0.0
        self._windows: dict[tuple[str | None, str | None], tuple[Barred, ...]] = {}
        self._alone: dict[tuple[int, int, int], Placement] = {}
        self.pools: dict[object, int] = {}
        self.pool: list[int] = []
        self.most_gpus: list[int] = []
        racks: dict[str, int] = {}
        for i, node in enumerate(cluster.nodes):
            key: object = (node.gpu_type,) if node.gpus else NO_GPUS
            number = self.pools.setdefault(key, len(self.pools))
            if number == len(self.most_gpus):
                self.most_gpus.append(0)
            self.most_gpus[number] = max(self.most_gpus[number], node.gpus)
            self.pool.append(number)
            if node.rack is not None:
                racks[node.rack] = racks.get(node.rack, 0) | 1 << i
        self.racks = list(racks.values())
        number_of = {rack: r for r, rack in enumerate(racks)}
        self.rack = [-1 if node.rack is None else number_of[node.rack] for node in cluster.nodes]
        self.spot = [*zip(self.pool, self.rack, self.bit, strict=True)]
        """Pool, rack and bit of each node."""
        self.gpus = [node.gpus for node in cluster.nodes]
        self.cpus = [UNLIMITED if node.cpus is None else node.cpus for node in cluster.nodes]
        self.memory = [
            float("inf") if node.memory_gib is None else node.memory_gib for node in cluster.nodes
        ]
        self.memory_slack = [SLACK * max(1.0, node.memory_gib or 0.0) for node in cluster.nodes]

    def dip(self, row: int, from_s: float, to_s: float) -> float:
        """Return how much less there is of a row at the lowest of its windows in a time."""
        own = (less for start_s, end_s, less in self.dips[row] if start_s < to_s and end_s > from_s)
        return max(own, default=0.0)

    def windows(self, job: Job) -> tuple[Barred, ...]:
        """Return the windows that bar a job, in order of time."""
        who = job.tenant, job.user
        if who not in self._windows:
            self._windows[who] = tuple(
                sorted(
                    (
                        window.from_s,
                        window.to_s,
                        sum(
                            self.bit[self.order[name]]
                            for name in {*window.nodes}
                            if name in self.order
                        ),
                    )
                    for window in self.cluster.windows
                    if window.nodes and window.bars(*who)
                )
            )
        return self._windows[who]

    def alone(self, i: int, gpus: int, cpus: int) -> Placement:
        """Return a placement on one node; equal ones are one object."""
        key = (i, gpus, cpus)
        placement = self._alone.get(key)
        if placement is None:
            placement = self._alone[key] = (Slot(node=self.names[i], gpus=gpus, cpus=cpus),)
        return placement
