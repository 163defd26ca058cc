"""The speed of a job on its GPUs, and what starting and stopping it costs. Used by verifier,
simulator and every model."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Literal

from ..model import (
    POWER_CAP,
    Cluster,
    Elastic,
    Instance,
    Job,
    Mode,
    Node,
    Placement,
    Profile,
    Running,
    Slot,
)

Span = Literal["node", "rack", "cluster"]

TIME_TOLERANCE_S = 1e-5
"""Instants closer than this are the same: the rounding of Unix times held as floats."""


MEMORY_TOLERANCE = 1e-6
"""Share of a GPU's memory by which two jobs may exceed it: the rounding of numbers in files."""

OUT_OF_MEMORY_S = 1.0
"""A job that starts beside another fills its GPU memory during its set-up, and within this time at
the least."""


def interpolate(table: Mapping[int, float], count: int) -> float:
    """Return the rate at `count`: linear between the table's points, on the line to the origin
    below the first, the last rate beyond the last. An empty table is 1."""
    if not table:
        return 1.0
    if count in table:
        return table[count]
    points = sorted(table)
    i = bisect_left(points, count)
    if i == len(points):
        return table[points[-1]]
    low, low_rate = (0, 0.0) if i == 0 else (points[i - 1], table[points[i - 1]])
    high = points[i]
    return low_rate + (table[high] - low_rate) * (count - low) / (high - low)


def span(cluster: Cluster, placement: Placement) -> Span:
    """Return how far a placement is spread. Nodes without a rack share none."""
    if len(placement) <= 1:
        return "node"
    node = cluster.node
    rack = node[placement[0].node].rack
    for slot in placement:
        if rack is None or node[slot.node].rack != rack:
            return "cluster"
    return "rack"


def locality_rate(profile: Profile, spread: Span) -> float:
    """Return the rate by span; a span without a measurement has the rate of the next narrower
    one."""
    locality = profile.locality
    if locality is None:
        return 1.0
    if spread == "node":
        return locality.node
    rack = locality.node if locality.rack is None else locality.rack
    if spread == "rack":
        return rack
    return rack if locality.cluster is None else locality.cluster


def sharing_rate(profile: Profile, partner: Profile) -> float:
    """Return the rate of a job beside `partner` on the same GPUs; 0 where nothing is known of the
    pair.

    Measured where `partner`'s name is listed, else both duties time-sliced: 1 / max(1, duty +
    duty).
    """
    if profile.sharing is None:
        return 0.0
    if partner.name is not None and partner.name in profile.sharing.partners:
        return profile.sharing.partners[partner.name]
    if profile.sharing.duty is None or partner.sharing is None or partner.sharing.duty is None:
        return 0.0
    return 1.0 / max(1.0, profile.sharing.duty + partner.sharing.duty)


def gpu_type_rate(profile: Profile, gpu_type: str | None) -> float:
    """Return the rate on a GPU type; a type missing from a table that has others is unmeasured, so
    0."""
    if not profile.rate or gpu_type is None:
        return 1.0
    return profile.rate.get(gpu_type, 0.0)


def gpus_by_type(cluster: Cluster, placement: Placement) -> dict[str | None, int]:
    """Return the GPUs of each type that a placement holds, in its order; empty without GPUs."""
    held: dict[str | None, int] = {}
    for slot in placement:
        if slot.gpus:
            gpu_type = cluster.node[slot.node].gpu_type
            held[gpu_type] = held.get(gpu_type, 0) + slot.gpus
    return held


def mixed_type_rate(profile: Profile, held: Mapping[str | None, int]) -> float:
    """Return the rate by GPU type of a gang that holds GPUs of several: that of the slowest, or
    with `mixing` "sum" the mean over its GPUs; 0 where it is not known of one of them."""
    rates = [gpu_type_rate(profile, gpu_type) for gpu_type in held]
    if profile.mixing == "bottleneck" or min(rates) <= 0:
        return min(rates)
    return sum(gpus * own for gpus, own in zip(held.values(), rates, strict=True)) / sum(
        held.values()
    )


def count_rate(job: Job, gpus: int) -> float:
    """Return the rate by GPU count; an elastic job without a table scales in proportion, at `max`
    it has rate 1."""
    if not job.profile.gpus and isinstance(job.gpus, Elastic):
        return gpus / job.gpus.max
    return interpolate(job.profile.gpus, gpus)


def gang_sizes(job: Job) -> tuple[int, ...]:
    """Return the GPU counts at which a job may be started: one, or of an elastic job the measured
    ones, powers of two, ends.

    A job found running with another count may continue with it.
    """
    if not isinstance(job.gpus, Elastic):
        return (job.gpus,)
    low, high = job.gpus.min, job.gpus.max
    powers = (1 << k for k in range(high.bit_length()))
    return tuple(
        sorted({low, high, *(n for n in (*job.profile.gpus, *powers) if low <= n <= high)})
    )


def is_elastic(job: Job) -> bool:
    """Return whether a job may choose how many GPUs it starts on."""
    return not job.modes and len(gang_sizes(job)) > 1


def node_counts(job: Job, gpus: int) -> tuple[int, ...] | None:
    """Return over how many nodes a gang of `gpus` may be split, equally; None where it may be split
    in any way."""
    if job.max_nodes is None or gpus == 0:
        return None
    return tuple(n for n in range(job.min_nodes, min(job.max_nodes, gpus) + 1) if gpus % n == 0)


def core_levels(job: Job) -> tuple[int, ...]:
    """Return the cores per GPU with which a job may be started: the measured ones; none where none
    were measured.

    A job found running with another count may continue with it, at the interpolated rate.
    """
    return tuple(sorted(job.profile.cpus_per_gpu)) or (0,)


def clocks(job: Job) -> tuple[int | None, ...]:
    """Return the GPU clocks in MHz at which a job may run: the default one (None), and those
    measured."""
    return (None, *sorted(job.profile.clocks))


def clock_rate(profile: Profile, clock_mhz: int | None) -> float:
    """Return the rate by GPU clock: 1 at the default one; nothing is known of one that was not
    measured, so 0."""
    if clock_mhz is None:
        return 1.0
    clock = profile.clocks.get(clock_mhz)
    return 0.0 if clock is None else clock.rate


def memory_levels(job: Job) -> tuple[float | None, ...]:
    """Return the host memory for each GPU with which a job may be started: all it asks for (None),
    and the smaller amounts that were measured, the largest first."""
    return (None, *sorted(job.profile.memory_rates, reverse=True))


def gpu_memory_levels(job: Job) -> tuple[float | None, ...]:
    """Return the memory of each GPU with which a job may be started: all it asks for (None), and
    the smaller amounts that were measured, the largest first."""
    return (None, *sorted(job.profile.gpu_memory_rates, reverse=True))


def host_rate(profile: Profile, cpus_per_gpu: int, memory_gib_per_gpu: float | None) -> float:
    """Return the rate by cores and host memory for each GPU: that of the one which is short, as
    data is fetched while earlier data is prepared. Nothing is known of an amount of memory that was
    not measured, so 0."""
    by_cores = interpolate(profile.cpus_per_gpu, cpus_per_gpu)
    if memory_gib_per_gpu is None:
        return by_cores
    return min(by_cores, profile.memory_rates.get(memory_gib_per_gpu, 0.0))


def gpu_memory_rate(profile: Profile, gpu_memory_gib: float | None) -> float:
    """Return the rate by GPU memory: 1 with all that the job asks for, less with the smaller
    micro-batches that need less; 0 with an amount that was not measured."""
    if gpu_memory_gib is None:
        return 1.0
    return profile.gpu_memory_rates.get(gpu_memory_gib, 0.0)


def rate(job: Job, mode: Mode, gpu_type: str | None, spread: Span) -> float:
    """Return the reference work per second of `job` in `mode` on GPUs of `gpu_type`, spread so far.

    The product of the profile's tables (DESIGN 5). A listed mode has its own duration; only the
    spread slows it.
    """
    return _rate(job, mode, gpu_type_rate(job.profile, gpu_type), spread)


def overlap_rate(profile: Profile, gpus: int, shared: Iterable[tuple[Profile, int]]) -> float:
    """Return the rate of a gang of `gpus` that shares so many of them with each partner, relative
    to that alone: as slow as on the slowest of its GPUs."""
    rates, alone = [], gpus
    for partner, count in shared:
        rates.append(sharing_rate(profile, partner))
        alone -= count
    return min([*rates, 1.0] if alone or not rates else rates)


def _rate(job: Job, mode: Mode, type_rate: float, spread: Span) -> float:
    if mode.duration_s is not None:
        own = job.work_s / mode.duration_s
    elif mode.gpus == 0:
        return 1.0
    else:
        own = type_rate * count_rate(job, mode.gpus)
        if job.profile.cpus_per_gpu or mode.memory_gib_per_gpu is not None:
            own *= host_rate(job.profile, mode.cpus_per_gpu, mode.memory_gib_per_gpu)
        if mode.clock_mhz is not None:
            own *= clock_rate(job.profile, mode.clock_mhz)
        if mode.gpu_memory_gib is not None:
            own *= gpu_memory_rate(job.profile, mode.gpu_memory_gib)
    return own * locality_rate(job.profile, spread)


def placed_rate(instance: Instance, job: Job, mode: Mode, placement: Placement) -> float:
    """Return `rate` of a placement: its GPU types and spread are read off its nodes."""
    gpu_type = instance.cluster.node[placement[0].node].gpu_type if placement else None
    share = 1.0
    if mode.share_with is not None:
        share = sharing_rate(job.profile, instance.job[mode.share_with].profile)
    elif mode.shared_gpus:
        partners = ((instance.job[name].profile, n) for name, n in mode.shared_gpus.items())
        share = overlap_rate(job.profile, mode.gpus, partners)
    type_rate = gpu_type_rate(job.profile, gpu_type)
    if len(placement) > 1 and len(instance.cluster.gpu_types) > 1:
        held = gpus_by_type(instance.cluster, placement)
        if len(held) > 1:
            type_rate = mixed_type_rate(job.profile, held)
    return _rate(job, mode, type_rate, span(instance.cluster, placement)) * share


def run_s(job: Job, mode: Mode, work_s: float, rate_: float) -> float:
    """Return the seconds that `work_s` of reference work takes at `rate_`, without rounding where a
    listed mode runs whole."""
    if (
        mode.duration_s is not None
        and work_s == job.work_s
        and rate_ == job.work_s / mode.duration_s
    ):
        return mode.duration_s
    return work_s / rate_


def setup_s(job: Job, ran_before: bool) -> float:
    """Return the seconds a start takes before work goes on: start-up, plus restore for a job that
    ran before."""
    return job.profile.startup_s + (job.profile.restore_s if ran_before else 0.0)


def beyond_gpu_memory(
    cluster: Cluster, job: Job, mode: Mode, partner: Job, beside: Mode, placement: Placement
) -> str | None:
    """Return the first node of a placement whose GPUs do not have the memory that two jobs need
    together, each in its mode, or None."""
    both_gib = gpu_memory_gib(job, mode) + gpu_memory_gib(partner, beside)
    for slot in placement:
        gib = cluster.node[slot.node].gpu_memory_gib
        if slot.gpus and gib is not None and both_gib > gib * (1 + MEMORY_TOLERANCE):
            return slot.node
    return None


def runs_out_of_memory_s(job: Job, ran_before: bool) -> float:
    """Return the seconds after which a job that was started beside another without the memory for
    both is stopped: its set-up, or OUT_OF_MEMORY_S."""
    return max(setup_s(job, ran_before), OUT_OF_MEMORY_S)


def hold_to_save_s(job: Job) -> float:
    """Return the seconds for which a preempted job keeps its GPUs: `checkpoint_s`, nothing with
    periodic checkpoints."""
    return job.profile.checkpoint_s if job.profile.checkpoint_every_s is None else 0.0


def swap_s(job: Job) -> float:
    """Return the seconds for which GPUs do not work when a job is preempted and comes back: saving,
    restoring, and fetching its model again."""
    return hold_to_save_s(job) + job.profile.restore_s + job.profile.fetch_s


def lost_s(job: Job, productive_s: float) -> float:
    """Return the productive seconds lost by a preemption after `productive_s` of them since the
    last checkpoint or start."""
    every_s = job.profile.checkpoint_every_s
    if not every_s:
        return 0.0
    saved = int((productive_s + TIME_TOLERANCE_S) / every_s) * every_s
    return max(0.0, productive_s - saved)


def unsaved_s(entry: Running, now_s: float) -> float:
    """Return the seconds that a running job has worked since its last checkpoint (or its start);
    none while it sets up."""
    if entry.setup_s > 0:
        return 0.0
    since_s = entry.started_s if entry.last_checkpoint_s is None else entry.last_checkpoint_s
    return max(0.0, now_s - max(since_s, entry.started_s))


def remaining_after_preemption_s(instance: Instance, entry: Running) -> float:
    """Return the reference work to do of a running job that is preempted at `now_s`: what was not
    saved is lost."""
    job = instance.job[entry.job]
    lost = lost_s(job, unsaved_s(entry, instance.now_s))
    if lost == 0.0:
        return entry.remaining_s
    work_lost = lost * placed_rate(instance, job, entry.mode, entry.placement)
    return min(job.work_s, entry.remaining_s + work_lost)


def may_ever_preempt(job: Job, entry: Running) -> bool:
    """Return whether a running job may be preempted once more, now or later."""
    is_worn = job.max_preemptions is not None and entry.preemptions >= job.max_preemptions
    return job.preemptible and not is_worn


def may_always_preempt(job: Job) -> bool:
    """Return whether the job's own rules allow its preemption whenever it runs."""
    return job.preemptible and job.max_preemptions is None and job.min_run_s <= 0


def may_preempt(instance: Instance, entry: Running) -> bool:
    """Return whether the job's own rules allow its preemption at `now_s`."""
    job = instance.job[entry.job]
    has_run_s = instance.now_s - entry.started_s
    return may_ever_preempt(job, entry) and has_run_s >= job.min_run_s - TIME_TOLERANCE_S


def fits_type(job: Job, mode: Mode, node: Node) -> bool:
    """Return whether GPUs of `node` can serve `mode` at all: type and GPU memory (cores are counted
    elsewhere)."""
    if mode.gpus == 0:
        return True
    if node.gpus == 0 or (mode.gpu_type is not None and node.gpu_type != mode.gpu_type):
        return False
    return node.gpu_memory_gib is None or gpu_memory_gib(job, mode) <= node.gpu_memory_gib


def gpu_memory_gib(job: Job, mode: Mode) -> float:
    """Return the memory that `job` needs of each of its GPUs."""
    own = mode.gpu_memory_gib
    return job.profile.gpu_memory_gib if own is None else own


def memory_gib_per_gpu(job: Job, mode: Mode) -> float:
    """Return the host memory that `job` takes beside each of its GPUs."""
    own = mode.memory_gib_per_gpu
    return job.profile.memory_gib_per_gpu if own is None else own


def memory_gib(job: Job, mode: Mode, gpus: int) -> float:
    """Return the host memory that `job` takes on a node where it holds `gpus` GPUs."""
    return job.memory_gib if mode.gpus == 0 else memory_gib_per_gpu(job, mode) * gpus


def cpus(mode: Mode, gpus: int) -> int:
    """Return the cores that `mode` takes on a node where it holds `gpus` GPUs."""
    return mode.cpus if mode.gpus == 0 else mode.cpus_per_gpu * gpus


def with_cores(placement: Placement, mode: Mode) -> Placement:
    """Return a placement with the cores that `mode` takes there."""
    return tuple(
        Slot(node=slot.node, gpus=slot.gpus, cpus=cpus(mode, slot.gpus)) for slot in placement
    )


def is_one_stay(job: Job, a: Mode, on_a: Placement, b: Mode, on_b: Placement) -> bool:
    """Return whether a job that holds one and at once the other has not been started anew: they
    have one size and place, but for cores that it changes in place."""
    if job.cores_in_place:
        a, b = a.without_cores, b.without_cores
        on_a, on_b = with_cores(on_a, a), with_cores(on_b, b)
    return a.size == b.size and {*on_a} == {*on_b}


def power_w(job: Job, mode: Mode, gpu_type: str | None, gpus: int) -> float:
    """Return the electric power of `gpus` GPUs of a type under this job at the clock of `mode`; 0
    where it was not measured."""
    watts = 0.0 if gpu_type is None else job.profile.power_w.get(gpu_type, 0.0) * gpus
    clock = None if mode.clock_mhz is None else job.profile.clocks.get(mode.clock_mhz)
    return watts if clock is None else watts * clock.power


def held_resources(
    cluster: Cluster, job: Job, mode: Mode, gpu_type: str | None
) -> Mapping[str, float]:
    """Return what `job` holds of the cluster's resources in a mode it does not list: what it asks
    for, and under a power cap what its GPUs draw."""
    return _with_draw(cluster, job, mode, {gpu_type: mode.gpus})


def placed_resources(
    cluster: Cluster, job: Job, mode: Mode, placement: Placement
) -> Mapping[str, float]:
    """Return `held_resources` of a placement: what its GPUs draw depends on the type of each."""
    held = gpus_by_type(cluster, placement)
    if len(held) <= 1:
        held = {next(iter(held), None): mode.gpus}
    return _with_draw(cluster, job, mode, held)


def _with_draw(
    cluster: Cluster, job: Job, mode: Mode, held: Mapping[str | None, int]
) -> Mapping[str, float]:
    if POWER_CAP not in cluster.resources:
        return job.resources
    watts = sum(power_w(job, mode, gpu_type, gpus) for gpu_type, gpus in held.items())
    if not watts:
        return job.resources
    return {**job.resources, POWER_CAP: job.resources.get(POWER_CAP, 0.0) + watts}


def crossed_uplinks(cluster: Cluster, placement: Placement) -> tuple[str, ...]:
    """Return the racks whose uplink a placement uses: those it touches, if it spans more than one,
    that have a limit."""
    if not cluster.rack_uplink_gbps or span(cluster, placement) != "cluster":
        return ()
    racks = dict.fromkeys(cluster.node[slot.node].rack for slot in placement)
    return tuple(rack for rack in racks if rack is not None and rack in cluster.rack_uplink_gbps)


def uplinks(cluster: Cluster, job: Job, placement: Placement) -> dict[str, float]:
    """Return what `job` takes of rack uplinks on `placement`, in Gbit/s by rack."""
    gbps = job.profile.network_gbps
    return dict.fromkeys(crossed_uplinks(cluster, placement), gbps) if gbps else {}
