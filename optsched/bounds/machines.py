"""The capacities that an instance's jobs compete for, each as one machine of some speed that every
plan keeps."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..frozen import record
from ..model import POWER_CAP, Instance
from ..physics.capacity import Capacity
from ..physics.catalogue import catalogue_of
from .empty_cluster import TOLERANCE, forgiven
from .mode_table import Flags, Floats, Ints, ModeTable
from .relaxed_modes import Density

MOST_CLASSES = 32
"""Classes of jobs by the GPU types they can use that are looked at one by one."""


@record
class Machine:
    """`jobs` (indices) take at least `work_s` seconds of it. A job never holds so much of it that
    its work could be done in less than `shortest_s`, so its mean busy time lies at least half of
    that before its completion."""

    name: str
    jobs: Ints
    work_s: Floats
    shortest_s: Floats


@record
class Family:
    """Machines that no two of which serve the same job, so that their sums add up."""

    name: str
    machines: tuple[Machine, ...]


def families(instance: Instance, modes: ModeTable, seconds: Floats) -> Iterator[Family]:
    """Yield families of GPUs (of connected types; of each class of jobs; by speed), large gangs,
    cores, resources, quotas.

    `seconds` is the shortest time that each job holds something.
    """
    table = catalogue_of(instance).capacity
    yield from _gpus(modes, seconds)
    cores = [table.rows[row].capacity for row in table.cores if row is not None]
    if cores and len(cores) == len(table.cores) and modes.cores.starting.any():
        yield Family("cores", (_machine("cores", modes, float(sum(cores)), modes.cores),))
    for name, amount in modes.resources.items():
        capacity = instance.cluster.resources.get(name, 0.0)
        held = Density.steady(amount)
        if name == POWER_CAP:
            held = Density(
                *(
                    amount + modes.capped_w * (gpus - modes.gpus.starting)
                    for gpus in (modes.gpus.starting, modes.gpus.working, modes.gpus.most)
                )
            )
        is_whole = float(capacity).is_integer() and not any(
            (amounts != np.floor(amounts)).any() for amounts in (amount, modes.capped_w)
        )
        if not is_whole or capacity >= 1 / TOLERANCE:
            capacity = forgiven(capacity)
        if capacity > 0:
            yield Family(name, (_machine(name, modes, capacity, held),))
            yield from _one_at_a_time(name, modes, seconds, amount, capacity)
    yield from _quotas(instance, table, modes)


def _machine(
    name: str, modes: ModeTable, capacity: float, density: Density, among: Flags | None = None
) -> Machine:
    area = modes.least(density)
    busiest = np.maximum.reduceat(density.most, modes.first)
    jobs = np.flatnonzero(area > 0)
    if among is not None:
        jobs = jobs[among[jobs]]
    return Machine(name, jobs, area[jobs] / capacity, area[jobs] / busiest[jobs])


def _one_at_a_time(
    name: str, modes: ModeTable, seconds: Floats, held: Floats, capacity: float
) -> Iterator[Family]:
    """Yield families of jobs that cannot overlap, as each always holds more than half."""
    jobs = np.flatnonzero(np.minimum.reduceat(held, modes.first) * 2 > capacity * (1 + TOLERANCE))
    if len(jobs) > 1:
        name = f"more than half of {name}"
        yield Family(name, (Machine(name, jobs, seconds[jobs], seconds[jobs]),))


def _gpus(modes: ModeTable, seconds: Floats) -> Iterator[Family]:
    types = modes.empty.types
    if not types or not modes.gpus.starting.any():
        return
    usable = _usable_types(modes)
    needs = usable != 0
    classes = [int(mask) for mask in np.unique(usable[needs])]
    components = _components(classes)
    plain = np.ones(len(types))
    yield Family("GPUs", tuple(_gpu_machine(modes, mask, plain) for mask in components))
    if len(classes) > len(components) and len(classes) <= MOST_CLASSES:
        yield Family(
            "GPUs of each class of jobs",
            tuple(_gpu_machine(modes, mask, plain, usable == mask) for mask in classes),
        )
    if len(types) > 1:
        speed = _speeds(modes, needs)
        if (speed < 1).any():
            by_speed = (_gpu_machine(modes, mask, speed) for mask in components)
            yield Family(
                "GPUs by speed",
                tuple(replace(machine, name=f"{machine.name} by speed") for machine in by_speed),
            )
    for mask in dict.fromkeys((*components, *classes[:MOST_CLASSES])):
        members = _members(mask, len(types))
        inside = np.zeros(len(types))
        inside[members] = 1.0
        held = np.where(modes.shares, 0.0, modes.on_types(inside) * modes.gpus.starting)
        capacity = float(sum(modes.empty.capacity[t] for t in members))
        yield from _one_at_a_time(_title(modes, mask), modes, seconds, held, capacity)


def _usable_types(modes: ModeTable) -> Ints:
    """Return for each job a bit mask of the GPU types it can run on; 0 for a job that can do
    without a GPU."""
    if len(modes.empty.types) > 62:
        return (np.minimum.reduceat(modes.gpus.starting, modes.first) > 0).astype(np.int64)
    bits = np.where(modes.gpu_type >= 0, np.int64(1) << np.maximum(modes.gpu_type, 0), 0)
    for mode, share in modes.mixed.items():
        bits[mode] = sum(1 << t for t in np.flatnonzero(share).tolist())
    masks = np.bitwise_or.reduceat(bits, modes.first)
    return np.where(np.minimum.reduceat(modes.gpus.starting, modes.first) > 0, masks, 0)


def _components(classes: list[int]) -> list[int]:
    components: list[int] = []
    for mask in classes:
        apart = [other for other in components if not other & mask]
        for other in components:
            mask |= other if other & mask else 0
        components = [*apart, mask]
    return sorted(components)


def _members(mask: int, types: int) -> list[int]:
    return list(range(types)) if types > 62 else [t for t in range(types) if mask >> t & 1]


def _title(modes: ModeTable, mask: int) -> str:
    names = [modes.empty.types[t] for t in _members(mask, len(modes.empty.types))]
    return f"{', '.join(name for name in names if name)} GPUs".strip()


def _gpu_machine(modes: ModeTable, mask: int, speed: Floats, among: Flags | None = None) -> Machine:
    """Return the GPUs of the types in `mask` for the jobs that can use no others, each counted by
    its speed."""
    members = _members(mask, len(modes.empty.types))
    inside = np.zeros(len(modes.empty.types))
    inside[members] = speed[members]
    capacity = float(sum(modes.empty.capacity[t] * speed[t] for t in members))
    return _machine(
        _title(modes, mask), modes, capacity, modes.gpu_density(inside, halved=True), among
    )


def _speeds(modes: ModeTable, needs: Flags) -> Floats:
    """Return how much of a job's work a GPU of each type does beside the best one, on average over
    GPU-seconds.

    Any positive numbers give a valid bound; these make it tight where all jobs agree on them.
    """
    area = modes.gpus.starting * modes.setup_s + modes.gpus.working * modes.run_s
    best = np.minimum.reduceat(np.where(modes.gpus.starting > 0, area, np.inf), modes.first)[
        modes.job
    ]
    counts = (modes.gpus.starting > 0) & needs[modes.job]
    speed = np.ones(len(modes.empty.types))
    for t in range(len(speed)):
        here = counts & (modes.gpu_type == t)
        if here.any():
            speed[t] = np.sum(best[here] ** 2 / area[here]) / np.sum(best[here])
    relative: Floats = np.maximum(speed / speed.max(), 1e-6)
    return relative


def _quotas(instance: Instance, table: Capacity, modes: ModeTable) -> Iterator[Family]:
    """Yield families of quotas that limit no job twice: those that no other limits, then those
    below them, level by level; a shared GPU counts fully for both jobs."""
    if not modes.empty.types:
        return
    over = [table.quotas_of(job)[::-1] for job in instance.jobs]
    density = modes.gpu_density(np.ones(len(modes.empty.types)), halved=False)
    for level in range(max(map(len, over), default=0)):
        owner = np.array([rows[min(level, len(rows) - 1)] if rows else -1 for rows in over])
        machines = tuple(
            _machine(
                f"the {row.name}" if row.of else row.name,
                modes,
                float(row.capacity),
                density,
                owner == number,
            )
            for number in np.unique(owner[owner >= 0]).tolist()
            if (row := table.rows[number]).capacity
        )
        if machines:
            yield Family("quotas", machines)
