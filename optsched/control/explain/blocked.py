"""What keeps a waiting job from starting whatever it is worth: one answer for `queue` and
`explain`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...executors.base import NodeStatus
from ...model.cluster import Cluster, Tenant
from ...model.job import Job
from ...physics import held_resources
from ...physics.capacity import Domains, Row
from ...physics.catalogue import Catalogue
from ...physics.unschedulable import why_never
from ..journal.state import State

AMOUNT_TOLERANCE = 1e-6
"""Share of a resource by which it may be exceeded: the rounding of sums."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A clause on what keeps a job from starting. `never`: it would also if nothing else ran."""

    why: str
    never: bool = False


class Bars:
    """What tenants, resources and nodes leave of the present; claims count as held."""

    def __init__(
        self,
        state: State,
        cluster: Cluster,
        tenants: tuple[Tenant, ...],
        statuses: Sequence[NodeStatus],
    ) -> None:
        self._tenants = tenants
        self._cluster = replace(cluster, nodes=tuple(status.node for status in statuses))
        self._hardware = replace(cluster, nodes=tuple(status.hardware for status in statuses))
        closed = any(not status.usable for status in statuses)
        self._usable = (
            replace(cluster, nodes=tuple(status.node for status in statuses if status.usable))
            if closed
            else None
        )
        self._table = Catalogue.of(self._cluster, tenants).capacity
        self._held = [0.0] * self._table.shared
        self._domains = Domains(self._cluster, cluster.rack_uplink_gbps, AMOUNT_TOLERANCE)
        self._count(state)

    def _count(self, state: State) -> None:
        order = self._cluster.node_order
        held = {attempt.key.job: attempt for attempt in state.live_attempts()}
        for name, holder in (state.claims | held).items():
            job, mode = state.jobs[name].submission.job, holder.mode
            nodes = [order[slot.node] for slot in holder.placement if slot.node in order]
            self._domains.take(self._domains.ties(job), nodes)
            drawn = held_resources(self._cluster, job, mode, mode.gpu_type)
            for row, amount in self._table.together(job, replace(mode, resources=drawn)):
                self._held[row] += amount

    def of(self, job: Job, facts: dict[str, Any] | None = None) -> Bar | None:
        """What keeps `job` from starting now, None where that is a matter of GPUs and of what
        others are worth. The numbers of its quota go into `facts`."""
        quota = self._table.quotas.get(job.tenant or "")
        if quota is not None and facts is not None:
            cap, used = self._table.rows[quota].capacity, int(self._held[quota])
            facts["quota"] = {"tenant": job.tenant, "gpus": cap, "used": used}
        if not self._cluster.nodes:
            return None  # not seen yet
        never = why_never(Catalogue.of(self._hardware, self._tenants), job)
        if never is not None:
            return Bar(never, never=True)
        if why_never(Catalogue.of(self._cluster, self._tenants), job) is not None:
            return Bar("it needs GPUs that the cluster manager has given to others")
        usable = None if self._usable is None else Catalogue.of(self._usable, self._tenants)
        if usable and (not usable.cluster.nodes or why_never(usable, job) is not None):
            return Bar("it could only run on nodes that take no jobs now")
        ties = self._domains.ties(job)
        if quota is None and not any(self._held) and ties is None:
            return None
        modes = [option.mode for option in Catalogue.of(self._cluster).options(job)]
        if ties is not None:
            able = {name for mode in modes for name in Catalogue.of(self._cluster).room(job, mode)}
            nodes = sum(1 << self._cluster.node_order[name] for name in able)
            why = self._domains.why_closed(ties, nodes)
            if why is not None:
                return Bar(why)
        demands = [dict(self._table.together(job, mode)) for mode in modes]
        rows = list(zip(range(self._table.shared), self._table.rows, self._held, strict=False))
        for number, row, held in sorted(rows, key=lambda entry: entry[1].kind != "quota"):
            need = min((demand.get(number, 0.0) for demand in demands), default=0.0)
            if held and need > row.capacity - held + row.slack(AMOUNT_TOLERANCE):
                return Bar(_short(job, row, held, need))
        return None


def _short(job: Job, row: Row, held: float, need: float) -> str:
    if row.kind != "quota":
        return (
            f"it needs {need:.12g} of {row.of}, of which {held:.12g} of {row.capacity:.12g} are in "
            "use"
        )
    cap = _gpus(int(row.capacity))
    if row.of is None:
        who = f"all tenants with a quota may hold {cap} together and hold"
    else:
        who = f"its tenant {job.tenant} may hold {cap} and holds"
    return f"{who} {int(held)}, which leaves too few for the {int(need)} it needs"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
