"""The least that gangs must pay at prices of their own: the other half of the proof for plans in
which a waiting job runs in one piece, on GPUs of its own of one type, and a running one goes on or
is preempted now and comes back in one piece.

A gang of n GPUs of a type pays its price in every second in which it holds them. At any instant the
gangs on a type are some that it has GPUs for, so that all together pay at most what the dearest of
such sets pays. What has no price is free, and leaves all room to others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from math import inf, nan

import numpy as np
import numpy.typing as npt

from ..files.certificate import Certificate
from ..model import Instance, Job, Running
from .jobs import NO_GPU, FitsNowhereError, held_by, may_leave, stay, ways_to_start
from .prices import PER_OFFER, ROUNDING, Floats, exact_sum
from .quotas import counts_against, limits
from .site import FORGIVEN, Site

Held = tuple[tuple[int, int], ...]
"""GPU types, by their positions, and how many GPUs of each."""
SAME_S = 1e-6
"""Seconds by which instants may differ that pass for the same."""


@dataclass(frozen=True, slots=True)
class Piece:
    """GPUs that a job holds for so many seconds."""

    held: Held
    seconds: float


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a job may do: go on as it runs, or start from `ready_s` after now on in one of several
    ways; before that it has saved, if it runs."""

    weight: float
    ready_s: float
    goes_on: Piece | None
    saves: Piece | None
    starts: tuple[Piece, ...]

    @property
    def done_s(self) -> float:
        """Return the least seconds from now until it is done."""
        ends_s = [self.ready_s + own.seconds for own in self.starts]
        return min([*ends_s, *([self.goes_on.seconds] if self.goes_on else [])])


def bound(instance: Instance, site: Site, certificate: Certificate, offset: float) -> float:
    """Return the bound on the sum of weighted completion times that prices of gangs prove;
    `offset` is what these count from before now. Not a number where prices are beyond what floats
    hold."""
    grid_s = np.array(certificate.grid_s, dtype=np.float64)
    prices = {
        (row.job, site.index[row.gpu_type], row.gpus): np.array(row.per_s, dtype=np.float64)
        for row in certificate.gangs
    }
    paid = [_least(name, job, grid_s, prices) for name, job in pieces(instance, site).items()]
    there = _there(instance, site, grid_s)
    worth = exact_sum(
        [
            amount
            for t in range(len(site.types))
            for amount in (_dearest(_by_size(prices, t), there[t]) * np.diff(grid_s)).tolist()
        ]
    )
    rounding = ROUNDING + PER_OFFER * (len(grid_s) + max(site.gpus, default=0))
    return exact_sum([offset, *paid, -worth]) - rounding * exact_sum([abs(offset), *paid, worth])


def pieces(instance: Instance, site: Site) -> dict[str, Pieces]:
    """Return what each job may do, by its name. Raises FitsNowhereError."""
    found: dict[str, Pieces] = {}
    before = {job.id: job.after for job in instance.jobs}
    most, against = limits(instance), counts_against(instance)
    for name in TopologicalSorter(before).static_order():
        job, entry = instance.job[name], instance.running_job.get(name)
        quota = min((most[own] for own in against[job.tenant]), default=inf)
        if entry is None:
            ready_s = max(0.0, job.submit_s - instance.now_s)
            ready_s = max([ready_s, *(found[other].done_s for other in before[name])])
            ran_before, work_s = name in instance.suspended_job, instance.remaining_s(job)
            goes_on = saves = None
        else:
            goes_on = _goes_on(site, job, entry)
            every_s = job.profile.checkpoint_every_s
            saves = Piece(goes_on.held, job.profile.checkpoint_s if every_s is None else 0.0)
            ran_before, ready_s = True, saves.seconds
            work_s = _left_when_preempted_s(instance, site, job, entry)
        starts: tuple[Piece, ...] = ()
        if entry is None or _may_leave_now(instance, job, entry):
            setup_s = job.profile.startup_s + (job.profile.restore_s if ran_before else 0.0)
            starts = tuple(_starts(site, job, quota, setup_s, work_s))
        if goes_on is None and not starts:
            raise FitsNowhereError(f"job {name} fits nowhere on the cluster")
        found[name] = Pieces(job.weight, ready_s, goes_on, saves, starts)
    return found


def _starts(site: Site, job: Job, quota: float, setup_s: float, work_s: float) -> Iterator[Piece]:
    """Yield the shortest start of each number of GPUs of each type."""
    shortest: dict[Held, float] = {}
    for mode, t, rate in ways_to_start(site, job, forgiven=FORGIVEN):
        takes = mode.resources if t == NO_GPU else held_by(site, job, mode, t, {t: 1.0})
        if mode.gpus > quota or not site.has(takes):
            continue
        own: Held = () if t == NO_GPU else ((t, mode.gpus),)
        shortest[own] = min(shortest.get(own, inf), setup_s + work_s / rate)
    return (Piece(own, seconds) for own, seconds in shortest.items())


def _goes_on(site: Site, job: Job, entry: Running) -> Piece:
    """Return the rest of a job that runs, on the cores that it has."""
    rate = stay(site, replace(job, cores_in_place=False), entry)[0].rate
    of_type: dict[int, int] = {}
    for slot in entry.placement:
        if slot.gpus:
            t = site.index[site.node[slot.node].gpu_type]
            of_type[t] = of_type.get(t, 0) + slot.gpus
    return Piece(tuple(of_type.items()), entry.setup_s + entry.remaining_s / rate)


def _may_leave_now(instance: Instance, job: Job, entry: Running) -> bool:
    has_run_s = instance.now_s - entry.started_s
    return may_leave(job, entry) and has_run_s >= job.min_run_s - SAME_S


def _left_when_preempted_s(instance: Instance, site: Site, job: Job, entry: Running) -> float:
    """Return the work that a job has left that is preempted now: with periodic checkpoints what it
    has done since the last one is lost."""
    every_s = job.profile.checkpoint_every_s
    if not every_s or entry.setup_s > 0:
        return entry.remaining_s
    since_s = max(entry.started_s, entry.last_checkpoint_s or entry.started_s)
    worked_s = max(0.0, instance.now_s - since_s)
    lost_s = max(0.0, worked_s - every_s * int((worked_s + SAME_S) / every_s))
    rate = stay(site, replace(job, cores_in_place=False), entry)[0].rate
    return min(job.work_s, entry.remaining_s + lost_s * rate)


def _least(
    name: str, job: Pieces, grid_s: Floats, prices: Mapping[tuple[str, int, int], Floats]
) -> float:
    """Return the least that a job pays for what it holds and its weighted completion.

    Between instants at which it starts or ends with an interval both change evenly.
    """

    def paid(own: Piece, start_s: Floats) -> Floats:
        total = np.zeros_like(start_s)
        for t, gpus in own.held:
            if (per_s := prices.get((name, t, gpus))) is not None:
                until = np.concatenate([[0.0], np.cumsum(per_s * np.diff(grid_s))])
                total += np.interp(start_s + own.seconds, grid_s, until)
                total -= np.interp(start_s, grid_s, until)
        return total

    now, least = np.zeros(1), inf
    if job.goes_on is not None:
        least = float(paid(job.goes_on, now)[0]) + job.weight * job.goes_on.seconds
    saved = 0.0 if job.saves is None else float(paid(job.saves, now)[0])
    for own in job.starts:
        start_s = np.concatenate([[job.ready_s], grid_s, grid_s - own.seconds])
        start_s = np.maximum(start_s, job.ready_s)
        costs = paid(own, start_s) + job.weight * (start_s + own.seconds)
        least = min(least, saved + float(costs.min()))
        if not np.isfinite(costs).all():
            return nan
    return least


def _there(instance: Instance, site: Site, grid_s: Floats) -> npt.NDArray[np.int64]:
    """Return the GPUs of each type in each interval, without those that are idle now on a node that
    is closed to all throughout it."""
    there = np.zeros((len(site.types), len(grid_s) - 1), dtype=np.int64)
    in_use: dict[str, int] = {}
    for entry in instance.running:
        for slot in entry.placement:
            in_use[slot.node] = in_use.get(slot.node, 0) + slot.gpus
    closing = [own for own in instance.cluster.windows if not own.tenants and not own.users]
    for node in instance.cluster.nodes:
        if not node.gpus:
            continue
        closed = np.zeros(len(grid_s) - 1, dtype=bool)
        for window in closing:
            if node.name in window.nodes:
                from_s, to_s = window.from_s - instance.now_s, window.to_s - instance.now_s
                closed |= (grid_s[:-1] >= from_s) & (grid_s[1:] <= to_s)
        there[site.index[node.gpu_type]] += np.where(closed, in_use.get(node.name, 0), node.gpus)
    return there


def _by_size(prices: Mapping[tuple[str, int, int], Floats], t: int) -> dict[int, Floats]:
    """Return the prices of the gangs on a type, those of each size together."""
    sizes: dict[int, list[Floats]] = {}
    for (_, kind, gpus), per_s in prices.items():
        if kind == t:
            sizes.setdefault(gpus, []).append(per_s)
    return {gpus: np.array(own) for gpus, own in sizes.items()}


def _dearest(by_size: Mapping[int, Floats], there: npt.NDArray[np.int64]) -> Floats:
    """Return in each interval what the dearest set of gangs pays that so many GPUs hold: of each
    size the dearest, size by size."""
    most = int(there.max(initial=0))
    best = np.zeros((most + 1, len(there)))
    for gpus, own in by_size.items():
        dearest = -np.sort(-own, axis=0)[: most // gpus]
        without = best.copy()
        for count, pay in enumerate(np.cumsum(dearest, axis=0), 1):
            at = count * gpus
            np.maximum(best[at:], without[:-at] + pay, out=best[at:])
    dearest_sets: Floats = best[there, np.arange(len(there))]
    return dearest_sets
