"""Options on the GPUs of a running job: beside it, or of one of two that share them, alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..instance import Instance, Placement, Running
from ..job import Job, Mode
from ..modes import Option
from ..physics import cpus, gpus_by_type, memory_gib, placed_rate, sharing_rate
from .model import Kind, is_second
from .patterns import Pattern

MOST_HOSTS = 3
"""Running jobs beside which a waiting job may start: those where both together run fastest."""
MOST_PAIRS = 200_000
"""Pairs that are looked at; beyond, only the first waiting jobs have such options."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """An option on given nodes. `job` and `partner` are positions of active jobs.

    BESIDE: start on the GPUs of the running job `partner`, which goes on at `partner_rate`. ALONE: of two that share
    GPUs the second one stays (the first is `partner`, and leaves).
    """

    job: int
    kind: Kind
    partner: int
    mode: Mode
    placement: Placement
    rate: float
    partner_rate: float


def pinned_options(
    instance: Instance, jobs: Sequence[Job], running: Sequence[Running | None], patterns: Sequence[tuple[Pattern, ...]]
) -> list[Pinned]:
    """All such options, by job."""
    position = {job.id: j for j, job in enumerate(jobs)}
    found: list[Pinned] = []
    hosts = []
    for j, entry in enumerate(running):
        if entry is None:
            continue
        if is_second(entry):
            assert entry.mode.share_with is not None
            mode = replace(entry.mode, share_with=None)
            alone = placed_rate(instance, jobs[j], mode, entry.placement)
            found.append(Pinned(j, Kind.ALONE, position[entry.mode.share_with], mode, entry.placement, alone, 0.0))
        elif entry.mode.share_with is None and entry.mode.gpus and jobs[j].profile.sharing is not None:
            hosts.append((j, entry))
    guests = [j for j, entry in enumerate(running) if entry is None and jobs[j].profile.sharing is not None]
    if hosts:
        for j in guests[: MOST_PAIRS // len(hosts)]:
            found.extend(_beside(instance, jobs, j, patterns[j], hosts))
    return sorted(found, key=lambda one: one.job)


def _beside(
    instance: Instance, jobs: Sequence[Job], j: int, patterns: tuple[Pattern, ...], hosts: list[tuple[int, Running]]
) -> list[Pinned]:
    job = jobs[j]
    found: list[tuple[float, Pinned]] = []
    for h, entry in hosts:
        host = jobs[h]
        if not sharing_rate(job.profile, host.profile) or not sharing_rate(host.profile, job.profile):
            continue
        option = _fitting(instance, job, patterns, host, entry)
        if option is None:
            continue
        own = placed_rate(instance, job, replace(option.mode, share_with=host.id), entry.placement)
        theirs = placed_rate(instance, host, replace(entry.mode, share_with=job.id), entry.placement)
        if own > 0 and theirs > 0:
            placement = tuple(replace(slot, cpus=cpus(option.mode, slot.gpus)) for slot in entry.placement)
            alone = placed_rate(instance, host, entry.mode, entry.placement)
            found.append((own / option.rate + theirs / alone, Pinned(
                j, Kind.BESIDE, h, option.mode, placement, own, theirs
            )))
    found.sort(key=lambda pair: (-pair[0], pair[1].partner))
    return [one for _, one in found[:MOST_HOSTS]]


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
        if mode.gpus != entry.mode.gpus or mode.gpu_type != gpu_type or mode.clock_mhz != entry.mode.clock_mhz:
            continue
        fits = all(
            (node[slot.node].cpus is None or slot.cpus + cpus(mode, slot.gpus) <= (node[slot.node].cpus or 0))
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
