"""The fewest seconds, GPU-seconds and core-seconds of each mode of a job, over all that the
verifier accepts.

`modes.options` lists the modes that planners choose from. The verifier accepts more: any count of
an elastic gang and any number of cores. Rates are piecewise linear in both, so the extremes lie at
the tables' points, at the ends of the range and at the largest value that fits; these are what is
looked at here.

It also accepts gangs on GPUs of several types, which have no row of their own: with `mixes` the row
of a type stands for every gang that has a GPU of it, so it is there where such a gang fits although
the type alone has too few GPUs. One of the rows is always as good as the gang. Be it of n GPUs, n_t
of each type t, and let a GPU of type t count d_t, any weight: its price, its power, its speed. The
row of t with n GPUs has the rate R_t; the gang - as fast as its slowest type does work W in W / min
R_t, no sooner than any of its types, and counts sum n_t d_t,
  no less than n of the type among them whose d_t is least (nor is it faster than the slowest of the
  fastest types that together have n GPUs, which bounds the rate of a row whose type alone has too
  few);
- with `mixing` "sum" has the rate sum n_t R_t / n, at most the largest, and counts W (sum n_t d_t)
  / (sum n_t R_t / n), at least the least of W n d_t / R_t. That says nothing of its set-up together
  with its work, so the set-up of such jobs is left out (`Ways`).
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model.cluster import POWER_CAP
from ..model.job import Elastic, Job, Mode
from ..physics import (
    Span,
    clock_rate,
    clocks,
    count_rate,
    gang_sizes,
    gpu_type_rate,
    interpolate,
    locality_rate,
    power_w,
)
from .shape import Shape, Types

NO_GPU = -1
SPANS: tuple[Span, ...] = ("node", "rack", "cluster")


@dataclass(frozen=True, slots=True)
class Row:
    """One way to run a job on GPUs of one type (`NO_GPU` for none) at one clock.

    `rate` is the highest. `gpus` and `cores` are the fewest held while it starts; `area_gpus` and
    `area_cores` times its shortest run time are the fewest GPU- and core-seconds of the run;
    `most_gpus` and `most_cores` the most it could hold. `whole_s` is a listed duration. `resources`
    are the least held; where there is a power cap, each GPU beyond `gpus` holds `capped_w` more of
    it, and a gang that also is on GPUs that draw less may hold up to `mixed_saves_w` less.
    """

    gpu_type: int
    rate: float
    gpus: int
    area_gpus: float
    most_gpus: int
    cores: float
    area_cores: float
    most_cores: float
    power_w: float
    whole_s: float | None
    resources: Mapping[str, float]
    capped_w: float = 0.0
    mixed_saves_w: float = 0.0


def fastest_sharing(job: Job) -> float:
    """The highest factor by which sharing GPUs could change the rate; at least 1, as a job may run
    alone."""
    sharing = job.profile.sharing
    return 1.0 if sharing is None else max([1.0, *sharing.partners.values()])


def rows(shape: Shape, job: Job, gpu_quota: int | None, mixes: bool) -> list[Row]:
    """Every row of `job` on the empty cluster, with `mixes` those of gangs on several GPU types,
    too. Resources and budgets are not looked at."""
    if job.modes:
        return [row for mode in job.modes for row in _listed(shape, job, mode, gpu_quota, mixes)]
    if job.gpus == 0:
        if not shape.has_host(job.cpus, job.memory_gib):
            return []
        cores = float(job.cpus)
        return [
            Row(
                gpu_type=NO_GPU,
                rate=fastest_sharing(job),
                gpus=0,
                area_gpus=0.0,
                most_gpus=0,
                cores=cores,
                area_cores=cores,
                most_cores=cores,
                power_w=0.0,
                whole_s=None,
                resources=job.resources,
            )
        ]
    able = tuple(
        t for t, gpu_type in enumerate(shape.types) if gpu_type_rate(job.profile, gpu_type) > 0
    )
    return [
        row for t in able for row in _measured(shape, job, t, able if mixes else (t,), gpu_quota)
    ]


def _listed(
    shape: Shape, job: Job, mode: Mode, gpu_quota: int | None, mixes: bool
) -> Iterator[Row]:
    assert mode.duration_s is not None
    own = job.work_s / mode.duration_s * fastest_sharing(job)
    resources = {
        name: job.resources.get(name, 0.0) + mode.resources.get(name, 0.0)
        for name in {**job.resources, **mode.resources}
    }

    def row(t: int, rate: float, cores: float) -> Row:
        whole_s = mode.duration_s if rate == job.work_s / (mode.duration_s or 1.0) else None
        watts = 0.0 if t == NO_GPU else power_w(job, mode, shape.types[t], 1)
        return Row(
            gpu_type=t,
            rate=rate,
            gpus=mode.gpus,
            area_gpus=float(mode.gpus),
            most_gpus=mode.gpus,
            cores=cores,
            area_cores=cores,
            most_cores=cores,
            power_w=watts,
            whole_s=whole_s,
            resources=resources,
        )

    if mode.gpus == 0:
        rate = own * locality_rate(job.profile, "node")
        if rate > 0 and shape.has_host(mode.cpus, job.memory_gib):
            yield row(NO_GPU, rate, float(mode.cpus))
        return
    if gpu_quota is not None and mode.gpus > gpu_quota:
        return
    for t, gpu_type in enumerate(shape.types):
        if mode.gpu_type not in (None, gpu_type):
            continue
        among = tuple(range(len(shape.types))) if mixes and mode.gpu_type is None else (t,)
        speeds = [
            locality_rate(job.profile, spread)
            for spread in _spans(mode.gpus)
            if shape.most_gpus(job, _within(t, among, spread), spread, mode.cpus_per_gpu)
            >= mode.gpus
        ]
        if speeds and max(speeds) > 0 and own > 0:
            yield row(t, own * max(speeds), float(mode.cpus_per_gpu * mode.gpus))


def _spans(gpus: int) -> tuple[Span, ...]:
    return SPANS if gpus > 1 else ("node",)


def _within(t: int, among: Types, spread: Span) -> Types:
    """Types on which a gang with GPUs of type `t` may be; a node has only one."""
    return (t,) if spread == "node" else among


def _measured(shape: Shape, job: Job, t: int, among: Types, gpu_quota: int | None) -> Iterator[Row]:
    """The row of one GPU type of a job that lists no modes: a gang of fixed size, or of the best
    size. It may go on to the types `among`."""
    own = gpu_type_rate(job.profile, shape.types[t]) * fastest_sharing(job)
    low, high = (
        (job.gpus.min, job.gpus.max) if isinstance(job.gpus, Elastic) else (job.gpus, job.gpus)
    )
    if gpu_quota is not None:
        high = min(high, gpu_quota)
    speed, per_work, cores_per_work, largest = 0.0, float("inf"), float("inf"), 0
    for spread in _spans(high):
        types = _within(t, among, spread)
        by_cores = _core_levels(shape, job, types, spread, low)
        where = own * locality_rate(job.profile, spread)
        if not by_cores or where <= 0:
            continue
        most = min(high, shape.most_gpus(job, types, spread, 1 if job.profile.cpus_per_gpu else 0))
        if most < low:
            continue
        fastest_core = max(rate for _, rate in by_cores)
        fewest_cores = min(level / rate for level, rate in by_cores)
        for gpus in {*(size for size in gang_sizes(job) if size <= most), most}:
            slower = _slower(shape, job, t, types, spread, gpus)
            rate = count_rate(job, gpus) * where * slower
            if rate <= 0:
                continue
            speed = max(speed, rate * fastest_core)
            per_work = min(per_work, gpus / (rate * fastest_core))
            cores_per_work = min(cores_per_work, gpus * fewest_cores / rate)
            largest = max(largest, gpus)
    if speed <= 0:
        return
    area_gpus = float(low) if low == high else per_work * speed  # exact where there is no choice
    cores = float(low) if job.profile.cpus_per_gpu else 0.0
    most_cores = (
        float("inf") if job.profile.cpus_per_gpu else 0.0
    )  # it may hold more than make it faster
    least_w = min(power_w(job, Mode(gpus=1), shape.types[one], 1) for one in among)
    own_w = power_w(job, Mode(gpus=1), shape.types[t], 1)
    for clock, watts in _clocks(job, shape.types[t]):
        capped_w = watts if shape.has_power_cap else 0.0
        resources = job.resources
        saves_w = (low - 1) * watts * (1 - least_w / own_w) if own_w > 0 else 0.0
        if capped_w:
            resources = {**resources, POWER_CAP: resources.get(POWER_CAP, 0.0) + low * capped_w}
        yield Row(
            gpu_type=t,
            rate=speed * clock,
            gpus=low,
            area_gpus=area_gpus,
            most_gpus=largest,
            cores=cores,
            area_cores=cores_per_work * speed,
            most_cores=most_cores,
            power_w=watts,
            whole_s=None,
            resources=resources,
            capped_w=capped_w,
            mixed_saves_w=saves_w,
        )


def _slower(shape: Shape, job: Job, t: int, types: Types, spread: Span, gpus: int) -> float:
    """At most so much of the rate of type `t` has a gang that is as fast as its slowest type, where
    `t` alone has too few GPUs: it needs the next fastest types until there are enough."""
    cores = 1 if job.profile.cpus_per_gpu else 0
    if (
        len(types) == 1
        or job.profile.mixing == "sum"
        or shape.most_gpus(job, (t,), spread, cores) >= gpus
    ):
        return 1.0
    rates = {one: gpu_type_rate(job.profile, shape.types[one]) for one in types}
    fastest: Types = ()
    for one in sorted(types, key=lambda one: -rates[one]):
        fastest = (*fastest, one)
        if shape.most_gpus(job, fastest, spread, cores) >= gpus:
            return min(1.0, rates[one] / rates[t])
    return 1.0


def _clocks(job: Job, gpu_type: str | None) -> list[tuple[float, float]]:
    """(rate, power of a GPU) at each clock that is faster than all that draw no more power."""
    found = [
        (clock_rate(job.profile, mhz), power_w(job, Mode(gpus=1, clock_mhz=mhz), gpu_type, 1))
        for mhz in clocks(job)
    ]
    kept: list[tuple[float, float]] = []
    for rate, watts in sorted(found, key=lambda one: (one[1], -one[0])):
        if rate > (kept[-1][0] if kept else 0.0):
            kept.append((rate, watts))
    return kept


def _core_levels(
    shape: Shape, job: Job, types: Types, spread: Span, gpus: int
) -> list[tuple[int, float]]:
    """Cores per GPU at which `gpus` fit, fewest first, with their rates; (0, 1) where cores do not
    matter."""
    table = job.profile.cpus_per_gpu
    if not table:
        return [(0, 1.0)] if shape.most_gpus(job, types, spread, 0) >= gpus else []
    # Fewer cores always fit where more do.
    low = bisect_left(
        range(1, max(table) + 1),
        True,
        key=lambda level: shape.most_gpus(job, types, spread, level) < gpus,
    )
    levels = sorted({1, low, *(level for level in table if level <= low)} if low else ())
    return [(level, rate) for level in levels if (rate := interpolate(table, level)) > 0]
