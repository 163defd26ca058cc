"""The place that is kept for a live job that has waited too long (see `simulate.reservation`)."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..control.journal.events import Claim
from ..control.journal.state import LiveJob, State
from ..control.present import as_running, as_waiting, may_start, ran_before
from ..executors.base import AttemptKey, NodeStatus, Progress
from ..model.cluster import Cluster, Tenant
from ..model.instance import Instance, Placement, Running, Slot
from ..model.job import Job
from ..physics import setup_s
from ..physics.catalogue import Catalogue
from .reservation import Claimed, Reservation, earliest, patience_s, too_much
from .world import World


def protected(state: State) -> set[str]:
    """Jobs that have started on their reservation: they are not preempted."""
    return {
        attempt.key.job
        for attempt in state.live_attempts()
        if attempt.reserved and not attempt.leaving
    }


class Reserving:
    """Keeps at most one reservation from round to round; after a crash it is made anew."""

    def __init__(self) -> None:
        self.current: Reservation | None = None

    def renew(
        self,
        state: State,
        cluster: Cluster,
        tenants: tuple[Tenant, ...],
        statuses: Sequence[NodeStatus],
        progress: Mapping[AttemptKey, Progress],
        now_s: float,
        *,
        left_out: Collection[str] = (),
        strangers: Sequence[Placement] = (),
    ) -> Claim | None:
        """Keep the reservation there is, or make one for who is entitled to it. Returns a claim for
        its job as soon as there is room for that. Jobs of `left_out` get none, and nodes where they
        or `strangers` are give none."""
        there = replace(cluster, nodes=tuple(status.node for status in statuses))
        usable = {status.node.name for status in statuses if status.usable}
        kept = self.current
        if kept is not None and not _stands(kept, state, usable, now_s):
            self.current = kept = None
        names = [kept.job] if kept is not None else _entitled(state, there, now_s)
        names = [name for name in names if name not in left_out]
        if not names:
            return None
        closed = {slot.node for placement in strangers for slot in placement}
        closed |= {status.node.name for status in statuses if not status.usable}
        world, claimed = _world(state, there, tenants, closed, progress, now_s, names, left_out)
        for name in names:
            kept = self.current = self.current or earliest(world, name, claimed)
            if kept is not None:
                break
        if kept is None:
            return None
        for placement, _ in claimed:
            for slot in placement:
                world.free.seize(slot.node, slot.gpus, slot.cpus)
        found = (kept.option, kept.placement)
        if not world.free.holds(world.need(kept.job, kept.option), kept.placement):
            fits = world.fit(kept.job)
            if fits is None:
                return None
            found = fits
        self.current = None
        return Claim(job=kept.job, mode=found[0].mode, placement=found[1], reserved=True)

    def places(self, now_s: float) -> tuple[tuple[Placement, float], ...]:
        """The place that is kept, and in how many seconds it is due."""
        kept = self.current
        return () if kept is None else ((kept.placement, max(0.0, kept.due_s - now_s)),)


def _stands(kept: Reservation, state: State, usable: set[str], now_s: float) -> bool:
    job = state.open.get(kept.job)
    return (
        job is not None
        and may_start(state, job, now_s)
        and job.id not in state.claims
        and all(slot.node in usable for slot in kept.placement)
    )


def _entitled(state: State, cluster: Cluster, now_s: float) -> list[str]:
    """Those whose patience is over, in the order in which they were submitted; none where those
    that started on reservations hold all they may."""
    held = sum(state.jobs[name].attempts[-1].mode.gpus for name in protected(state))
    found: list[tuple[float, str, int]] = []
    for job in state.open.values():
        waited_s = state.waited_s(job, now_s)
        if (
            waited_s < patience_s(2, 0.0)
            or job.id in state.claims
            or not may_start(state, job, now_s)
        ):
            continue
        least, run_s = _shape(cluster, job)
        if waited_s >= patience_s(least, run_s):
            found.append((job.submit_s, job.id, least))
    names = []
    for _, name, gpus in sorted(found):
        if too_much(held, gpus, cluster.total_gpus):
            break
        names.append(name)
    return names


def _shape(cluster: Cluster, live_job: LiveJob) -> tuple[int, float]:
    """The fewest GPUs that run a job, and the seconds it is believed to take at best."""
    job = as_waiting(live_job)
    ways = Catalogue.of(cluster).options(job)
    if not ways:
        return 0, math.inf
    run_s = setup_s(job, ran_before(live_job)) + live_job.left_s / max(one.rate for one in ways)
    return min(one.mode.gpus for one in ways), run_s


def _world(
    state: State,
    cluster: Cluster,
    tenants: tuple[Tenant, ...],
    closed: set[str],
    progress: Mapping[AttemptKey, Progress],
    now_s: float,
    names: Sequence[str],
    left_out: Collection[str],
) -> tuple[World, list[Claimed]]:
    """What runs, with who may get a place; and what is claimed, or on `closed` nodes and those that
    hold more than they say they have, or something of `left_out`."""
    left = {node.name: node.gpus for node in cluster.nodes}
    jobs: list[Job] = [as_waiting(state.jobs[name]) for name in names]
    running: list[Running] = []
    for live_job in state.open.values():
        attempt = live_job.live
        if attempt is not None and all(slot.node in left for slot in attempt.placement):
            overfull = any(slot.gpus > left[slot.node] for slot in attempt.placement)
            if live_job.id in left_out or attempt.rate <= 0 or overfull:
                closed.update(slot.node for slot in attempt.placement)
                continue
            for slot in attempt.placement:
                left[slot.node] -= slot.gpus
            job, entry = as_running(live_job, attempt, progress.get(attempt.key), now_s)
            if attempt.stop_s is not None:
                leaves_s = max(0.0, attempt.stop_s + attempt.grace_s - now_s)
                entry = replace(
                    entry, remaining_s=min(entry.remaining_s, max(1e-3, leaves_s * attempt.rate))
                )
            jobs.append(job)
            running.append(entry)
    claimed: list[Claimed] = [
        (claim.placement, now_s + _shape(cluster, state.jobs[claim.job])[1])
        for claim in state.claims.values()
        if all(slot.node in left for slot in claim.placement)
    ]
    claimed += [
        ((Slot(node=node.name, gpus=node.gpus, cpus=node.cpus or 0),), math.inf)
        for node in cluster.nodes
        if node.name in closed
    ]
    instance = Instance(
        now_s=now_s, cluster=cluster, tenants=tenants, jobs=tuple(jobs), running=tuple(running)
    )
    return World(instance), claimed
