"""Options on the GPUs of a running job: beside it, or of one of two that share them, alone."""

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from ..frozen import record
from ..model import Cluster, Instance, Job, Mode, Placement, Running
from ..physics import (
    beyond_gpu_memory,
    cpus,
    gpus_by_type,
    memory_gib,
    node_counts,
    placed_rate,
    sharing_rate,
    span,
)
from ..physics.catalogue import catalogue_of
from ..physics.modes import Option, with_less_gpu_memory
from .facts import Facts
from .held import Hold, parts_of
from .model import Kind, is_second
from .patterns import Pattern, node_classes

MOST_HOSTS = 3
"""Running jobs beside which a waiting job may start: those where both together run fastest."""
MOST_PAIRS = 20_000
"""Pairs of kinds of jobs that are looked at; beyond, only the first waiting jobs have such
options."""


def holds_on_others(facts: Facts) -> list[tuple[int, Hold]]:
    """Return all such options with the positions of their jobs, in the order of these."""
    holds = [(j, hold) for j in facts.paired if (hold := _alone(facts, j))]
    if not facts.shares.any():
        return holds
    return sorted(holds + _guests(facts), key=itemgetter(0))


def _alone(facts: Facts, j: int) -> Hold | None:
    """Return the option of the second of two that share GPUs to stay without the first."""
    entry = facts.running[j]
    if entry is None or entry.mode.share_with is None or not is_second(entry):
        return None
    partner = facts.position[entry.mode.share_with]
    if facts.must[j] or facts.must[partner]:
        return None
    mode = entry.mode.unshared
    rate = placed_rate(facts.instance, facts.jobs[j], mode, entry.placement)
    parts = parts_of(facts.instance.cluster, facts.jobs[j], mode, entry.placement, False)
    return Hold(Kind.ALONE, mode, entry.placement, rate, parts, partner)


def _guests(facts: Facts) -> list[tuple[int, Hold]]:
    """Return the options of waiting jobs to start beside running ones. Hosts that are alike take
    turns, so that not all guests are sent to the same few."""
    hosts: dict[object, list[tuple[int, Running]]] = {}
    class_of = node_classes(catalogue_of(facts.instance))[1]
    for j in facts.kept.tolist():
        entry = facts.entry(j)
        if (
            entry.mode.share_with is None
            and entry.mode.gpus
            and not facts.depth[j]
            and facts.jobs[j].profile.sharing is not None
        ):
            key = _host_kind(facts.instance.cluster, class_of, facts.jobs[j], entry)
            hosts.setdefault(key, []).append((j, entry))
    alike = list(hosts.values())
    pairs_left = MOST_PAIRS if alike else 0
    known: dict[object, list[_Offer]] = {}
    turn = [0] * len(alike)
    holds: list[tuple[int, Hold]] = []
    for j, running in enumerate(facts.running):
        if running is not None or facts.jobs[j].profile.sharing is None:
            continue
        guest = _job_kind(facts.jobs[j]), facts.alternatives[j]
        if guest not in known:
            if pairs_left < max(1, len(alike)):
                continue
            pairs_left -= len(alike)
            known[guest] = _offers(facts, j, alike)
        left = MOST_HOSTS
        for offer in known[guest]:
            own = alike[offer.kind]
            take, at = min(left, len(own)), turn[offer.kind]
            chosen = [own[(at + k) % len(own)] for k in range(take)]
            holds += [(j, _beside(facts, j, offer, *host)) for host in chosen]
            turn[offer.kind] = at + take
            left -= take
            if not left:
                break
    return holds


def _job_kind(job: Job) -> tuple[object, ...]:
    """Return what is equal for jobs that no rate and no room can tell apart."""
    return job.profile, job.gpus, job.work_s if job.modes else None, job.min_nodes, job.max_nodes


def _host_kind(cluster: Cluster, class_of: list[int], job: Job, entry: Running) -> object:
    """Return what is equal for hosts that no rate and no room can tell apart."""
    mode, order = entry.mode, cluster.node_order
    held = sorted((class_of[order[slot.node]], slot.gpus, slot.cpus) for slot in entry.placement)
    return (
        _job_kind(job),
        (mode.size, mode.gpu_type, mode.duration_s),
        span(cluster, entry.placement),
        tuple(held),
    )


@record
class _Offer:
    """An option of a guest beside any host of a kind (its number), and the rates of both."""

    kind: int
    option: Option
    rate: float
    partner_rate: float


def _offers(facts: Facts, j: int, alike: Sequence[Sequence[tuple[int, Running]]]) -> list[_Offer]:
    """Return the kinds of hosts beside which a job can run, first where both together run
    fastest."""
    instance, job = facts.instance, facts.jobs[j]
    sizes = {pattern.gpus for pattern in facts.alternatives[j].patterns}
    offers: list[tuple[float, _Offer]] = []
    for kind, hosts in enumerate(alike):
        h, entry = hosts[0]
        host = facts.jobs[h]
        if entry.mode.gpus not in sizes or not (
            sharing_rate(job.profile, host.profile) and sharing_rate(host.profile, job.profile)
        ):
            continue
        facts.deadline.check()
        on = 0
        for slot in entry.placement:
            on |= 1 << facts.class_of[instance.cluster.node_order[slot.node]]
        patterns = facts.alternatives[j].patterns
        if instance.cluster.windows:  # not where one comes too soon
            patterns = tuple(pattern for pattern in patterns if not on & ~pattern.classes)
        option = _fitting(instance, job, patterns, host, entry)
        if option is None:
            continue
        own = placed_rate(instance, job, replace(option.mode, share_with=host.id), entry.placement)
        theirs = placed_rate(
            instance, host, replace(entry.mode, share_with=job.id), entry.placement
        )
        if own > 0 and theirs > 0:
            speed = own / option.rate + theirs / facts.rate[h]
            offers.append((speed, _Offer(kind, option, own, theirs)))
    offers.sort(key=lambda pair: -pair[0])
    return [offer for _, offer in offers]


def _beside(facts: Facts, j: int, offer: _Offer, h: int, entry: Running) -> Hold:
    mode, cluster = offer.option.mode, facts.instance.cluster
    placement = tuple(replace(slot, cpus=cpus(mode, slot.gpus)) for slot in entry.placement)
    parts = parts_of(cluster, facts.jobs[j], mode, placement, True)
    return Hold(Kind.BESIDE, mode, placement, offer.rate, parts, h, offer.partner_rate)


def _fitting(
    instance: Instance, job: Job, patterns: tuple[Pattern, ...], host: Job, entry: Running
) -> Option | None:
    """Return the fastest option of `job` that can run on the very GPUs of `host` beside it."""
    types = gpus_by_type(instance.cluster, entry.placement)
    if (
        len(types) > 1  # its options are on one type
        or not _may_be_split(job, entry.placement)
    ):
        return None
    fitting = [
        option
        for pattern in patterns
        if pattern.option.mode.gpus == entry.mode.gpus
        and pattern.option.mode.gpu_type in types
        and pattern.option.mode.clock_mhz == entry.mode.clock_mhz
        and _has_room(instance.cluster, job, pattern.option.mode, host, entry)
        for option in with_less_gpu_memory(job, pattern.option)
        if not beyond_gpu_memory(
            instance.cluster, job, option.mode, host, entry.mode, entry.placement
        )
    ]
    return max(fitting, key=lambda option: option.rate, default=None)


def _may_be_split(job: Job, placement: Placement) -> bool:
    """Return whether a job may take the very GPUs of `placement`, as far as the number of its nodes
    goes."""
    parts = [slot.gpus for slot in placement]
    counts = node_counts(job, sum(parts))
    return counts is None or (len(parts) in counts and len(set(parts)) == 1)


def _has_room(cluster: Cluster, job: Job, mode: Mode, host: Job, entry: Running) -> bool:
    """Return whether the nodes of the host have the cores and the memory for both."""
    for slot in entry.placement:
        node = cluster.node[slot.node]
        both_gib = memory_gib(job, mode, slot.gpus) + memory_gib(host, entry.mode, slot.gpus)
        if node.cpus is not None and slot.cpus + cpus(mode, slot.gpus) > node.cpus:
            return False
        if node.memory_gib is not None and both_gib > node.memory_gib:
            return False
    return True
