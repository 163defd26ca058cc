"""All ways in which every job of an instance can still be run, as one table of arrays.

A waiting job has a way for each of its rows. A running job has one more, to stay where it is, and
its other ways begin with the checkpoint that frees its GPUs.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..model.cluster import POWER_CAP
from ..model.instance import Instance, Running
from ..model.job import Job
from ..physics import (
    gpus_by_type,
    hold_to_save_s,
    may_preempt,
    placed_rate,
    power_w,
    remaining_after_preemption_s,
)
from ..physics.modes import demands
from .rows import NO_GPU, Row, fastest_sharing, rows
from .shape import TOLERANCE, Shape

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """One entry for each way, those of a job side by side from `first[job]` on.

    `stay` is for each way the way in which its job stays, `pause_s` the checkpoint before it
    leaves; -1 and 0 where the job does not run now or the way is to stay. With `preemptive` a job
    may stay for a while and leave later, so each second of work of a leaving job may also be done
    where it is now, and its ways stand for gangs on several GPU types, too (`rows`); `mixes` says
    that some job has such gangs. `mixed` has the share of its GPUs on each type for each way in
    which a job stays on several; `gpu_type` is one of them.
    """

    shape: Shape
    preemptive: bool
    mixes: bool
    mixed: dict[int, Floats]
    first: Ints
    job: Ints
    gpu_type: Ints
    gpus: Floats
    area_gpus: Floats
    most_gpus: Floats
    cores: Floats
    area_cores: Floats
    most_cores: Floats
    power_w: Floats
    setup_s: Floats
    run_s: Floats
    pause_s: Floats
    stay: Ints
    shares: Flags
    resources: dict[str, Floats]
    capped_w: Floats

    def least(self, starting: Floats, working: Floats | None = None) -> Floats:
        """For each job the least integral over time, over its ways, of a density: `starting` while
        it starts or saves, `working` (the same, if not given) while it runs."""
        if working is None:
            working = starting
        done = working * self.run_s
        leaves = np.flatnonzero(self.stay >= 0)
        total = starting * self.setup_s + done
        if leaves.size:
            stays = self.stay[leaves]
            work = np.minimum(done[leaves], done[stays]) if self.preemptive else done[leaves]
            total[leaves] = (
                starting[stays] * self.pause_s[leaves]
                + starting[leaves] * self.setup_s[leaves]
                + work
            )
        return np.minimum.reduceat(total, self.first) if total.size else total

    def on_types(self, weight: Floats) -> Floats:
        """For each way the mean over its GPUs of a weight by GPU type; 0 without GPUs."""
        found: Floats = np.append(weight, 0.0)[self.gpu_type]  # NO_GPU is -1, the last
        for way, share in self.mixed.items():
            found[way] = share @ weight
        return found

    def gpu_density(self, speed: Floats, halved: bool) -> tuple[Floats, Floats, Floats]:
        """GPUs held while starting, while running, and at most, each GPU of a type counted
        `speed[type]` times.

        With `halved` a job that may share its GPUs counts half, as a pair holds them once.
        """
        factor = self.on_types(speed)
        charged = np.where(self.shares, 0.5, 1.0) * factor if halved else factor
        return charged * self.gpus, charged * self.area_gpus, factor * self.most_gpus


def tabulate(instance: Instance, preemptive: bool) -> Ways:
    """The ways of every job of a sound instance. With `preemptive` false, those of the plan class
    only: a running job continues to its end or is preempted now.

    Raises InputError for a job that fits nowhere.
    """
    shape = Shape(instance.cluster)
    mixes = False
    known: dict[object, int] = {}
    groups: list[tuple[Job, list[Row]]] = []
    group_of: list[int] = []
    for job in instance.jobs:
        quota = None if job.tenant is None else instance.gpu_cap.get(job.tenant)
        key = quota, demands(job)
        group = known.get(key)
        if group is None:
            group = known[key] = len(groups)
            found = rows(shape, job, quota, mixes=preemptive and len(shape.types) > 1)
            mixes = mixes or (
                preemptive
                and len(shape.types) > 1
                and found != rows(shape, job, quota, mixes=False)
            )
            groups.append((job, [row for row in found if _is_affordable(instance, row)]))
        group_of.append(group)
    return _fill(instance, shape, preemptive, mixes, groups, np.array(group_of, np.int64))


def _is_affordable(instance: Instance, row: Row) -> bool:
    have = instance.cluster.resources
    return all(
        amount - (row.mixed_saves_w if name == POWER_CAP else 0.0) <= _most(have.get(name, 0.0))
        for name, amount in row.resources.items()
    )


def _most(capacity: float) -> float:
    return capacity + TOLERANCE * max(1.0, capacity)


def _fill(
    instance: Instance,
    shape: Shape,
    preemptive: bool,
    mixes: bool,
    groups: list[tuple[Job, list[Row]]],
    group_of: Ints,
) -> Ways:
    jobs = instance.jobs
    whole_work = np.array([job.work_s for job in jobs], np.float64)
    work = whole_work.copy()
    ran_before = np.zeros(len(jobs), np.bool_)
    position = (
        {job.id: j for j, job in enumerate(jobs)} if instance.running or instance.suspended else {}
    )
    for entry in instance.suspended:
        work[position[entry.job]] = entry.remaining_s
        ran_before[position[entry.job]] = True
    stays: dict[int, Running] = {}
    fixed = np.zeros(len(jobs), np.bool_)
    pause = np.zeros(len(jobs))
    for running in instance.running:
        j, job = position[running.job], instance.job[running.job]
        stays[j] = running
        ran_before[j] = True
        pause[j] = hold_to_save_s(job)
        work[j] = (
            running.remaining_s if preemptive else remaining_after_preemption_s(instance, running)
        )
        used_up = job.max_preemptions is not None and running.preemptions >= job.max_preemptions
        fixed[j] = (
            not job.preemptible or used_up if preemptive else not may_preempt(instance, running)
        )

    sizes = np.array([len(found) for _, found in groups], np.int64)
    offsets = np.concatenate(([0], np.cumsum(sizes)))[:-1] if len(groups) else sizes
    fresh = sizes[group_of] if len(jobs) else sizes
    fresh = np.where(fixed, 0, fresh)
    count = fresh + np.array([j in stays for j in range(len(jobs))], np.int64) if stays else fresh
    if len(jobs) and count.min() == 0:
        raise InputError(f"job {jobs[int(count.argmin())].id} fits nowhere on the cluster")
    first = np.concatenate(([0], np.cumsum(count)))[:-1]
    way_job = np.repeat(np.arange(len(jobs)), count)
    place = (
        np.arange(len(way_job)) - first[way_job]
    )  # the ways of a running job end with the one that stays
    flat = [row for _, found in groups for row in found]
    flat.extend(_stay(instance, shape, running) for running in stays.values())
    row_of = offsets[group_of[way_job]] + place if len(groups) else place
    stay = np.full(len(way_job), -1, np.int64)
    setup = np.array([job.profile.startup_s for job in jobs]) + np.where(
        ran_before, np.array([job.profile.restore_s for job in jobs]), 0.0
    )
    if (
        preemptive and len(shape.types) > 1
    ):  # see `rows`: of a job on several types nothing is said of its set-up
        setup[[job.profile.mixing == "sum" for job in jobs]] = 0.0
    way_setup, way_work = setup[way_job], work[way_job]
    mixed: dict[int, Floats] = {}
    for k, (j, running) in enumerate(stays.items()):
        at = int(first[j] + fresh[j])
        row_of[at] = len(flat) - len(stays) + k
        stay[int(first[j]) : at] = at
        way_setup[at], way_work[at] = running.setup_s, running.remaining_s
        held = gpus_by_type(instance.cluster, running.placement)
        if len(held) > 1:
            mixed[at] = np.array(
                [held.get(gpu_type, 0) / running.mode.gpus for gpu_type in shape.types]
            )

    def column(name: str) -> Floats:
        return np.array([getattr(row, name) for row in flat], np.float64)[row_of]

    listed = np.array([np.nan if row.whole_s is None else row.whole_s for row in flat], np.float64)[
        row_of
    ]
    run = np.where(
        (way_work == whole_work[way_job]) & ~np.isnan(listed), listed, way_work / column("rate")
    )
    names = sorted({name for row in flat for name in row.resources})
    return Ways(
        shape=shape,
        preemptive=preemptive,
        mixes=mixes or bool(mixed),
        mixed=mixed,
        first=first,
        job=way_job,
        gpu_type=column("gpu_type").astype(np.int64),
        gpus=column("gpus"),
        area_gpus=column("area_gpus"),
        most_gpus=column("most_gpus"),
        cores=column("cores"),
        area_cores=column("area_cores"),
        most_cores=column("most_cores"),
        power_w=column("power_w"),
        setup_s=way_setup,
        run_s=run,
        pause_s=np.where(stay >= 0, pause[way_job], 0.0),
        stay=stay,
        shares=np.array([job.profile.sharing is not None for job in jobs], np.bool_)[way_job],
        resources={
            name: np.array([row.resources.get(name, 0.0) for row in flat], np.float64)[row_of]
            for name in names
        },
        capped_w=column("capped_w"),
    )


def _stay(instance: Instance, shape: Shape, running: Running) -> Row:
    """The way in which a running job goes on where it is."""
    job, mode, placement = instance.job[running.job], running.mode, running.placement
    held = gpus_by_type(instance.cluster, placement)
    speed = placed_rate(instance, job, mode.unshared, placement) * fastest_sharing(job)
    is_whole = mode.duration_s is not None and speed == job.work_s / mode.duration_s
    cores = float(sum(slot.cpus for slot in placement))
    watts = sum(power_w(job, mode, gpu_type, gpus) for gpu_type, gpus in held.items())
    return Row(
        gpu_type=shape.index[next(iter(held))] if held else NO_GPU,
        rate=speed,
        gpus=mode.gpus,
        area_gpus=float(mode.gpus),
        most_gpus=mode.gpus,
        cores=cores,
        area_cores=cores,
        most_cores=cores,
        power_w=watts / max(1, mode.gpus),
        whole_s=mode.duration_s if is_whole else None,
        resources=mode.resources,
    )
