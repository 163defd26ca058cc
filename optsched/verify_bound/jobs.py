"""The least that each job must do in any plan: read off the instance by arithmetic of its own.

A job may be started in any size and with any cores per GPU that its files list, on GPUs of one type
or, where it may mix them, of several; whatever the gang, while it works

- its GPUs of type t are part of a gang that holds a GPU of that type, which is one of the
  alternatives of type t, or of a size between two of them: then it works, and holds, as a mix of
  these does;
- a gang on several types that is as fast as its slowest one does no more than that of the type
  among them whose GPUs are cheapest, for no less; one as fast as all its GPUs together does in a
  second what those of its types do in their shares of that second;
- two jobs that share GPUs hold them once: each is charged half, and works no faster than beside the
  best partner; quotas count them twice.

What contention, preemptions, fetched models and lost nodes cost comes on top and is left out; what
failing attempts do in vain counts in schedules in which they fail.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from itertools import product
from math import inf

import numpy as np

from ..model import POWER_CAP, Elastic, Instance, Job, Locality, Mode, Profile, Running
from .quotas import counts_against, limits
from .site import FORGIVEN, Counts, Site, Spot, Takes

NO_GPU = -1


@dataclass(frozen=True, slots=True, order=True)
class Alternative:
    """One way to work: `gpus` of type `gpu_type` (by its position) are charged for each second, and
    `held` of quotas, at so many seconds of reference work a second."""

    gpu_type: int
    gpus: float
    rate: float
    held: float


@dataclass(frozen=True, slots=True)
class Task:
    """The rest of a job: `work` to do from `head_s` after now on, in its `alternatives`; `alone_s`
    is the least time from its first second to its last. What it holds counts in `quotas`."""

    weight: float
    head_s: float
    work: float
    alternatives: tuple[Alternative, ...]
    alone_s: float
    quotas: tuple[str | None, ...] = ()


class FitsNowhereError(ValueError):
    """A job has no way to run, so that there is no plan to bound."""


def tasks(instance: Instance, site: Site, replay: bool = False) -> list[Task]:
    """Return the tasks of all jobs, in order; with `replay` the attempts of the instance fail.
    Raises FitsNowhereError."""
    in_vain_s: dict[str, float] = defaultdict(float)
    for failure in instance.failures if replay else ():
        in_vain_s[failure.job] += failure.work_s - failure.kept_s
    most, against = limits(instance), counts_against(instance)
    alone = {
        job.id: _alone(
            instance,
            site,
            job,
            in_vain_s[job.id],
            {name: most[name] for name in against[job.tenant]},
        )
        for job in instance.jobs
    }
    before = {job.id: job.after for job in instance.jobs}
    ready_s: dict[str, float] = {}
    for name in TopologicalSorter(before).static_order():
        own_s = max(0.0, instance.job[name].submit_s - instance.now_s)
        ready_s[name] = max(
            [own_s, *(ready_s[other] + alone[other].alone_s for other in before[name])]
        )
    return [replace(task, head_s=ready_s[name] + task.head_s) for name, task in alone.items()]


def _alone(
    instance: Instance, site: Site, job: Job, in_vain_s: float, quotas: Mapping[str | None, int]
) -> Task:
    """Return the task of a job that is ready now and counts against these quotas. With one
    alternative alone, of the smallest size, the set-up is work like any other, as no fewer GPUs are
    held for it; else it only delays the first work, as nobody knows where it is paid."""
    entry, waits = instance.running_job.get(job.id), instance.suspended_job.get(job.id)
    setup_s = job.profile.startup_s + (job.profile.restore_s if entry or waits else 0.0)
    quota = min(quotas.values(), default=None)
    gangs = list(_gangs(site, job, quota)) if entry is None or may_leave(job, entry) else []
    stays = stay(site, job, entry) if entry else []
    if not gangs and not stays:
        raise FitsNowhereError(f"job {job.id} fits nowhere on the cluster")
    work = instance.remaining_s(job) + in_vain_s
    beside = _beside_best(job.profile)
    faster = max(1.0, beside)
    fastest = faster * max((gang.rate for gang in gangs), default=0.0)
    if entry is None:
        lengths_s = [setup_s + work / fastest]
    else:
        here = faster * stays[0].rate
        lengths_s = [entry.setup_s + work / here]
        if fastest:  # it saves before it leaves
            saves_s = job.profile.checkpoint_s if job.profile.checkpoint_every_s is None else 0.0
            lengths_s.append(saves_s + setup_s + work / max(fastest, here))
    delay_s, rest = min(([setup_s] if gangs else []) + ([entry.setup_s] if entry else [])), 0.0
    starts = tuple(_useful(_shared(gangs, beside) if beside else gangs))
    goes_on = tuple(_shared(stays, beside) if beside else stays)
    alternatives = tuple(sorted({*starts, *goes_on}))
    fewest = min(own.gpus for own in (*gangs, *stays))
    if len(alternatives) == 1 and not beside and alternatives[0].gpus == fewest:
        rest, delay_s = delay_s * alternatives[0].rate, 0.0
    return Task(job.weight, delay_s, work + rest, alternatives, min(lengths_s), tuple(quotas))


def _shared(gangs: Iterable[Alternative], beside: float) -> Iterator[Alternative]:
    """Yield each gang by itself, and beside another at the best rate that it could have there."""
    for own in gangs:
        yield own
        yield Alternative(own.gpu_type, own.gpus / 2, own.rate * beside, own.gpus)


def _useful(gangs: Iterable[Alternative]) -> Iterator[Alternative]:
    """Yield the gangs of each type, and of each ratio of what quotas count, that no mix of others
    and of doing nothing equals: those on the upper hull of rate over GPUs."""
    alike: dict[tuple[int, bool], list[Alternative]] = defaultdict(list)
    for own in gangs:
        alike[own.gpu_type, own.held > own.gpus].append(own)
    for group in alike.values():
        hull: list[Alternative] = []
        for own in sorted(group, key=lambda own: (own.gpus, own.rate)):
            if hull and own.rate <= hull[-1].rate:
                continue
            while hull and _is_under(hull, own):
                hull.pop()
            hull.append(own)
        yield from hull


def _is_under(hull: list[Alternative], own: Alternative) -> bool:
    """Return whether the last of a hull lies under the line from the one before it, or from
    nothing, to another."""
    gpus, rate = (hull[-2].gpus, hull[-2].rate) if len(hull) > 1 else (0.0, 0.0)
    last = hull[-1]
    return (last.rate - rate) * (own.gpus - gpus) <= (own.rate - rate) * (last.gpus - gpus)


def may_leave(job: Job, entry: Running) -> bool:
    return job.preemptible and (
        job.max_preemptions is None or entry.preemptions < job.max_preemptions
    )


def _gangs(site: Site, job: Job, quota: int | None) -> Iterator[Alternative]:
    """Yield every gang in which a job may be started, by each GPU type that it may hold a GPU of,
    with all its GPUs."""
    for mode, paces, speed in _started(site, job):
        if mode.gpus == 0:
            if site.has(mode.resources) and site.has_host(
                mode.cpus, job.memory_gib, {}, forgiven=FORGIVEN
            ):
                yield Alternative(NO_GPU, 0.0, speed, 0.0)
            continue
        if quota is not None and mode.gpus > quota:
            continue
        room, racks = site.room(_of_each(job.profile, mode))
        for t, own in paces.items():
            if not site.has(held_by(site, job, mode, t, paces)):
                continue
            reached = [
                (own if room.on_node[t] >= mode.gpus else 0.0)
                * _spread(job.profile.locality, "node")
            ]
            if mode.gpus > 1:
                for spread, where in (("rack", racks), ("cluster", {room.anywhere})):
                    pace = max(
                        (_pace(job.profile, counts, paces, t, mode.gpus) for counts in where),
                        default=0.0,
                    )
                    reached.append(pace * _spread(job.profile.locality, spread))
            rate = speed * max(reached)
            if rate > 0:
                yield Alternative(t, float(mode.gpus), rate, float(mode.gpus))


def _pace(profile: Profile, room: Counts, paces: dict[int, float], t: int, gpus: int) -> float:
    """Return the best pace of a gang of so many GPUs, one of type `t` at least, where there is this
    room; 0 if it does not fit. As fast as its slowest type it may only be on types that are no
    slower than that pace."""
    if not room[t]:
        return 0.0
    allowed = (
        [paces[t]]
        if profile.mixing == "sum"
        else sorted({p for p in paces.values() if p <= paces[t]})
    )
    for pace in reversed(allowed):
        on = [s for s, own in paces.items() if profile.mixing == "sum" or own >= pace]
        if sum(room[s] for s in on) >= gpus:
            return pace
    return 0.0


def _started(site: Site, job: Job) -> Iterator[tuple[Mode, dict[int, float], float]]:
    """Yield the modes in which a job may be started, the pace of each GPU type that can serve it,
    and the rate but for that and for how far it is spread."""
    profile = job.profile
    if job.modes:
        for mode in job.modes:
            assert mode.duration_s is not None
            both = {**job.resources, **mode.resources}
            held = {
                name: job.resources.get(name, 0.0) + mode.resources.get(name, 0.0) for name in both
            }
            types = [t for t, own in enumerate(site.types) if mode.gpu_type in (None, own)]
            speed = (
                job.work_s
                / mode.duration_s
                * (_spread(profile.locality, "node") if not mode.gpus else 1.0)
            )
            yield (
                Mode(
                    gpus=mode.gpus, cpus_per_gpu=mode.cpus_per_gpu, cpus=mode.cpus, resources=held
                ),
                dict.fromkeys(types, 1.0),
                speed,
            )
        return
    if job.gpus == 0:
        yield Mode(cpus=job.cpus, resources=job.resources), {}, 1.0
        return
    paces = {t: pace for t, own in enumerate(site.types) if (pace := _type_pace(profile, own)) > 0}
    for gpus, cores, clock_mhz, gib, gpu_gib in product(
        _sizes(job),
        sorted(profile.cpus_per_gpu) or [0],
        (None, *profile.clocks),
        (None, *profile.memory_rates),
        (None, *profile.gpu_memory_rates),
    ):
        mode = Mode(
            gpus=gpus,
            cpus_per_gpu=cores,
            clock_mhz=clock_mhz,
            memory_gib_per_gpu=gib,
            gpu_memory_gib=gpu_gib,
            resources=job.resources,
        )
        yield mode, paces, _count_rate(job, gpus) * _by_choice(profile, mode)


def _of_each(profile: Profile, mode: Mode) -> Takes:
    """Return what a job takes of each GPU, and of the host beside it."""
    gpu_gib, gib = mode.gpu_memory_gib, mode.memory_gib_per_gpu
    return (
        profile.gpu_memory_gib if gpu_gib is None else gpu_gib,
        profile.memory_gib_per_gpu if gib is None else gib,
        mode.cpus_per_gpu,
    )


def _by_choice(profile: Profile, mode: Mode) -> float:
    """Return the rate by what is chosen for each GPU: cores or host memory, whichever is short, the
    clock, and memory of the GPU."""
    speed = _between(profile.cpus_per_gpu, mode.cpus_per_gpu)
    if mode.memory_gib_per_gpu is not None:
        speed = min(speed, profile.memory_rates[mode.memory_gib_per_gpu])
    if mode.clock_mhz is not None:
        speed *= profile.clocks[mode.clock_mhz].rate
    if mode.gpu_memory_gib is not None:
        speed *= profile.gpu_memory_rates[mode.gpu_memory_gib]
    return speed


def _sizes(job: Job) -> list[int]:
    """Return a fixed gang's one; of an elastic one the measured counts, powers of two and the
    ends."""
    if not isinstance(job.gpus, Elastic):
        return [job.gpus]
    low, high = job.gpus.min, job.gpus.max
    powers = [2**k for k in range(high.bit_length())]
    return sorted(n for n in {low, high, *powers, *job.profile.gpus} if low <= n <= high)


def held_by(
    site: Site, job: Job, mode: Mode, t: int, paces: dict[int, float]
) -> Mapping[str, float]:
    """Return the least that a gang with a GPU of type `t` holds of the cluster's resources."""
    if job.modes or POWER_CAP not in site.resources:
        return mode.resources
    watts = {
        s: 0.0 if (name := site.types[s]) is None else job.profile.power_w.get(name, 0.0)
        for s in paces
    }
    draws_w = watts[t] + (mode.gpus - 1) * min(watts.values())
    if mode.clock_mhz is not None:
        draws_w *= job.profile.clocks[mode.clock_mhz].power
    return (
        {**mode.resources, POWER_CAP: mode.resources.get(POWER_CAP, 0.0) + draws_w}
        if draws_w
        else mode.resources
    )


def stay(site: Site, job: Job, entry: Running) -> list[Alternative]:
    """Return how a job goes on where it runs, by each GPU type that it holds, with all its GPUs; it
    may lose its partner. One that changes cores in place is as fast as with the best of them."""
    mode, profile = entry.mode, job.profile
    held: dict[int, int] = {}
    for slot in entry.placement:
        if slot.gpus:
            t = site.index[site.node[slot.node].gpu_type]
            held[t] = held.get(t, 0) + slot.gpus
    racks = {site.node[slot.node].rack for slot in entry.placement}
    spread = (
        "node"
        if len(entry.placement) <= 1
        else "cluster"
        if len(racks) > 1 or None in racks
        else "rack"
    )
    if mode.duration_s is not None:
        lengths_s = [mode.duration_s]
        if job.cores_in_place:
            lengths_s += [own.duration_s or inf for own in job.modes if own.gpus == mode.gpus]
        rate = job.work_s / min(lengths_s) * _spread(profile.locality, spread)
    elif not mode.gpus:
        rate = 1.0
    else:
        paces = {t: _type_pace(profile, site.types[t]) for t in held}
        total = sum(held.values())
        mean = sum(gpus * paces[t] for t, gpus in held.items()) / total
        pace = mean if profile.mixing == "sum" and min(paces.values()) > 0 else min(paces.values())
        counts = {mode.cpus_per_gpu, *(profile.cpus_per_gpu if job.cores_in_place else ())}
        speed = _count_rate(job, mode.gpus) * max(
            _by_choice(profile, replace(mode, cpus_per_gpu=cores)) for cores in counts
        )
        rate = pace * speed * _spread(profile.locality, spread)
    gpus = float(mode.gpus)
    return [Alternative(t, gpus, rate, gpus) for t in held] or [Alternative(NO_GPU, 0.0, rate, 0.0)]


def isolated_s(instance: Instance, site: Site, job: Job) -> float:
    """Return the run time of a whole job that has 1/n of the GPUs, n the jobs of the instance: the
    unit of fairness."""
    share = sum(site.gpus) / max(1, len(instance.jobs))
    times_s = [
        job.work_s / rate * (max(1.0, mode.gpus / share) if mode.gpus else 1.0)
        for mode, _, rate in ways_to_start(site, job)
    ]
    if not times_s:
        if job.id in instance.running_job:
            return job.work_s
        raise FitsNowhereError(f"job {job.id} fits nowhere on the cluster")
    return min(times_s)


def ways_to_start(
    site: Site, job: Job, *, forgiven: float = 0.0
) -> Iterator[tuple[Mode, int, float]]:
    """Yield each mode in which a job may start on an empty cluster, on GPUs of one type, with that
    type and its rate there; up to the excess that is `forgiven`."""
    profile = job.profile
    for mode, paces, speed in _started(site, job):
        if mode.gpus == 0:
            if site.has_host(mode.cpus, job.memory_gib, job.node_labels, forgiven=forgiven):
                yield mode, NO_GPU, speed
            continue
        spots = site.spots(_of_each(profile, mode), job.node_labels, forgiven=forgiven)
        for t, pace in paces.items():
            there = [spot for spot in spots if spot.gpu_type == t]
            for spread in _spans(site, job, mode.gpus, there, forgiven):
                rate = speed * pace * _spread(profile.locality, spread)
                if rate > 0:
                    yield mode, t, rate


def _spans(site: Site, job: Job, gpus: int, spots: list[Spot], forgiven: float) -> Iterator[str]:
    """Yield how far a gang of so many GPUs may be spread on these nodes: each that holds it, split
    equally where the job says over how many nodes."""
    if job.max_nodes is None:
        counts = None if gpus > 1 else [1]
    else:
        counts = [n for n in range(job.min_nodes, min(job.max_nodes, gpus) + 1) if gpus % n == 0]
    if (counts is None or 1 in counts) and any(spot.most >= gpus for spot in spots):
        yield "node"
    in_rack: dict[str | None, list[Spot]] = defaultdict(list)
    for spot in spots:
        in_rack[spot.rack].append(spot)
    if any(_holds(own, gpus, counts) for rack, own in in_rack.items() if rack is not None):
        yield "rack"
    needs_gbps = job.profile.network_gbps
    slow = {
        rack
        for rack, gbps in site.uplink_gbps.items()
        if gbps + forgiven * max(1.0, gbps) < needs_gbps
    }
    if _holds([spot for spot in spots if spot.rack not in slow], gpus, counts):
        yield "cluster"


def _holds(spots: list[Spot], gpus: int, counts: list[int] | None) -> bool:
    """Return whether nodes hold a gang together, in equal parts on one of these numbers of them."""
    if counts is None:
        return sum(spot.most * spot.count for spot in spots) >= gpus
    return any(
        sum(spot.count for spot in spots if spot.most * count >= gpus) >= count for count in counts
    )


def _between(table: Mapping[int, float], count: int) -> float:
    """Return a rate table at a count: on straight lines from the origin through its points, level
    after the last."""
    if not table:
        return 1.0
    points = sorted(table)
    return float(np.interp(count, [0, *points], [0.0, *(table[point] for point in points)]))


def _count_rate(job: Job, gpus: int) -> float:
    if isinstance(job.gpus, Elastic) and not job.profile.gpus:
        return gpus / job.gpus.max
    return _between(job.profile.gpus, gpus)


def _type_pace(profile: Profile, gpu_type: str | None) -> float:
    return 1.0 if gpu_type is None or not profile.rate else profile.rate.get(gpu_type, 0.0)


def _beside_best(profile: Profile) -> float:
    """Return the best rate, relative to that alone, beside a partner on the same GPUs; 0 where a
    job never has one."""
    if profile.sharing is None:
        return 0.0
    by_duty = 0.0 if profile.sharing.duty is None else 1.0
    return max(by_duty, *profile.sharing.partners.values(), 0.0)


def _spread(locality: Locality | None, spread: str) -> float:
    """Return the rate on one node, in one rack, anywhere: as on the narrower one where it is not
    given."""
    if locality is None:
        return 1.0
    rate = locality.node
    if spread != "node" and locality.rack is not None:
        rate = locality.rack
    return rate if spread != "cluster" or locality.cluster is None else locality.cluster
