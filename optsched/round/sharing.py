"""Options on the GPUs of a running job: beside it, or of one of two that share them, alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..model.instance import Instance, Placement, Running
from ..model.job import Job, Mode
from ..physics import cpus, gpus_by_type, memory_gib, node_counts, placed_rate, sharing_rate, span
from ..physics.modes import Option
from .deadline import Deadline
from .model import Kind, is_second
from .patterns import Pattern, node_classes

MOST_HOSTS = 3
"""Running jobs beside which a waiting job may start: those where both together run fastest."""
MOST_PAIRS = 20_000
"""Pairs of kinds of jobs that are looked at; beyond, only the first waiting jobs have such
options."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """An option on given nodes. `job` and `partner` are positions of active jobs.

    BESIDE: start on the GPUs of the running job `partner`, which goes on at `partner_rate`. ALONE:
    of two that share GPUs the second one stays (the first is `partner`, and leaves).
    """

    job: int
    kind: Kind
    partner: int
    mode: Mode
    placement: Placement
    rate: float
    partner_rate: float


def pinned_options(
    instance: Instance,
    jobs: Sequence[Job],
    running: Sequence[Running | None],
    patterns: Sequence[tuple[Pattern, ...]],
    deadline: Deadline,
    *,
    beside: bool = True,
) -> list[Pinned]:
    """Return all such options, by job; without `beside` only those of jobs that share already.
    Hosts that are alike take turns, so that not all guests are sent to the same few."""
    position = {job.id: j for j, job in enumerate(jobs)}
    found: list[Pinned] = []
    hosts: dict[object, list[tuple[int, Running]]] = {}
    kinds = _Kinds(instance)
    for j, entry in enumerate(running):
        if entry is None:
            continue
        if is_second(entry):
            assert entry.mode.share_with is not None
            mode = replace(entry.mode, share_with=None)
            alone = placed_rate(instance, jobs[j], mode, entry.placement)
            found.append(
                Pinned(
                    j,
                    Kind.ALONE,
                    position[entry.mode.share_with],
                    mode,
                    entry.placement,
                    alone,
                    0.0,
                )
            )
        elif (
            beside
            and entry.mode.share_with is None
            and entry.mode.gpus
            and jobs[j].profile.sharing is not None
        ):
            hosts.setdefault(kinds.of_host(jobs[j], entry), []).append((j, entry))
    alike = list(hosts.values())
    pairs_left = MOST_PAIRS
    known: dict[object, list[_Offer]] = {}
    turn: dict[int, int] = {}
    for j, entry in enumerate(running):
        if not alike or entry is not None or jobs[j].profile.sharing is None:
            continue
        guest = kinds.of_guest(jobs[j], patterns[j])
        if guest not in known:
            if pairs_left < len(alike):
                continue
            pairs_left -= len(alike)
            known[guest] = _offers(instance, jobs, j, patterns[j], alike, deadline)
        left = MOST_HOSTS
        for offer in known[guest]:
            own = alike[offer.kind]
            take, at = min(left, len(own)), turn.get(offer.kind, 0)
            found.extend(_pinned(j, offer, *own[(at + k) % len(own)]) for k in range(take))
            turn[offer.kind] = at + take
            left -= take
            if not left:
                break
    return sorted(found, key=lambda one: one.job)


class _Kinds:
    """Keys that are equal for jobs, and for what running jobs hold, which cannot be told apart by
    any rate or room."""

    def __init__(self, instance: Instance) -> None:
        self._cluster = instance.cluster
        self._class_of = node_classes(instance.cluster)[1]
        self._known: dict[int, str] = {}

    def of_guest(self, job: Job, patterns: tuple[Pattern, ...]) -> object:
        return self._job(job), id(patterns)

    def of_host(self, job: Job, entry: Running) -> object:
        mode, order = entry.mode, self._cluster.node_order
        held = sorted(
            (self._class_of[order[slot.node]], slot.gpus, slot.cpus) for slot in entry.placement
        )
        return (
            self._job(job),
            mode.gpus,
            mode.gpu_type,
            mode.cpus_per_gpu,
            mode.clock_mhz,
            mode.duration_s,
            span(self._cluster, entry.placement),
            tuple(held),
        )

    def _job(self, job: Job) -> object:
        profile = self._known.get(id(job.profile))
        if profile is None:
            profile = self._known[id(job.profile)] = repr(job.profile)
        work_s = job.work_s if job.modes else None
        return profile, job.gpus, work_s, job.min_nodes, job.max_nodes


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a guest may do beside any host of a kind (its number), and the rates of both."""

    kind: int
    option: Option
    rate: float
    partner_rate: float


def _offers(
    instance: Instance,
    jobs: Sequence[Job],
    j: int,
    patterns: tuple[Pattern, ...],
    alike: Sequence[Sequence[tuple[int, Running]]],
    deadline: Deadline,
) -> list[_Offer]:
    """The kinds of hosts beside which a job can run, first where both together run fastest."""
    job = jobs[j]
    sizes = {pattern.gpus for pattern in patterns}
    found: list[tuple[float, _Offer]] = []
    for kind, hosts in enumerate(alike):
        h, entry = hosts[0]
        if entry.mode.gpus not in sizes:
            continue
        host = jobs[h]
        if not sharing_rate(job.profile, host.profile) or not sharing_rate(
            host.profile, job.profile
        ):
            continue
        deadline.check()
        option = _fitting(instance, job, patterns, host, entry)
        if option is None:
            continue
        own = placed_rate(instance, job, replace(option.mode, share_with=host.id), entry.placement)
        theirs = placed_rate(
            instance, host, replace(entry.mode, share_with=job.id), entry.placement
        )
        if own > 0 and theirs > 0:
            alone = placed_rate(instance, host, entry.mode, entry.placement)
            found.append((own / option.rate + theirs / alone, _Offer(kind, option, own, theirs)))
    found.sort(key=lambda pair: -pair[0])
    return [one for _, one in found]


def _pinned(j: int, offer: _Offer, h: int, entry: Running) -> Pinned:
    mode = offer.option.mode
    placement = tuple(replace(slot, cpus=cpus(mode, slot.gpus)) for slot in entry.placement)
    return Pinned(j, Kind.BESIDE, h, mode, placement, offer.rate, offer.partner_rate)


def _may_be_split(job: Job, placement: Placement) -> bool:
    """Whether a job may take the very GPUs of `placement`, as far as the number of its nodes
    goes."""
    parts = [slot.gpus for slot in placement]
    counts = node_counts(job, sum(parts))
    return counts is None or (len(parts) in counts and len(set(parts)) == 1)


def _fitting(
    instance: Instance, job: Job, patterns: tuple[Pattern, ...], host: Job, entry: Running
) -> Option | None:
    """The fastest option of `job` that can run on the very GPUs of `host` beside it."""
    node = instance.cluster.node
    for slot in entry.placement:
        memory = node[slot.node].gpu_memory_gib
        if memory is not None and job.profile.gpu_memory_gib + host.profile.gpu_memory_gib > memory:
            return None
    best: Option | None = None
    held = gpus_by_type(instance.cluster, entry.placement)
    if len(held) > 1:
        return None  # its options are on one type
    gpu_type = next(iter(held))
    for pattern in patterns:
        mode = pattern.option.mode
        if (
            mode.gpus != entry.mode.gpus
            or mode.gpu_type != gpu_type
            or mode.clock_mhz != entry.mode.clock_mhz
        ):
            continue
        if not _may_be_split(job, entry.placement):
            continue
        fits = all(
            (
                node[slot.node].cpus is None
                or slot.cpus + cpus(mode, slot.gpus) <= (node[slot.node].cpus or 0)
            )
            and (
                node[slot.node].memory_gib is None
                or memory_gib(job, mode, slot.gpus) + memory_gib(host, entry.mode, slot.gpus)
                <= (node[slot.node].memory_gib or 0.0)
            )
            for slot in entry.placement
        )
        if fits and (best is None or pattern.option.rate > best.rate):
            best = pattern.option
    return best
