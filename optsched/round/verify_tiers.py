"""The independent checker of priorities and of borrowed GPUs: no job waits for what jobs below it
hold that it may take."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from ..model import Elastic, Instance, Job, Mode, Placement, Running, Slot, Tenant
from ..objectives import MOST_TIERS
from ..physics import (
    cpus,
    fits_type,
    hold_to_save_s,
    may_preempt,
    memory_gib,
    node_counts,
    placed_rate,
)
from ..physics.modes import base_modes
from ..verify.violation import Violation, broken
from ..verify.windows import needed_until_s
from .plan import JobRound, decision
from .verify import drawn, limits, verify_round

Level = tuple[bool, int]
"""Whether a job is within the quotas of its tenant, and its priority: what comes first of that
decides."""
Room = dict[str, list[float]]
"""GPUs, cores and GiB of memory that are free on each node."""


def priority_inversions(
    instance: Instance,
    jobs: Sequence[JobRound],
    blocked: Sequence[Placement] = (),
    keep: Collection[str] = (),
    reserved: Sequence[Placement] = (),
) -> tuple[Violation, ...]:
    """Return for each waiting job that could run, beside all that others hold, in the place of jobs
    below it that it may take, how it could.

    Below it are those of lower priorities and, if it is within the quotas of its tenant, all that
    borrow. It may take the place of those that are started, resumed, moved or resized now; and of
    those that go on if jobs of its priority preempt others, no job that may not waits above it, and
    the rules of those let them be preempted, `keep` does not name them, and they would not have
    completed before they have saved. What is `reserved` is nobody's. Places are looked for on each
    node alone; and on several, on those with the most room for the job first. Of jobs that are
    alike one is looked at. `jobs` are a verified round.
    """
    return tuple(_Inversions(instance, jobs, blocked, keep, reserved).all())


class _Inversions:
    def __init__(
        self,
        instance: Instance,
        jobs: Sequence[JobRound],
        blocked: Sequence[Placement],
        keep: Collection[str],
        reserved: Sequence[Placement],
    ) -> None:
        self._instance, self._keep = instance, keep
        self._blocked = (*blocked, *reserved)
        self._holding = [entry for entry in jobs if entry.mode is not None]
        holds = {entry.id for entry in self._holding}
        active = [
            job
            for job in instance.jobs
            if job.id in instance.running_job or (job.submit_s <= instance.now_s and not job.after)
        ]
        beyond = _beyond_quota(instance, active)
        alone: dict[str, Level] = {job.id: (job.id not in beyond, job.priority) for job in active}
        levels = dict(alone)
        for entry in instance.running:
            partner = entry.mode.share_with
            if partner is not None:
                levels[entry.job] = max(alone[entry.job], alone[partner])
        self._level: dict[str, Level] = {}
        for within in (True, False):
            own = {name: level[1] for name, level in levels.items() if level[0] is within}
            lowest = min(sorted({*own.values()}, reverse=True)[:MOST_TIERS], default=0)
            self._level |= {name: (within, max(value, lowest)) for name, value in own.items()}
        self._idle = [job for job in active if job.id not in holds]
        self._waiting = [job for job in self._idle if job.id not in instance.running_job]

    def all(self) -> Iterator[Violation]:
        """Return the violations."""
        alike: set[object] = set()
        for job in sorted(self._waiting, key=lambda job: self._level[job.id], reverse=True):
            kind = self._level[job.id], _kind(job)
            if kind not in alike:
                alike.add(kind)
                yield from self._inversion(job)

    def _inversion(self, job: Job) -> Iterator[Violation]:
        takes = self._takes(job)
        if not takes:
            return
        others = [entry for entry in self._holding if entry.id not in takes]
        room = self._room(others)
        for mode in base_modes(self._instance.cluster, job):
            for placement in self._places(job, mode, room):
                said = decision(self._instance, job.id, mode, placement)
                own = JobRound(id=job.id, decision=said, mode=mode, placement=placement)
                if (
                    placed_rate(self._instance, job, mode, placement) > 0
                    and not self._is_too_much_soon(job, mode, placement)
                    and not self._faults([*others, own])
                ):
                    on = ", ".join(slot.node for slot in placement) or "no node"
                    lower = ", ".join(sorted(takes)[:3])
                    below = {self._level[name][0] for name in takes}
                    loans = self._level[job.id][0] and False in below
                    who = "jobs that borrow" if loans else "jobs of lower priority"
                    yield broken(
                        "priority inversion",
                        job.id,
                        f"waits, and could run on {on} if {who} left ({lower})",
                        self._instance.now_s,
                    )
                    return

    def _faults(self, jobs: list[JobRound]) -> tuple[Violation, ...]:
        """Return what is wrong with these holding what they do, and all others nothing."""
        holds = {entry.id for entry in jobs}
        gone = (
            JobRound(id=entry.job, decision="preempt")
            for entry in self._instance.running
            if entry.job not in holds
        )
        return verify_round(self._instance, [*jobs, *gone], self._blocked)

    def _is_too_much_soon(self, job: Job, mode: Mode, placement: Placement) -> bool:
        """Return whether a window that a job would meet leaves less than it would hold with all
        that run."""
        instance, until_s = self._instance, needed_until_s(self._instance, job, mode, placement)
        near = [own for own in instance.cluster.windows if instance.now_s < own.from_s < until_s]
        if not any(window.lowers for window in near):
            return False
        runs = drawn(instance, ((entry.job, entry.mode) for entry in instance.running))
        takes = drawn(instance, [(job.id, mode)])
        return any(
            takes[what] > most - runs[what] and takes[what] > 0
            for window in near
            for what, most in limits(window)
        )

    def _takes(self, job: Job) -> set[str]:
        """Return the jobs whose place a waiting one may take."""
        instance, own = self._instance, self._level[job.id]
        preempts = {tier.priority: tier.preempts for tier in instance.cluster.tiers}
        may = preempts.get(own[1], "any") != "never" and not any(
            preempts.get(self._level[other.id][1]) == "never" and self._level[other.id] > own
            for other in self._idle
        )
        takes = set()
        for entry in self._holding:
            running = instance.running_job.get(entry.id)
            if self._level[entry.id] < own and (
                running is None or entry.decision != "continue" or (may and self._yields(running))
            ):
                takes.add(entry.id)
        partner = {entry.id: entry.mode.share_with for entry in self._holding if entry.mode}
        return {name for name in takes if partner[name] is None or partner[name] in takes}

    def _yields(self, entry: Running) -> bool:
        """Return whether a running job that goes on may be preempted, and would not be done
        sooner."""
        instance, job = self._instance, self._instance.job[entry.job]
        if entry.job in self._keep or not may_preempt(instance, entry):
            return False
        rate = placed_rate(instance, job, entry.mode, entry.placement)
        return entry.setup_s + entry.remaining_s / rate > hold_to_save_s(job)

    def _room(self, holding: Sequence[JobRound]) -> Room:
        """Return what the nodes have beside these."""
        room = {
            node.name: [
                float(node.gpus),
                float("inf") if node.cpus is None else node.cpus,
                float("inf") if node.memory_gib is None else node.memory_gib,
            ]
            for node in self._instance.cluster.nodes
        }
        for slot in chain.from_iterable(self._blocked):
            room[slot.node][0] -= slot.gpus
            room[slot.node][1] -= slot.cpus
        for entry in holding:
            mode, job = entry.mode, self._instance.job[entry.id]
            assert mode is not None
            counts = mode.share_with is None or entry.id < mode.share_with
            for slot in entry.placement:
                left = room[slot.node]
                left[0] -= slot.gpus if counts else 0
                left[1] -= slot.cpus
                left[2] -= memory_gib(job, mode, slot.gpus)
        return room

    def _places(self, job: Job, mode: Mode, room: Room) -> Iterator[Placement]:
        """Return where a job might fit."""
        nodes = [node for node in self._instance.cluster.nodes if fits_type(job, mode, node)]
        if not mode.gpus and not mode.cpus and not job.memory_gib:
            yield ()
            return
        parts: dict[int, list[str]] = defaultdict(list)  # nodes by the most GPUs that fit there
        for node in nodes:
            if _fits(job, mode, mode.gpus, room[node.name]):
                yield (Slot(node=node.name, gpus=mode.gpus, cpus=cpus(mode, mode.gpus)),)
            most = max(
                (n for n in range(1, mode.gpus) if _fits(job, mode, n, room[node.name])), default=0
            )
            parts[most].append(node.name)
        order = [(name, most) for most in sorted(parts, reverse=True) for name in parts[most]]
        counts = node_counts(job, mode.gpus)
        if counts is None:
            yield from self._split(mode, order)
            return
        for count in counts:
            part = mode.gpus // count
            if count > 1 and len(order) >= count and order[count - 1][1] >= part:
                yield self._slots(mode, [(name, part) for name, _ in order[:count]])

    def _split(self, mode: Mode, order: list[tuple[str, int]]) -> Iterator[Placement]:
        held, left = [], mode.gpus
        for name, most in order:
            if (take := min(most, left)) > 0:
                held.append((name, take))
                left -= take
        if not left and len(held) > 1:
            yield self._slots(mode, held)

    def _slots(self, mode: Mode, held: list[tuple[str, int]]) -> Placement:
        order = self._instance.cluster.node_order
        return tuple(
            Slot(node=name, gpus=gpus, cpus=cpus(mode, gpus))
            for name, gpus in sorted(held, key=lambda part: order[part[0]])
        )


def _beyond_quota(instance: Instance, active: Sequence[Job]) -> set[str]:
    """Return the jobs that do not fit in the quotas of their tenants, and of those above these,
    beside the jobs that come before them: by priority, running ones first, then by GPU time left
    for the weight, then by submission. One that runs all the same fills the closest of them."""
    tenant = {own.name: own for own in instance.tenants}
    if not any(own.borrow_gpus > 0 for own in instance.tenants):
        return set()
    left = {name: own.gpu_quota for name, own in tenant.items() if own.gpu_quota is not None}
    runs = instance.running_job

    def order(job: Job) -> tuple[int, bool, float, float, str]:
        gpu_s = _least_gpus(job) * instance.remaining_s(job) / max(job.weight, 1e-9)
        return -job.priority, job.id not in runs, job.id not in runs and gpu_s, job.submit_s, job.id

    beyond = set()
    for job in sorted(active, key=order):
        entry = runs.get(job.id)
        gpus = _least_gpus(job) if entry is None else entry.mode.gpus
        limits = [own.name for own in _upwards(tenant, job.tenant) if own.name in left]
        fits = all(gpus <= left[name] for name in limits)
        if gpus == 0 or not limits:
            continue
        if not fits:
            beyond.add(job.id)
        for name in limits if fits else limits[: int(entry is not None)]:
            left[name] -= gpus
    return beyond


def _upwards(tenant: dict[str, Tenant], name: str | None) -> Iterator[Tenant]:
    for _ in tenant:
        if name is None or name not in tenant:
            return
        yield tenant[name]
        name = tenant[name].parent


def _least_gpus(job: Job) -> int:
    if job.modes:
        return min(mode.gpus for mode in job.modes)
    return job.gpus.min if isinstance(job.gpus, Elastic) else job.gpus


def _fits(job: Job, mode: Mode, gpus: int, room: list[float]) -> bool:
    free_gpus, free_cpus, free_gib = room
    return (
        free_gpus >= gpus
        and free_cpus >= cpus(mode, gpus)
        and free_gib * (1 + 1e-9) >= memory_gib(job, mode, gpus)
    )


def _kind(job: Job) -> object:
    """Return what is equal for jobs that fit in the same places."""
    return (
        *(job.profile, job.gpus, job.cpus, job.memory_gib, job.modes, job.min_nodes),
        *(job.max_nodes, job.tenant, tuple(sorted(job.resources.items()))),
        *(tuple(sorted(job.budgets.items())), job.labels, job.node_labels),
        *(tuple(sorted(job.affinity.items())), tuple(sorted(job.anti_affinity.items()))),
    )
