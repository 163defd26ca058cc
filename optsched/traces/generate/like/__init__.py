"""Synthetic workloads fitted to published clusters: `generate("philly", jobs=1000, gpus=256,
seed=1)`.

One data file a cluster has the fitted numbers and says where they are from. Each aspect has a
random stream of its own, so that one option does not change what another one draws. The same
arguments give the same instance, byte for byte, under the same version of numpy.
"""

import math
from collections import Counter
from typing import Any

import numpy as np

from ....errors import InputError
from ....model import Cluster, Failure, Instance, Job, Profile, Tenant, gang
from ....physics.catalogue import catalogue_of
from ....physics.unschedulable import why_never
from ...profiles.attach import attach
from ..ranges import LONGEST_SPAN_DAYS, check_ranges
from .arrivals import DAY_S, relative_gaps, submit_times
from .distribution import Floats
from .failures import Attempt, failing_attempts
from .model import Group, Model, Row
from .nodes import scaled
from .population import Ints, Population, populate, run_times
from .published import MODELS


def generate(
    kind: str,
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    load: float | None = None,
    days: float | None = None,
    failures: bool = True,
    overheads: bool = True,
    quotas: bool = False,
    cluster: Cluster | None = None,
) -> Instance:
    """Return a workload like that of the cluster `kind` (a name in `MODELS`), on its nodes scaled
    to about `gpus` GPUs.

    `cluster` takes the place of the model's nodes. The last job is submitted such that all offer
    `load` times the work that the GPUs can do until then (`offered_load`), or after `days`; by
    default as many a day as on the real cluster, in proportion to the GPUs. Jobs have measured
    profiles (`attach`), users, commands and, where the real cluster has them, virtual clusters as
    tenants, with `quotas` of GPUs in proportion to the real ones (at least the largest gang). Gangs
    that no GPU type can hold are left out. `failures` False leaves out attempts that fail,
    `overheads` False makes starting, saving and restoring free.

    Raises InputError for arguments out of range.
    """
    if kind not in MODELS:
        raise InputError(f"generate: no cluster model {kind!r}; there are {', '.join(MODELS)}")
    check_ranges(jobs=jobs, gpus=gpus, seed=seed, load=load, days=days)
    if (gpus is None) == (cluster is None):
        raise InputError("generate: either gpus or a cluster must be given")
    if load is not None and days is not None:
        raise InputError("generate: load and days must not be given together")
    model = MODELS[kind]
    nodes = cluster or scaled(model, gpus or 0)
    rows = _fitting(model, nodes)
    span_s = DAY_S * (days or jobs * model.gpus / (model.rhythm.per_day * nodes.total_gpus))
    if load is None:
        _check_span(span_s)
    gap_rng, who_rng, run_rng, fail_rng, day_rng = np.random.default_rng(seed).spawn(5)
    gaps = relative_gaps(model.rhythm, jobs, gap_rng)
    population = populate(model, rows, gaps, who_rng)
    run_s = run_times(rows, population, run_rng)
    gangs = np.array([row.gpus for row in rows])[population.row]
    attempts = failing_attempts(model.failing, gangs, run_s, fail_rng) if failures else []
    profiles = _profiles(nodes, rows, population, run_s, seed, overheads)
    work = _gpu_seconds(gangs, run_s, attempts)
    if load is not None and work.sum():
        span_s = float(work.sum()) / (_capacity(nodes, population.command, profiles, work) * load)
        _check_span(span_s)
    made = _jobs(
        model, rows, population, profiles, submit_times(model.rhythm, gaps, span_s, day_rng), run_s
    )
    name = f"{kind}-{jobs}-jobs-{nodes.total_gpus}-gpus-seed-{seed}"
    return Instance(
        name=name,
        cluster=nodes,
        jobs=made,
        tenants=_tenants(model, nodes, made, quotas),
        failures=tuple(
            Failure(
                job=made[attempt.job].id,
                work_s=attempt.work_s,
                kept_s=attempt.kept_s,
                kind=attempt.kind,
            )
            for attempt in attempts
        ),
    )


def _check_span(span_s: float) -> None:
    if span_s > LONGEST_SPAN_DAYS * DAY_S:
        raise InputError(
            f"generate: the jobs would arrive over {span_s / DAY_S:,.0f} days; take fewer, or "
            "more GPUs"
        )


def offered_load(instance: Instance) -> float | None:
    """Return the GPU-seconds of work, that of failing attempts included, over what the GPUs can do
    until the last submission.

    A GPU type counts at the jobs' mean rate on it, weighted by work, 0 for jobs it cannot hold.
    None where all jobs are submitted at once, or none uses a GPU.
    """
    jobs = instance.jobs
    span_s = max((job.submit_s for job in jobs), default=0.0) - instance.now_s
    place = {profile: i for i, profile in enumerate(dict.fromkeys(job.profile for job in jobs))}
    gangs = np.array([gang(job) for job in jobs])
    position = {job.id: i for i, job in enumerate(jobs)}
    attempts = [
        Attempt(position[failure.job], failure.work_s, failure.kept_s, failure.kind or "")
        for failure in instance.failures
    ]
    work = _gpu_seconds(gangs, np.array([job.work_s for job in jobs]), attempts)
    if span_s <= 0 or not work.sum():
        return None
    which = np.array([place[job.profile] for job in jobs])
    return float(work.sum()) / (_capacity(instance.cluster, which, list(place), work) * span_s)


def _fitting(model: Model, nodes: Cluster) -> tuple[Row, ...]:
    """Return the rows that the cluster can hold: gangs of one GPU type, on one node where they
    cannot be split."""
    most = max(_gpus_by_type(nodes).values(), default=0)
    if not most:
        raise InputError("generate: the cluster has no GPUs; give it some")
    jobs = tuple(_job(str(i), row, 0, 0, 1.0) for i, row in enumerate(model.rows))
    catalogue = catalogue_of(Instance(cluster=nodes, jobs=jobs))
    return tuple(
        row
        for row, job in zip(model.rows, jobs, strict=True)
        if row.gpus <= most and why_never(catalogue, job) is None
    )


def _profiles(
    nodes: Cluster,
    rows: tuple[Row, ...],
    population: Population,
    run_s: Floats,
    seed: int,
    overheads: bool,
) -> list[Profile]:
    """Return the profile of each command: `attach` for one job of it, with the mean run time of
    all."""
    mean_s = np.bincount(population.command, weights=run_s) / np.bincount(population.command)
    sample = tuple(
        _job(str(i), rows[row], i, int(population.user_of[i]), float(mean_s[i]))
        for i, row in enumerate(population.row_of)
    )
    attached = attach(Instance(cluster=nodes, jobs=sample), seed, overheads=overheads)
    return [job.profile for job in attached.jobs]


def _jobs(
    model: Model,
    rows: tuple[Row, ...],
    population: Population,
    profiles: list[Profile],
    submit_s: Floats,
    run_s: Floats,
) -> tuple[Job, ...]:
    names = [group.name for group in model.groups]
    users = population.user_of.tolist()
    tenants = [names[group] for group in population.group_of] if names else None
    drawn = zip(
        submit_s.tolist(),
        run_s.tolist(),
        population.command.tolist(),
        population.row.tolist(),
        strict=True,
    )
    return tuple(
        _job(
            f"job-{i}",
            rows[row],
            command,
            users[command],
            duration_s,
            submit_s=at_s,
            tenant=None if tenants is None else tenants[users[command]],
            profile=profiles[command],
        )
        for i, (at_s, duration_s, command, row) in enumerate(drawn)
    )


def _job(id: str, row: Row, command: int, user: int, duration_s: float, **more: Any) -> Job:
    """Return a job of a command, with the row's profile unless `more` has another."""
    return Job(
        id=id,
        user=f"u{user}",
        command=f"{row.kind}-{command}",
        gpus=row.gpus,
        cpus=row.cpus,
        memory_gib=row.memory_gib,
        duration_s=duration_s,
        **{"profile": row.profile, **more},
    )


def _tenants(
    model: Model, nodes: Cluster, jobs: tuple[Job, ...], quotas: bool
) -> tuple[Tenant, ...]:
    """Return virtual clusters; quotas add up to the cluster's GPUs, unless a gang needs more."""
    total = sum(group.gpus for group in model.groups)

    def quota(group: Group) -> int:
        largest = max((gang(job) for job in jobs if job.tenant == group.name), default=0)
        return max(largest, math.ceil(group.gpus / total * nodes.total_gpus))

    return tuple(
        Tenant(name=group.name, gpu_quota=quota(group) if quotas else None)
        for group in model.groups
    )


def _gpu_seconds(gangs: Ints, run_s: Floats, attempts: list[Attempt]) -> Floats:
    """Return the GPU-seconds of each job on the reference GPU: all that it does, and what failing
    attempts lose."""
    seconds = run_s.astype(float)
    np.add.at(
        seconds,
        [attempt.job for attempt in attempts],
        [attempt.work_s - attempt.kept_s for attempt in attempts],
    )
    return np.asarray(gangs * seconds)


def _capacity(nodes: Cluster, which: Ints, profiles: list[Profile], work: Floats) -> float:
    """Return the reference GPU-seconds that the cluster does per second, its types at the jobs'
    mean rates; job `i` has the profile `which[i]`."""
    weight = np.bincount(which, weights=work, minlength=len(profiles))
    total = 0.0
    for gpu_type, gpus in _gpus_by_type(nodes).items():
        rates = np.array(
            [profile.rate.get(gpu_type or "", 0.0) if profile.rate else 1.0 for profile in profiles]
        )
        total += gpus * float(np.sum(rates * weight)) / float(weight.sum())
    return total


def _gpus_by_type(nodes: Cluster) -> Counter[str | None]:
    counts: Counter[str | None] = Counter()
    for node in nodes.nodes:
        counts[node.gpu_type] += node.gpus
    return counts


__all__ = ["MODELS", "Model", "generate", "offered_load"]
