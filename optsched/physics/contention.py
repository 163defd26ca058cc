"""Channels that jobs share without reserving them, and how they slow each other down there."""

from collections.abc import Mapping
from typing import Literal

from ..model import Cluster, Instance, Job, Mode, Placement, Profile, most_gpus
from . import uplinks

Channel = tuple[Literal["uplink", "memory"], str]
"""The uplink of a rack that is shared, or the memory bandwidth of a node."""


def memory_gbps(job: Job, mode: Mode) -> float:
    """Return what a job takes of the bandwidth of its host's memory, beside each GPU or, without
    GPUs, as a whole. A CPU-only job streams the same in each of its listed modes, so that one in
    which it takes twice as long takes half."""
    gbps = job.profile.memory_gbps
    if mode.gpus or mode.duration_s is None:
        return gbps
    return gbps * job.work_s / mode.duration_s


def channel_loads(
    cluster: Cluster, job: Job, mode: Mode, placement: Placement
) -> dict[Channel, float]:
    """Return what `job` takes of each channel on `placement`, in Gbit/s; nothing where it takes
    nothing or nothing binds."""
    loads: dict[Channel, float] = {}
    if cluster.uplinks == "shared":
        loads.update(
            (("uplink", rack), gbps) for rack, gbps in uplinks(cluster, job, placement).items()
        )
    gbps = memory_gbps(job, mode)
    if gbps:
        for slot in placement:
            if cluster.node[slot.node].memory_gbps is not None:
                loads["memory", slot.node] = gbps * slot.gpus if mode.gpus else gbps
    return loads


def channel_gbps(cluster: Cluster, channel: Channel) -> float:
    """Return the capacity of a channel."""
    kind, name = channel
    capacity = (
        cluster.rack_uplink_gbps[name] if kind == "uplink" else cluster.node[name].memory_gbps
    )
    assert capacity is not None
    return capacity


def slowdown(profile: Profile, crowding: Mapping[Channel, float]) -> float:
    """Return by how much a job takes longer; `crowding` is load / capacity of the channels of which
    the job takes something.

    The share of a step bound by a channel stretches as its load exceeds its capacity; of several
    uplinks, or of several nodes' memory, the most crowded counts: 1 + network_duty (uplink - 1) +
    memory_duty (memory - 1), neither less than 1.
    """
    uplink = memory = 1.0
    for (kind, _), ratio in crowding.items():
        if kind == "uplink":
            uplink = max(uplink, ratio)
        else:
            memory = max(memory, ratio)
    return 1.0 + profile.network_duty * (uplink - 1.0) + profile.memory_duty * (memory - 1.0)


def may_contend(instance: Instance) -> bool:
    """Return whether any job could ever take something of a channel."""
    cluster = instance.cluster
    shared = cluster.uplinks == "shared" and bool(cluster.rack_uplink_gbps)
    memory = any(node.memory_gbps is not None for node in cluster.nodes)
    if not shared and not memory:
        return False
    return any(
        (shared and job.profile.network_gbps > 0) or (memory and job.profile.memory_gbps > 0)
        for job in instance.jobs
    )


def planned_uplinks_gbps(instance: Instance) -> Mapping[str, float]:
    """Return what those who plan may fill of each uplink: its capacity, or of a shared one what the
    running gangs take now if that is more. Nobody who plans makes the crowding worse."""
    cluster = instance.cluster
    if cluster.uplinks == "reserved" or not cluster.rack_uplink_gbps:
        return cluster.rack_uplink_gbps
    held: dict[str, float] = {}
    for entry in instance.running:
        if len(entry.placement) > 1:
            for rack, gbps in uplinks(cluster, instance.job[entry.job], entry.placement).items():
                held[rack] = held.get(rack, 0.0) + gbps
    return {rack: max(gbps, held.get(rack, 0.0)) for rack, gbps in cluster.rack_uplink_gbps.items()}


def crowded_memory(instance: Instance) -> str | None:
    """Return the first node whose memory bandwidth the jobs could exceed, in one clause; None where
    none could be.

    A node is taken to be filled with those that take most of it, each with as many GPUs as it ever
    asks for.
    """
    gangs: list[tuple[float, int]] = []
    alone = 0.0
    for job in instance.jobs:
        gbps = job.profile.memory_gbps
        if not gbps:
            continue
        sizes = [mode.gpus for mode in job.modes] or [most_gpus(job)]
        gangs.append((gbps, max(sizes)))
        alone += max(
            (memory_gbps(job, mode) for mode in job.modes if not mode.gpus),
            default=0.0 if min(sizes) else gbps,
        )
    gangs.sort(reverse=True)
    pairs = any(entry.mode.share_with is not None for entry in instance.running)
    for node in instance.cluster.nodes:
        if node.memory_gbps is None or not (gangs or alone):
            continue
        left, load = node.gpus * (2 if pairs else 1), alone
        for gbps, gpus in gangs:
            taken = min(left, gpus, node.gpus)
            load += gbps * taken
            left -= taken
            if load > node.memory_gbps:
                return (
                    f"jobs could take {load:.6g} Gbit/s or more of the memory of node "
                    f"{node.name}, which has "
                    f"{node.memory_gbps:.6g}"
                )
    return None
