"""What an instance's jobs compete for, each as one machine of some speed that every plan keeps."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..model.cluster import POWER_CAP
from ..model.instance import Instance
from .shape import TOLERANCE
from .ways import Flags, Floats, Ints, Ways

MOST_CLASSES = 32
"""Classes of jobs by the GPU types they can use that are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Machine:
    """`jobs` (indices) take at least `work_s` seconds of it. A job never holds so much of it that
    its work could be done in less than `shortest_s`, so its mean busy time lies at least half of
    that before its completion."""

    name: str
    jobs: Ints
    work_s: Floats
    shortest_s: Floats


@dataclass(frozen=True, slots=True)
class Family:
    """Machines that no two of which serve the same job, so that their sums add up."""

    name: str
    machines: tuple[Machine, ...]


def families(instance: Instance, ways: Ways, seconds: Floats) -> Iterator[Family]:
    """GPUs (of connected types; of each class of jobs; by speed), large gangs, cores, resources,
    quotas.

    `seconds` is the shortest time that each job holds something.
    """
    yield from _gpus(ways, seconds)
    if ways.shape.has_all_cores and ways.cores.any():
        density = ways.cores, ways.area_cores, ways.most_cores
        yield Family("cores", (_machine("cores", ways, float(ways.shape.cores), *density),))
    for name, amount in ways.resources.items():
        capacity = instance.cluster.resources.get(name, 0.0)
        working = most = amount
        if name == POWER_CAP:
            working = amount + ways.capped_w * (ways.area_gpus - ways.gpus)
            most = amount + ways.capped_w * (ways.most_gpus - ways.gpus)
        is_whole = float(capacity).is_integer() and not any(
            (amounts != np.floor(amounts)).any() for amounts in (amount, ways.capped_w)
        )
        if (
            not is_whole or capacity >= 1 / TOLERANCE
        ):  # the verifier forgives this much of fractional amounts
            capacity += TOLERANCE * max(1.0, capacity)
        if capacity > 0:
            yield Family(name, (_machine(name, ways, capacity, amount, working, most),))
            yield from _one_at_a_time(name, ways, seconds, amount, capacity)
    yield from _quotas(instance, ways)


def _machine(
    name: str,
    ways: Ways,
    capacity: float,
    starting: Floats,
    working: Floats,
    most: Floats,
    among: Flags | None = None,
) -> Machine:
    area = ways.least(starting, working)
    busiest = np.maximum.reduceat(most, ways.first) if area.size else area
    jobs = np.flatnonzero(area > 0)
    if among is not None:
        jobs = jobs[among[jobs]]
    return Machine(name, jobs, area[jobs] / capacity, area[jobs] / busiest[jobs])


def _one_at_a_time(
    name: str, ways: Ways, seconds: Floats, held: Floats, capacity: float
) -> Iterator[Family]:
    """Jobs that always hold more than half cannot overlap."""
    jobs = np.flatnonzero(np.minimum.reduceat(held, ways.first) * 2 > capacity * (1 + TOLERANCE))
    if len(jobs) > 1:
        name = f"more than half of {name}"
        yield Family(name, (Machine(name, jobs, seconds[jobs], seconds[jobs]),))


def _gpus(ways: Ways, seconds: Floats) -> Iterator[Family]:
    types = ways.shape.types
    if not types or not ways.job.size or not ways.gpus.any():
        return
    usable = _usable_types(ways)
    needs = usable != 0
    classes = [int(mask) for mask in np.unique(usable[needs])]
    components = _components(classes)
    plain = np.ones(len(types))
    yield Family("GPUs", tuple(_gpu_machine(ways, mask, plain) for mask in components))
    if len(classes) > len(components) and len(classes) <= MOST_CLASSES:
        yield Family(
            "GPUs of each class of jobs",
            tuple(_gpu_machine(ways, mask, plain, usable == mask) for mask in classes),
        )
    if len(types) > 1:
        speed = _speeds(ways, needs)
        if (speed < 1).any():
            by_speed = (_gpu_machine(ways, mask, speed) for mask in components)
            yield Family(
                "GPUs by speed",
                tuple(replace(machine, name=f"{machine.name} by speed") for machine in by_speed),
            )
    for mask in dict.fromkeys((*components, *classes[:MOST_CLASSES])):
        members = _members(mask, len(types))
        inside = np.zeros(len(types))
        inside[members] = 1.0
        held = np.where(ways.shares, 0.0, ways.on_types(inside) * ways.gpus)
        capacity = float(sum(ways.shape.capacity[t] for t in members))
        yield from _one_at_a_time(_title(ways, mask), ways, seconds, held, capacity)


def _usable_types(ways: Ways) -> Ints:
    """For each job a bit mask of the GPU types it can run on; 0 for a job that can do without a
    GPU."""
    if len(ways.shape.types) > 62:
        return (np.minimum.reduceat(ways.gpus, ways.first) > 0).astype(np.int64)
    bits = np.where(ways.gpu_type >= 0, np.int64(1) << np.maximum(ways.gpu_type, 0), 0)
    for way, share in ways.mixed.items():
        bits[way] = sum(1 << t for t in np.flatnonzero(share).tolist())
    masks = np.bitwise_or.reduceat(bits, ways.first)
    return np.where(np.minimum.reduceat(ways.gpus, ways.first) > 0, masks, 0)


def _components(classes: list[int]) -> list[int]:
    found: list[int] = []
    for mask in classes:
        apart = [other for other in found if not other & mask]
        for other in found:
            mask |= other if other & mask else 0
        found = [*apart, mask]
    return sorted(found)


def _members(mask: int, types: int) -> list[int]:
    return list(range(types)) if types > 62 else [t for t in range(types) if mask >> t & 1]


def _title(ways: Ways, mask: int) -> str:
    names = [ways.shape.types[t] for t in _members(mask, len(ways.shape.types))]
    return f"{', '.join(name for name in names if name)} GPUs".strip()


def _gpu_machine(ways: Ways, mask: int, speed: Floats, among: Flags | None = None) -> Machine:
    """The GPUs of the types in `mask` for the jobs that can use no others, each counted by its
    speed."""
    members = _members(mask, len(ways.shape.types))
    inside = np.zeros(len(ways.shape.types))
    inside[members] = speed[members]
    capacity = float(sum(ways.shape.capacity[t] * speed[t] for t in members))
    return _machine(
        _title(ways, mask), ways, capacity, *ways.gpu_density(inside, halved=True), among
    )


def _speeds(ways: Ways, needs: Flags) -> Floats:
    """How much of a job's work a GPU of each type does beside the best one, on average over
    GPU-seconds.

    Any positive numbers give a valid bound; these make it tight where all jobs agree on them.
    """
    area = ways.gpus * ways.setup_s + ways.area_gpus * ways.run_s
    best = np.minimum.reduceat(np.where(ways.gpus > 0, area, np.inf), ways.first)[ways.job]
    counts = (ways.gpus > 0) & needs[ways.job]
    speed = np.ones(len(ways.shape.types))
    for t in range(len(speed)):
        here = counts & (ways.gpu_type == t)
        if here.any():
            speed[t] = np.sum(best[here] ** 2 / area[here]) / np.sum(best[here])
    relative: Floats = np.maximum(speed / speed.max(), 1e-6)
    return relative


def _quotas(instance: Instance, ways: Ways) -> Iterator[Family]:
    """Each tenant's quota of GPUs and all quotas together; a shared GPU counts fully for both
    jobs."""
    caps = {tenant: float(gpus) for tenant, gpus in instance.gpu_cap.items() if gpus}
    if not caps or not len(ways.shape.types):
        return
    index = {tenant: i for i, tenant in enumerate(caps, start=1)}
    owner = np.array([index.get(job.tenant or "", 0) for job in instance.jobs], np.int64)
    density = ways.gpu_density(np.ones(len(ways.shape.types)), halved=False)
    yield Family(
        "quotas",
        tuple(
            _machine(f"the quota of {tenant}", ways, gpus, *density, owner == index[tenant])
            for tenant, gpus in caps.items()
        ),
    )
    if instance.quota_pool:
        together = _machine("all quotas", ways, float(instance.quota_pool), *density, owner > 0)
        yield Family("all quotas", (together,))
