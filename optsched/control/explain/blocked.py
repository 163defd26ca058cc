"""What keeps a waiting job from starting, whatever it is worth: one answer for `queue` and
`explain`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ...driver.borrowing import fewest_gpus, may_borrow
from ...duration import human
from ...explain.inactive import window_ahead
from ...frozen import record
from ...model import Instance, Job
from ...physics import held_resources
from ...physics.capacity import Domains, Row
from ...physics.catalogue import Catalogue
from ...physics.unschedulable import why_never
from ..journal.state import LiveJob, State
from ..present import as_suspended, as_waiting, ran_before

if TYPE_CHECKING:
    from ..controller import Controller
    from ..what_if.snapshot import Snapshot

AMOUNT_TOLERANCE = 1e-6
"""Share of a resource by which it may be exceeded: the rounding of sums."""
MOST_NAMES = 3
"""Predecessors, or nodes, named in a clause."""
Facts = dict[str, Any]
"""The numbers in sentences, for machines."""
Kind = Literal[
    "after", "barred", "pause", "unseen", "left_out", "limit", "claim", "short", "never", "full"
]


@record
class Obstacle:
    """What keeps a job from starting: its kind, and a clause on it. "never": it would also if
    nothing else ran."""

    kind: Kind
    why: str


class Obstacles:
    """What a controller, or a copy of what it knows, has against the start of jobs. What tenants,
    resources and nodes leave is counted once for all jobs; claims count as held. `highest` is the
    highest priority of those that hold something, None where nobody does."""

    def __init__(self, known: "Controller | Snapshot") -> None:
        self._known = known
        self._tenants, cluster = known.tenants, known.cluster
        statuses = known.statuses
        self._cluster = replace(cluster, nodes=tuple(status.node for status in statuses))
        self._hardware = replace(cluster, nodes=tuple(status.hardware for status in statuses))
        closed = any(not status.usable for status in statuses)
        self._usable = (
            replace(cluster, nodes=tuple(status.node for status in statuses if status.usable))
            if closed
            else None
        )
        self._table = Catalogue.of(self._cluster, self._tenants).capacity
        self._held = [0.0] * self._table.shared
        self._domains = Domains(self._cluster, cluster.rack_uplink_gbps, AMOUNT_TOLERANCE)
        self._count(known.state)

    def _count(self, state: State) -> None:
        order = self._cluster.node_order
        held = {attempt.key.job: attempt for attempt in state.live_attempts()}
        priorities = (state.jobs[name].submission.job.priority for name in state.claims | held)
        self.highest = max(priorities, default=None)
        for name, holder in (state.claims | held).items():
            job, mode = state.jobs[name].submission.job, holder.mode
            nodes = [order[slot.node] for slot in holder.placement if slot.node in order]
            self._domains.take(self._domains.ties(job), nodes)
            drawn = held_resources(self._cluster, job, mode, mode.gpu_type)
            for row, amount in self._table.together(job, replace(mode, resources=drawn)):
                self._held[row] += amount

    def of(self, job: LiveJob, now_s: float, facts: Facts | None = None) -> Iterator[Obstacle]:
        """Yield what keeps a job that is not on hold from starting now, the first to be told first:
        nothing where that is a matter of GPUs and of what others are worth. The numbers of its
        quota go into `facts`."""
        state = self._known.state
        before = state.awaited(job)
        if before:
            yield Obstacle("after", f"it comes after {_first(before)}")
        if job.id in state.barred:
            yield Obstacle("barred", state.barred[job.id])
        if job.ready_s > now_s:
            left = human(math.ceil(job.ready_s - now_s))
            again = f"{job.reason}; it is tried again in {left}"
            waits = f"its user wants it to begin in {left}"
            yield Obstacle("pause", waits if job.submission.begin_s == job.ready_s else again)
        if not self._known.statuses:
            yield Obstacle("unseen", "the controller has not seen its nodes yet")
        if job.id in self._known.left_out:
            why = f"rounds are decided without it: {self._known.left_out[job.id]}"
            yield Obstacle("left_out", why)
        if job.id in self._known.withheld:
            yield Obstacle("limit", self._known.withheld[job.id])
        if job.id in state.claims:
            nodes = [slot.node for slot in state.claims[job.id].placement]
            yield Obstacle("claim", f"its place on {', '.join(nodes[:MOST_NAMES])} is being freed")
        if self._known.short_of_disk is not None:
            yield Obstacle("short", self._known.short_of_disk)
        lacking = self._kept_off(job) or self._lacking(as_waiting(job), now_s, facts)
        if lacking is not None:
            yield lacking
        elif self._cluster.windows and (ahead := self._window(job, now_s)) is not None:
            yield Obstacle("full", ahead)

    def borrower(self, job: LiveJob) -> str | None:
        """Return the tenant that would have to borrow GPUs for a waiting job, if any."""
        if not may_borrow(self._tenants):
            return None
        known = as_waiting(job)
        gpus = fewest_gpus(known)
        quota = {tenant.name: tenant.gpu_quota or 0 for tenant in self._tenants}
        for row in self._table.quotas_of(known):
            of = self._table.rows[row].of
            if of is not None and self._held[row] + gpus > quota[of]:
                return of
        return None

    def _window(self, job: LiveJob, now_s: float) -> str | None:
        """Return which window keeps a job from starting now."""
        known = as_waiting(job)
        cluster = self._cluster if self._usable is None else self._usable
        suspended = (as_suspended(job),) if ran_before(job) else ()
        instance = Instance(
            now_s=now_s, cluster=cluster, tenants=self._tenants, jobs=(known,), suspended=suspended
        )
        return window_ahead(instance, known)

    def _kept_off(self, live_job: LiveJob) -> Obstacle | None:
        """Return that limits keep a job off all nodes on which it could run."""
        if not live_job.kept_off:
            return None
        job, hardware = as_waiting(live_job), Catalogue.of(self._hardware, self._tenants)
        anywhere = replace(job, node_labels=live_job.submission.job.node_labels)
        if why_never(hardware, job) is None or why_never(hardware, anywhere) is not None:
            return None
        labels = ", ".join(sorted(live_job.kept_off))
        return Obstacle(
            "limit",
            f"it could only run on nodes with label {labels}, where there are limits, and does not "
            f"ask for them (--node-label {min(live_job.kept_off)})",
        )

    def _lacking(self, job: Job, now_s: float, facts: Facts | None) -> Obstacle | None:
        """Return what the cluster lacks for a job."""
        rows = self._rows(now_s)
        quotas = [row for row in self._table.quotas_of(job) if rows[row].of is not None]
        if quotas and facts is not None:
            quota = min(quotas, key=lambda row: rows[row].capacity - self._held[row])
            own, used = rows[quota], int(self._held[quota])
            facts["quota"] = {"tenant": own.of, "gpus": own.capacity, "used": used}
        if not self._cluster.nodes:
            return None
        never = why_never(Catalogue.of(self._hardware, self._tenants), job)
        if never is not None:
            return Obstacle("never", f"it can never run on this cluster: {never}")
        if why_never(Catalogue.of(self._cluster, self._tenants), job) is not None:
            return Obstacle("full", "it needs GPUs that the cluster manager has given to others")
        usable = None if self._usable is None else Catalogue.of(self._usable, self._tenants)
        if usable and (not usable.cluster.nodes or why_never(usable, job) is not None):
            able = self._able(job)
            closed = [
                f"{status.node.name}: {status.reason or 'drained'}"
                for status in self._known.statuses
                if not status.usable and status.node.name in able
            ]
            which = f" ({_first(closed)})" if closed else ""
            return Obstacle("full", f"it could only run on nodes that take no jobs now{which}")
        return self._taken(job, rows, now_s)

    def _able(self, job: Job) -> set[str]:
        """Return the nodes on which a job could run if nobody else did."""
        catalogue = Catalogue.of(self._cluster)
        modes = [option.mode for option in catalogue.options(job)]
        return {name for mode in modes for name in catalogue.room(job, mode)}

    def _rows(self, now_s: float) -> list[Row]:
        """Return the rows that belong to no node, with what windows leave of them now."""
        rows = self._table.rows[: self._table.shared]
        for number, most in self._table.left_at(now_s).items():
            rows[number] = replace(rows[number], capacity=most)
        return rows

    def _taken(self, job: Job, rows: Sequence[Row], now_s: float) -> Obstacle | None:
        """Return what others hold of what a job needs, its quota first."""
        ties = self._domains.ties(job)
        if not any(self._held) and ties is None:
            return None
        catalogue = Catalogue.of(self._cluster)
        modes = [option.mode for option in catalogue.options(job)]
        if ties is not None:
            nodes = sum(1 << self._cluster.node_order[name] for name in self._able(job))
            why = self._domains.why_closed(ties, nodes)
            if why is not None:
                return Obstacle("full", why)
        demands = [dict(self._table.together(job, mode)) for mode in modes]
        entries = zip(range(self._table.shared), rows, self._held, strict=True)
        for number, row, held in sorted(entries, key=lambda entry: entry[1].kind != "quota"):
            need = min((demand.get(number, 0.0) for demand in demands), default=0.0)
            if need and held and need > row.capacity - held + row.slack(AMOUNT_TOLERANCE):
                window = self._lowers(number, now_s)
                return Obstacle("full", _short(job, row, held, need, window))
        return None

    def _lowers(self, number: int, now_s: float) -> str:
        """Return while which window there is the least of a row now."""
        lowest = min(
            (
                (left[number], window.name)
                for window in self._cluster.windows
                if window.from_s <= now_s < window.to_s
                and number in (left := dict(self._table.left_in(window)))
            ),
            default=None,
        )
        return "" if lowest is None else f" while {lowest[1]} lasts"


def _short(job: Job, row: Row, held: float, need: float, window: str) -> str:
    if row.kind != "quota":
        return (
            f"it needs {need:.12g} of {row.of}, of which {held:.12g} of {row.capacity:.12g} are in "
            f"use{window}"
        )
    cap = _gpus(int(row.capacity))
    if row.of is None:
        who = f"all tenants with a quota may hold {cap} together and hold"
    else:
        is_own = row.of == job.tenant
        whose = f"its tenant {row.of}" if is_own else f"tenant {row.of}, with all below it,"
        who = f"{whose} may hold {cap}{window} and holds"
    return f"{who} {int(held)}, which leaves too few for the {int(need)} it needs"


def _first(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
