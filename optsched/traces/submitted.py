"""Jobs as a trace tells of them: which ones to keep, and the instance that they make."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..model.cluster import Cluster, Tenant
from ..model.instance import Failure, Instance
from ..model.job import Job
from ..model.profile import UNMEASURED, Profile
from .imported import Imported
from .usable import NAMED_TWICE, NEVER, nothing_left, window

NO_SUBMISSION = "no time of submission"
NEVER_RAN = "never ran: no start or no end"
NO_TIME = "ran for no time"
NEGATIVE = "end before the start"
WITHOUT_GPUS = "without GPUs"
FAILED_ATTEMPT = "failed attempt"
SHOWN_TENANTS = 20


class Submitted(NamedTuple):
    """A job in a trace.

    `submit_s` is Unix time. `failed_s` are the run times of its attempts that failed, in order; the
    one that counts came after them and took `duration_s`.
    """

    id: str
    submit_s: float
    gpus: int
    duration_s: float
    cpus: int = 0
    memory_gib: float = 0.0
    user: str | None = None
    tenant: str | None = None
    command: str | None = None
    profile: Profile = UNMEASURED
    failed_s: tuple[float, ...] = ()


@cache
def held_beside(gpus: int, cpus: int, memory_gib: float = 0.0) -> Profile:
    """The profile of a gang that holds these cores and this host memory in all, of which nothing
    else is known.

    Gangs with the same demands for each GPU share one object.
    """
    return _held(ceil(cpus / gpus), round(memory_gib / gpus, 3))


@cache
def _held(cpus_per_gpu: int, memory_gib_per_gpu: float) -> Profile:
    if not cpus_per_gpu and not memory_gib_per_gpu:
        return UNMEASURED
    cores = {cpus_per_gpu: 1.0} if cpus_per_gpu else {}
    return Profile(cpus_per_gpu=cores, memory_gib_per_gpu=memory_gib_per_gpu)


def ran_s(start_s: float | None, end_s: float | None) -> float | str:
    """How long a job ran, or why that is not known."""
    if start_s is None or end_s is None:
        return NEVER_RAN
    if end_s <= start_s:
        return NEGATIVE if end_s < start_s else NO_TIME
    return round(end_s - start_s, 3)


def chosen(
    entries: Sequence[Submitted | str],
    dropped: Counter[str],
    *,
    start: str | None,
    end: str | None,
    tenant: str | None = None,
) -> list[Submitted]:
    """Return the jobs of `tenant` submitted from `start` on and before `end`, in order of
    submission.

    `entries` are jobs, and for each line without one the reason. The others are counted in
    `dropped`. Raises InputError for what is no date, and for a tenant
    without jobs.
    """
    span = window(start, end, 0.0)
    kept = []
    tenants = set()
    dropped.update(entry for entry in entries if isinstance(entry, str))
    for job in entries:
        if isinstance(job, str):
            continue
        tenants.add(job.tenant)
        if tenant is not None and job.tenant != tenant:
            dropped[f"of another tenant than {tenant}"] += 1
        elif (outside := span.outside(job.submit_s)) is not None:
            dropped[outside] += 1
        else:
            kept.append(job)
    if tenant is not None and tenant not in tenants:
        names = sorted(name for name in tenants if name is not None)
        more = ", ..." if len(names) > SHOWN_TENANTS else ""
        known = (
            f"the tenants are {', '.join(names[:SHOWN_TENANTS])}{more}"
            if names
            else "the trace names no tenant"
        )
        raise InputError(f"--tenant {tenant!r}: no usable job is of it; {known}")
    kept.sort(key=lambda job: job.submit_s)
    return kept


def instance_of(
    path: Path,
    name: str,
    cluster: Cluster,
    submitted: Iterable[Submitted],
    dropped: Counter[str],
    *,
    read: int,
    jobs: int | None,
    quotas: Mapping[str, int] | None = None,
) -> Imported:
    """The instance of the first `jobs` of `submitted` that can run on the cluster; its clock starts
    with the first.

    `quotas` are GPUs by tenant. The others are counted in `dropped`. Raises InputError where no job
    is left.
    """
    from ..physics.catalogue import Catalogue
    from ..physics.unschedulable import why_never

    quotas = quotas or {}
    with_quota = tuple(Tenant(name=tenant, gpu_quota=quota) for tenant, quota in quotas.items())
    kept: list[Job] = []
    failures: list[Failure] = []
    ids: set[str] = set()
    known: dict[object, str | None] = {}
    origin_s, never, example = 0.0, 0, ""
    for entry in submitted:
        # jobs of equal demands share their profile, so that there are few keys
        key = (
            entry.gpus,
            entry.cpus,
            entry.memory_gib,
            entry.profile,
            entry.tenant if quotas else None,
        )
        if key not in known:
            known[key] = why_never(Catalogue.of(cluster, with_quota), _job(entry, 0.0))
        if (reason := known[key]) is not None:
            never += 1
            example = example or f"{NEVER}, the first is {entry.id}: {reason}"
        elif entry.id in ids:
            dropped[NAMED_TWICE] += 1
        elif jobs is not None and len(kept) >= jobs:
            dropped[f"after the first {jobs}"] += 1
        else:
            origin_s = origin_s if kept else entry.submit_s
            ids.add(entry.id)
            kept.append(_job(entry, origin_s))
            failures += [
                Failure(job=entry.id, work_s=work_s, kind=FAILED_ATTEMPT)
                for work_s in entry.failed_s
            ]
    if never:
        dropped[example] = never
    if not kept:
        raise nothing_left(path, dropped, read)
    used = sorted({job.tenant for job in kept if job.tenant is not None})
    instance = Instance(
        name=name,
        cluster=cluster,
        jobs=tuple(kept),
        failures=tuple(failures),
        tenants=tuple(Tenant(name=tenant, gpu_quota=quotas.get(tenant)) for tenant in used),
    )
    return Imported(instance=instance, read=read, dropped=dict(dropped))


def _job(entry: Submitted, origin_s: float) -> Job:
    return Job(
        id=entry.id,
        submit_s=round(entry.submit_s - origin_s, 3),
        tenant=entry.tenant,
        user=entry.user,
        command=entry.command,
        gpus=entry.gpus,
        cpus=0 if entry.gpus else entry.cpus,
        memory_gib=0.0 if entry.gpus else entry.memory_gib,
        duration_s=entry.duration_s,
        profile=entry.profile,
    )
