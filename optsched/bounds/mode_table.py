"""All modes in which every job of an instance can still be run, as one table of arrays.

A waiting job has its relaxed modes. A running job has one more, to stay where it is, and its other
modes begin with the checkpoint that frees its GPUs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..frozen import frozen
from ..model import POWER_CAP, Instance, Job, Mode, Running
from ..physics import (
    core_levels,
    cpus,
    gpus_by_type,
    hold_to_save_s,
    may_ever_preempt,
    may_preempt,
    placed_rate,
    power_w,
    remaining_after_preemption_s,
    setup_s,
)
from ..physics.modes import demands
from .empty_cluster import EmptyCluster, forgiven
from .relaxed_modes import (
    NO_GPU,
    Density,
    RelaxedMode,
    fastest_sharing,
    fixed_mode,
    rate_beside,
    relaxed_modes,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@frozen
class ModeTable:
    """One entry for each mode, those of a job side by side from `first[job]` on.

    `stay` is for each mode the one in which its job stays, `pause_s` the checkpoint before it
    leaves; -1 and 0 where the job does not run now or the mode is to stay. With `preemptive` a job
    may stay for a while and leave later, so each second of work of a leaving job may also be done
    where it is now, and its modes stand for gangs on several GPU types, too (`relaxed_modes`);
    `mixes` says that some job has such gangs, `adds` which modes stand together for some that are
    as fast as all their GPUs together. `mixed` has the share of its GPUs on each type for each mode
    in which a job stays on several; `gpu_type` is one of them. `beside` is the highest rate on
    shared GPUs, relative to that alone (`rate_beside`).
    """

    empty: EmptyCluster
    preemptive: bool
    mixes: bool
    adds: Flags
    mixed: dict[int, Floats]
    first: Ints
    job: Ints
    gpu_type: Ints
    gpus: Density
    cores: Density
    power_w: Floats
    setup_s: Floats
    run_s: Floats
    pause_s: Floats
    stay: Ints
    beside: Floats
    resources: dict[str, Floats]
    capped_w: Floats

    @property
    def shares(self) -> Flags:
        """Return which modes may share their GPUs."""
        return self.beside > 0

    def least(self, density: Density) -> Floats:
        """Return for each job the least integral over time of a density, over its modes: it saves
        and starts at what is held while starting, in any of the modes that stand together."""
        starting, done = density.starting, density.working * self.run_s
        starts = starting * self.setup_s
        if self.adds.any():
            least = np.minimum.reduceat(np.where(self.adds, starts, np.inf), self.first)
            starts = np.where(self.adds, least[self.job], starts)
        total = starts + done
        leaves = np.flatnonzero(self.stay >= 0)
        if leaves.size:
            stays = self.stay[leaves]
            work = np.minimum(done[leaves], done[stays]) if self.preemptive else done[leaves]
            total[leaves] = starting[stays] * self.pause_s[leaves] + starts[leaves] + work
        return np.minimum.reduceat(total, self.first)

    def on_types(self, weight: Floats) -> Floats:
        """Return for each mode the mean over its GPUs of a weight by GPU type; 0 without GPUs."""
        mean: Floats = np.append(weight, 0.0)[self.gpu_type]  # NO_GPU is -1, the last
        for mode, share in self.mixed.items():
            mean[mode] = np.sum(share * weight)
        return mean

    def gpu_density(self, speed: Floats, halved: bool) -> Density:
        """Return the GPUs held, each GPU of a type counted `speed[type]` times.

        With `halved` a job counts half while it shares its GPUs, as a pair holds them once, and the
        less of that and of what it holds alone for the same work.
        """
        factor, held = self.on_types(speed), self.gpus
        starting = working = factor
        if halved:
            fastest = np.maximum(self.beside, 1.0)
            half = 0.5 * fastest / np.where(self.shares, self.beside, 1.0)
            starting = np.where(self.shares, 0.5, 1.0) * factor
            working = np.where(self.shares, np.minimum(half, fastest), 1.0) * factor
        return Density(starting * held.starting, working * held.working, factor * held.most)


def tabulate(instance: Instance, preemptive: bool, replay: bool = False) -> ModeTable:
    """Return the modes of every job of a sound instance with jobs. With `preemptive` false, those
    of the plan class only: a running job continues to its end or is preempted now. With `replay`
    the attempts that fail are work, too.

    Raises InputError for a job that fits nowhere.
    """
    empty = EmptyCluster.of(instance)
    may_mix, mixes = preemptive and len(empty.types) > 1, False
    known: dict[object, int] = {}
    groups: list[list[RelaxedMode]] = []
    group_of: list[int] = []
    for job in instance.jobs:
        quota = instance.quotas.least(job.tenant)
        key = quota, demands(job), job.cores_in_place
        if key not in known:
            modes = relaxed_modes(empty, job, quota, mixes=may_mix)
            mixes = mixes or (may_mix and modes != relaxed_modes(empty, job, quota, mixes=False))
            known[key] = len(groups)
            groups.append([mode for mode in modes if _is_affordable(instance, mode)])
        group_of.append(known[key])
    lost_s = instance.lost_work_s if replay else {}
    return _fill(instance, empty, preemptive, mixes, groups, group_of, lost_s)


def _is_affordable(instance: Instance, mode: RelaxedMode) -> bool:
    have = instance.cluster.resources
    return all(
        amount - (mode.mixed_saves_w if name == POWER_CAP else 0.0) <= forgiven(have.get(name, 0.0))
        for name, amount in mode.resources.items()
    )


def _fill(
    instance: Instance,
    empty: EmptyCluster,
    preemptive: bool,
    mixes: bool,
    groups: list[list[RelaxedMode]],
    group_of: list[int],
    lost_s: Mapping[str, float],
) -> ModeTable:
    """Return the table of jobs each of which has the modes of a group; a running one has its own,
    which ends with the mode to stay."""
    jobs, position = instance.jobs, instance.position
    whole_work = np.array([job.work_s for job in jobs], np.float64)
    work = np.array(
        [instance.remaining_s(job) + lost_s.get(job.id, 0.0) for job in jobs], np.float64
    )
    ran_before = {*instance.running_job, *instance.suspended_job}
    setup = np.array([setup_s(job, job.id in ran_before) for job in jobs])
    pause = np.zeros(len(jobs))
    for entry in instance.running:
        j, job = position[entry.job], instance.job[entry.job]
        pause[j] = hold_to_save_s(job)
        if not preemptive:
            work[j] = remaining_after_preemption_s(instance, entry)
        leaves = may_ever_preempt(job, entry) if preemptive else may_preempt(instance, entry)
        elsewhere = groups[group_of[j]] if leaves else []
        group_of[j] = len(groups)
        groups.append([*elsewhere, _stay(instance, empty, entry, preemptive)])
    group, sizes = np.array(group_of), np.array([len(modes) for modes in groups])
    count = sizes[group]
    if count.min() == 0:
        raise InputError(f"job {jobs[int(count.argmin())].id} fits nowhere on the cluster")
    first = np.cumsum(count) - count
    own = np.repeat(np.arange(len(jobs)), count)
    row = (np.cumsum(sizes) - sizes)[group[own]] + np.arange(len(own)) - first[own]
    modes = list(chain.from_iterable(groups))
    mode_setup, mode_work, stay = setup[own], work[own], np.full(len(own), -1, np.int64)
    may_add = preemptive and len(empty.types) > 1
    adds = np.array([may_add and job.profile.mixing == "sum" for job in jobs])[own]
    mixed: dict[int, Floats] = {}
    for entry in instance.running:
        j = position[entry.job]
        at = int(first[j] + count[j]) - 1
        stay[int(first[j]) : at] = at
        mode_setup[at], mode_work[at], adds[at] = entry.setup_s, entry.remaining_s, False
        held = gpus_by_type(instance.cluster, entry.placement)
        if len(held) > 1:
            mixed[at] = np.array([held.get(name, 0) / entry.mode.gpus for name in empty.types])

    def by_mode(amounts: Sequence[float]) -> Floats:
        expanded: Floats = np.array(amounts, np.float64)[row]
        return expanded

    def column(name: str) -> Floats:
        return by_mode(list(map(attrgetter(name), modes)))

    def density(name: str) -> Density:
        return Density(*(column(f"{name}.{part}") for part in ("starting", "working", "most")))

    whole_s = column("whole_s")
    is_whole = (mode_work == whole_work[own]) & ~np.isnan(whole_s)
    return ModeTable(
        empty=empty,
        preemptive=preemptive,
        mixes=mixes or bool(mixed),
        adds=adds,
        mixed=mixed,
        first=first,
        job=own,
        gpu_type=column("gpu_type").astype(np.int64),
        gpus=density("gpus"),
        cores=density("cores"),
        power_w=column("power_w"),
        setup_s=mode_setup,
        run_s=np.where(is_whole, whole_s, mode_work / column("rate")),
        pause_s=np.where(stay >= 0, pause[own], 0.0),
        stay=stay,
        beside=np.array([rate_beside(job) for job in jobs])[own],
        resources={
            name: by_mode([mode.resources.get(name, 0.0) for mode in modes])
            for name in sorted({name for mode in modes for name in mode.resources})
        },
        capped_w=column("capped_w"),
    )


def _stay(
    instance: Instance, empty: EmptyCluster, running: Running, preemptive: bool
) -> RelaxedMode:
    """Return the mode in which a running job goes on where it is; in any plan one that changes its
    cores in place is as fast as with the best of its counts, for the fewest."""
    job, mode, placement = instance.job[running.job], running.mode, running.placement
    held = gpus_by_type(instance.cluster, placement)
    rate = placed_rate(instance, job, mode.unshared, placement) * fastest_sharing(job)
    watts = sum(power_w(job, mode, gpu_type, gpus) for gpu_type, gpus in held.items())
    gpu_type = empty.index[next(iter(held))] if held else NO_GPU
    cores = sum(slot.cpus for slot in placement)
    if preemptive and job.cores_in_place:
        for other in _in_place(job, mode):
            best = placed_rate(instance, job, other, placement) * fastest_sharing(job)
            rate, cores = max(rate, best), min(cores, sum(cpus(other, s.gpus) for s in placement))
    return fixed_mode(job, mode, gpu_type, rate, cores, watts / max(1, mode.gpus))


def _in_place(job: Job, mode: Mode) -> Iterator[Mode]:
    """Yield a mode with every number of cores for which a job may change its own in place, and a
    few more: all that it lists with as many GPUs."""
    if not job.modes:
        yield from (replace(mode, share_with=None, cpus_per_gpu=n) for n in core_levels(job))
    for own in job.modes:
        if own.gpus == mode.gpus:
            yield replace(
                mode,
                share_with=None,
                cpus_per_gpu=own.cpus_per_gpu,
                cpus=own.cpus,
                duration_s=own.duration_s,
            )
