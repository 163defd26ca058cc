"""What keeps a waiting job from starting whatever it is worth: one answer for `queue` and
`explain`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...executors.base import NodeStatus
from ...model.cluster import Cluster, Tenant, gpu_caps, quota_pool
from ...model.job import Job
from ...physics import held_resources
from ...physics.capacity import Domains
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
        self._caps, self._pool = gpu_caps(tenants), quota_pool(tenants)
        self._gpus: dict[str | None, int] = {}
        self._held: dict[str, float] = {}
        self._domains = Domains(self._cluster, cluster.rack_uplink_gbps, AMOUNT_TOLERANCE)
        self._count(state)

    def _count(self, state: State) -> None:
        order = self._cluster.node_order
        held = {attempt.key.job: attempt for attempt in state.live_attempts()}
        for name, holder in (state.claims | held).items():
            job, mode = state.jobs[name].submission.job, holder.mode
            nodes = [order[slot.node] for slot in holder.placement if slot.node in order]
            self._domains.take(self._domains.ties(job), nodes)
            self._gpus[job.tenant] = self._gpus.get(job.tenant, 0) + mode.gpus
            for what, amount in held_resources(self._cluster, job, mode, mode.gpu_type).items():
                self._held[what] = self._held.get(what, 0.0) + amount

    def of(self, job: Job, facts: dict[str, Any] | None = None) -> Bar | None:
        """What keeps `job` from starting now, None where that is a matter of GPUs and of what
        others are worth. The numbers of its quota go into `facts`."""
        cap = None if job.tenant is None else self._caps.get(job.tenant)
        used = self._gpus.get(job.tenant, 0)
        if cap is not None and facts is not None:
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
        modes = (
            [option.mode for option in Catalogue.of(self._cluster).options(job)]
            if cap is not None or self._held or ties is not None
            else []
        )
        if ties is not None:
            able = {name for mode in modes for name in Catalogue.of(self._cluster).room(job, mode)}
            nodes = sum(1 << self._cluster.node_order[name] for name in able)
            why = self._domains.why_closed(ties, nodes)
            if why is not None:
                return Bar(why)
        least = min((mode.gpus for mode in modes), default=0)
        if cap is not None and used + least > cap:
            return Bar(
                f"its tenant {job.tenant} may hold {_gpus(cap)} and holds {used}, which leaves "
                "too few for the "
                f"{least} it needs"
            )
        together = sum(self._gpus.get(name, 0) for name in self._caps)
        if cap is not None and self._pool is not None and together + least > self._pool:
            return Bar(
                f"all tenants with a quota may hold {_gpus(self._pool)} together and hold "
                f"{together}, which "
                f"leaves too few for the {least} it needs"
            )
        for what, capacity in self._cluster.resources.items():
            need, held = (
                min((mode.resources.get(what, 0.0) for mode in modes), default=0.0),
                self._held.get(what, 0.0),
            )
            if held and need > capacity - held + AMOUNT_TOLERANCE * capacity:
                return Bar(
                    f"it needs {need:.12g} of {what}, of which {held:.12g} of {capacity:.12g} "
                    "are in use"
                )
        return None


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
