"""The fewest seconds, GPU-seconds and core-seconds of each mode of a job, over all that the
verifier accepts.

`modes.options` lists the modes that planners choose from. The verifier also accepts gangs on GPUs
of several types, which have no mode of their own: with `mixes` that of a type stands for every gang
that has a GPU of it, so it is there where such a gang fits although the type alone has too few
GPUs. One of these modes is always as good as the gang. Be it of n GPUs, n_t of each type t, and let
a GPU of type t count d_t, any weight: its price, its power, its speed. The mode of t with n GPUs
has the rate R_t; the gang

- as fast as its slowest type does work W in W / min R_t, no sooner than any of its types, and
  counts sum n_t d_t, no less than n of the type among them whose d_t is least (nor is it faster
  than the slowest of the fastest types that together have n GPUs, which bounds the rate of a mode
  whose type alone has too few);
- with `mixing` "sum" has the rate sum n_t R_t / n, at most the largest, and counts W (sum n_t d_t)
  / (sum n_t R_t / n), at least the least of W n d_t / R_t. That says nothing of its set-up together
  with its work, so the least of each is counted for itself (`ModeTable.least`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import inf

from ..frozen import frozen, record
from ..model import POWER_CAP, Job, Mode
from ..objectives import Numbers
from ..physics import (
    Span,
    clock_rate,
    clocks,
    core_levels,
    count_rate,
    gang_sizes,
    gpu_memory_levels,
    gpu_memory_rate,
    gpu_type_rate,
    host_rate,
    locality_rate,
    memory_levels,
    power_w,
)
from ..physics.modes import with_shared
from .empty_cluster import EmptyCluster, Types, forgiven

NO_GPU = -1
SPANS: tuple[Span, ...] = ("node", "rack", "cluster")


@record
class Density:
    """The amount of something that is held: the least while a job starts; while it works, so much
    that this times its shortest run time is the least integral over time; and the most it could
    be."""

    starting: Numbers
    working: Numbers
    most: Numbers

    @staticmethod
    def steady(amount: Numbers) -> "Density":
        """Return the density of what is held as long as the job runs."""
        return Density(amount, amount, amount)

    def times(self, factor: Numbers) -> "Density":
        """Return the density of what so much of it stands for."""
        return Density(factor * self.starting, factor * self.working, factor * self.most)


@frozen
class RelaxedMode:
    """A mode on GPUs of one type (`NO_GPU` for none) at one clock, at the highest rate.

    `whole_s` is a listed duration. `resources` are the least held; where there is a power cap, each
    GPU beyond those held at the start holds `capped_w` more of it, and a gang that also is on GPUs
    that draw less may hold up to `mixed_saves_w` less.
    """

    gpu_type: int
    rate: float
    gpus: Density
    cores: Density
    power_w: float
    whole_s: float | None = None
    resources: Mapping[str, float]
    capped_w: float = 0.0
    mixed_saves_w: float = 0.0


def fixed_mode(
    job: Job, mode: Mode, gpu_type: int, rate: float, cores: float, power_w: float = 0.0
) -> RelaxedMode:
    """Return a mode that holds as much all the while."""
    duration_s = mode.duration_s
    is_whole = duration_s is not None and rate == job.work_s / duration_s
    return RelaxedMode(
        gpu_type=gpu_type,
        rate=rate,
        gpus=Density.steady(mode.gpus),
        cores=Density.steady(cores),
        power_w=power_w,
        whole_s=duration_s if is_whole else None,
        resources=mode.resources,
    )


def rate_beside(job: Job) -> float:
    """Return the highest rate that a job could have on GPUs that it shares, relative to that alone;
    0 where it shares none."""
    sharing = job.profile.sharing
    if sharing is None:
        return 0.0
    return max([*sharing.partners.values(), 0.0 if sharing.duty is None else 1.0], default=0.0)


def fastest_sharing(job: Job) -> float:
    """Return the highest factor by which sharing GPUs could change the rate; at least 1, as a job
    may run alone."""
    return max(1.0, rate_beside(job))


def relaxed_modes(
    empty: EmptyCluster, job: Job, gpu_quota: int | None, mixes: bool
) -> list[RelaxedMode]:
    """Return every mode of `job` on the empty cluster, with `mixes` those of gangs on several GPU
    types, too. Resources and budgets are not looked at."""
    if job.modes:
        listed = [own for mode in job.modes for own in _listed(empty, job, mode, gpu_quota, mixes)]
        return [_begun_in_any(own, listed) for own in listed] if job.cores_in_place else listed
    if job.gpus == 0:
        mode = Mode(cpus=job.cpus, resources=job.resources)
        fits = empty.has_host(job.cpus, job.memory_gib)
        return [fixed_mode(job, mode, NO_GPU, fastest_sharing(job), job.cpus)] if fits else []
    able = tuple(
        t for t, gpu_type in enumerate(empty.types) if gpu_type_rate(job.profile, gpu_type) > 0
    )
    return [
        mode for t in able for mode in _measured(empty, job, t, able if mixes else (t,), gpu_quota)
    ]


def _begun_in_any(mode: RelaxedMode, listed: list[RelaxedMode]) -> RelaxedMode:
    """Return a mode whose job may have set up with the fewest cores of all, as it changes them in
    place."""
    fewest = min(own.cores.starting for own in listed)
    return replace(mode, cores=replace(mode.cores, starting=fewest))


def _listed(
    empty: EmptyCluster, job: Job, listed: Mode, gpu_quota: int | None, mixes: bool
) -> Iterator[RelaxedMode]:
    mode = with_shared(empty.cluster, job, listed)
    assert mode.duration_s is not None
    own = job.work_s / mode.duration_s * fastest_sharing(job)
    if mode.gpus == 0:
        rate = own * locality_rate(job.profile, "node")
        if rate > 0 and empty.has_host(mode.cpus, job.memory_gib):
            yield fixed_mode(job, mode, NO_GPU, rate, mode.cpus)
        return
    if gpu_quota is not None and mode.gpus > gpu_quota:
        return
    for t, gpu_type in enumerate(empty.types):
        if mode.gpu_type not in (None, gpu_type):
            continue
        if not empty.most_gpus(job, t, (t,), "node", mode):
            continue
        among = tuple(range(len(empty.types))) if mixes and mode.gpu_type is None else (t,)
        rate = own * max(
            (
                locality_rate(job.profile, spread)
                for spread in _spans(mode.gpus)
                if empty.most_gpus(job, t, _within(t, among, spread), spread, mode) >= mode.gpus
            ),
            default=0.0,
        )
        if rate > 0:
            cores, watts = mode.cpus_per_gpu * mode.gpus, power_w(job, mode, gpu_type, 1)
            yield fixed_mode(job, mode, t, rate, cores, watts)


def _spans(gpus: int) -> tuple[Span, ...]:
    return SPANS if gpus > 1 else ("node",)


def _within(t: int, among: Types, spread: Span) -> Types:
    """Return the types on which a gang with GPUs of type `t` may be; a node has only one."""
    return (t,) if spread == "node" else among


def _measured(
    empty: EmptyCluster, job: Job, t: int, among: Types, gpu_quota: int | None
) -> Iterator[RelaxedMode]:
    """Yield the modes on one GPU type of a job that lists none: of a gang of fixed size, or of each
    useful size. It may go on to the types `among`."""
    own = gpu_type_rate(job.profile, empty.types[t]) * fastest_sharing(job)
    sizes = gang_sizes(job)
    low, high = sizes[0], sizes[-1]
    if gpu_quota is not None:
        high = min(high, gpu_quota)
    rates: dict[int, float] = {}
    cores_per_work = inf
    each = _of_each_gpu(empty, job, t)
    for spread in _spans(high):
        types, where = _within(t, among, spread), own * locality_rate(job.profile, spread)
        for mode, by_host in each:
            paces = _paces(empty, job, t, types, spread, mode)
            for gpus in [size for size in sizes if size <= high]:
                pace = next((pace for pace, most in paces if gpus <= most), 0.0)
                rate = count_rate(job, gpus) * where * by_host * pace
                if rate > 0:
                    rates[gpus] = max(rates.get(gpus, 0.0), rate)
                    cores_per_work = min(cores_per_work, gpus * mode.cpus_per_gpu / rate)
    has_cores = bool(job.profile.cpus_per_gpu)
    least_w = min(power_w(job, Mode(gpus=1), empty.types[other], 1) for other in among)
    own_w = power_w(job, Mode(gpus=1), empty.types[t], 1)
    cap_w = empty.cluster.resources.get(POWER_CAP)
    for clock, watts in _clocks(job, empty.types[t]):
        capped_w = 0.0 if cap_w is None else watts
        other_w = capped_w * least_w / own_w if own_w > 0 else 0.0
        besides_w = job.resources.get(POWER_CAP, 0.0)
        affordable = {
            gpus: rate
            for gpus, rate in rates.items()
            if cap_w is None or besides_w + capped_w + (gpus - 1) * other_w <= forgiven(cap_w)
        }
        resources = job.resources
        if capped_w:
            resources = {**resources, POWER_CAP: besides_w + low * capped_w}
        cores = Density.steady(0.0)
        for gpus, rate in _useful_sizes(affordable):
            if has_cores:  # it may hold more cores than make it faster
                cores = Density(low, cores_per_work * rate, inf)
            yield RelaxedMode(
                gpu_type=t,
                rate=rate * clock,
                gpus=Density(low, gpus, gpus),
                cores=cores,
                power_w=watts,
                resources=resources,
                capped_w=capped_w,
                mixed_saves_w=(low - 1) * (capped_w - other_w),
            )


def _useful_sizes(rates: Mapping[int, float]) -> list[tuple[int, float]]:
    """Return the sizes and rates that no mix of others, and of holding nothing, equals: the corners
    of the concave hull, from the size of most work by GPU to the fastest."""
    useful: list[tuple[int, float]] = []
    gpus, rate = 0, 0.0
    while faster := [size for size, own in rates.items() if own > rate]:
        gpus = max(faster, key=lambda size: ((rates[size] - rate) / (size - gpus), size))
        rate = rates[gpus]
        useful.append((gpus, rate))
    return useful


def _paces(
    empty: EmptyCluster, job: Job, t: int, types: Types, spread: Span, mode: Mode
) -> list[tuple[float, int]]:
    """Return how much of the rate of type `t` gangs that hold a GPU of it may have, from most to
    least, and the GPUs of the largest of each: one that is as fast as its slowest type needs, where
    `t` alone has too few for what it takes beside each, the next fastest types."""
    is_sum = job.profile.mixing == "sum"
    rates = {own: 1.0 if is_sum else gpu_type_rate(job.profile, empty.types[own]) for own in types}
    paces = []
    for slowest in sorted({min(rate, rates[t]) for rate in rates.values()}, reverse=True):
        on = tuple(own for own in types if rates[own] >= slowest)
        paces.append((slowest / rates[t], empty.most_gpus(job, t, on, spread, mode)))
    return paces


def _clocks(job: Job, gpu_type: str | None) -> list[tuple[float, float]]:
    """Return (rate, power of a GPU) at each clock that is faster than all that draw no more
    power."""
    power_and_rate = sorted(
        (power_w(job, Mode(gpus=1, clock_mhz=mhz), gpu_type, 1), -clock_rate(job.profile, mhz))
        for mhz in clocks(job)
    )
    useful: list[tuple[float, float]] = []
    for watts, slowness in power_and_rate:
        if -slowness > (useful[-1][0] if useful else 0.0):
            useful.append((-slowness, watts))
    return useful


def _of_each_gpu(empty: EmptyCluster, job: Job, t: int) -> list[tuple[Mode, float]]:
    """Return the cores and memory with each GPU with which a job may be started and on type `t`
    hold one, with the rate by these."""
    found = []
    every = product(core_levels(job), memory_levels(job), gpu_memory_levels(job))
    for cores, gib, gpu_gib in every:
        mode = Mode(cpus_per_gpu=cores, memory_gib_per_gpu=gib, gpu_memory_gib=gpu_gib)
        rate = host_rate(job.profile, cores, gib) * gpu_memory_rate(job.profile, gpu_gib)
        if rate > 0 and empty.most_gpus(job, t, (t,), "node", mode):
            found.append((mode, rate))
    return found
