"""Which jobs of a trace become jobs of the instance: those submitted in time, able to run, and the
first N of them."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from functools import cache
from math import ceil
from pathlib import Path

from ..errors import InputError
from ..frozen import record
from ..model import UNMEASURED, Cluster, Failure, Instance, Job, Profile, Tenant
from .imported import Imported
from .tables.dates import given_s

BEFORE = "submitted before --from"
AFTER = "submitted at --until or later"
NAMED_TWICE = "a job of this id came before"
NEVER = "can never run on this cluster"
NO_SUBMISSION = "no time of submission"
NEVER_RAN = "never ran: no start or no end"
NO_TIME = "ran for no time"
NEGATIVE = "end before the start"
NOTHING = "asks for neither GPUs nor cores"
WITHOUT_GPUS = "without GPUs"
FAILED_ATTEMPT = "failed attempt"
SHORTEST_S = 1e-3
"""No job of an instance is shorter."""
SHOWN_TENANTS = 20


@record
class Window:
    """The submission times that are read, in seconds of the trace: from `start_s`, before
    `end_s`."""

    start_s: float = -math.inf
    end_s: float = math.inf

    def outside(self, submit_s: float) -> str | None:
        """Return why a job submitted then is left out; None for one that is read."""
        if submit_s < self.start_s:
            return BEFORE
        return AFTER if submit_s >= self.end_s else None


EVER = Window()


def window(start: str | None, end: str | None, unix_start_s: float | None = None) -> Window:
    """Return the window for `--from` and `--until`: seconds of the trace, or dates where the Unix
    time of its second 0 is known. A date without a time zone is in UTC. Raises InputError."""
    span = Window(
        -math.inf if start is None else _instant("--from", start, unix_start_s),
        math.inf if end is None else _instant("--until", end, unix_start_s),
    )
    if span.start_s >= span.end_s:
        raise InputError(f"--from {start} is not before --until {end}; nothing would be read")
    return span


def _instant(flag: str, text: str, unix_start_s: float | None) -> float:
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(seconds):
            return seconds
    if unix_start_s is None:
        raise InputError(
            f"{flag} {text!r}: this trace has no dates; expected its seconds, as 86400"
        )
    return given_s(flag, text, UTC) - unix_start_s


def ran_s(start_s: float | None, end_s: float | None) -> float | str:
    """Return how long a job ran, or why that is not known."""
    if start_s is None or end_s is None:
        return NEVER_RAN
    if end_s <= start_s:
        return NEGATIVE if end_s < start_s else NO_TIME
    return round(end_s - start_s, 3)


@cache
def held_beside(gpus: int, cpus: int, memory_gib: float = 0.0) -> Profile:
    """Return the profile of a gang that holds these cores and this host memory in all, of which
    nothing else is known.

    Gangs with the same demands for each GPU share one object.
    """
    return _held(ceil(cpus / gpus), round(memory_gib / gpus, 3)) if gpus else UNMEASURED


@cache
def _held(cpus_per_gpu: int, memory_gib_per_gpu: float) -> Profile:
    if not cpus_per_gpu and not memory_gib_per_gpu:
        return UNMEASURED
    cores = {cpus_per_gpu: 1.0} if cpus_per_gpu else {}
    return Profile(cpus_per_gpu=cores, memory_gib_per_gpu=memory_gib_per_gpu)


def imported(
    path: Path,
    cluster: Cluster,
    entries: Iterable[Job | str],
    limit: int | None,
    *,
    name: str | None = None,
    span: Window = EVER,
    tenant: str | None = None,
    quotas: Mapping[str, int] | None = None,
    failed_s: Mapping[str, Sequence[float]] | None = None,
    own_clock: bool = False,
) -> Imported:
    """Return the instance of the first `limit` of the jobs, by submission, that can run on
    `cluster`; its clock starts with the first unless the trace's `own_clock` is kept.

    `entries` are the jobs of a trace in its order, and for each line without one the reason. Only
    jobs of `tenant` that are submitted within `span` are read. `quotas` are GPUs by tenant and
    `failed_s` the run times of a job's attempts that failed before the one that counts. Raises
    InputError where no job is left, and for a tenant without jobs.
    """
    dropped: Counter[str] = Counter()
    told = list(entries)
    read = len(told)
    inside = _inside(told, span, tenant, dropped)
    limits = tuple(Tenant(name=tenant, gpu_quota=most) for tenant, most in (quotas or {}).items())
    kept = _runnable(cluster, limits, inside, limit, dropped, by_reason=own_clock)
    if not kept:
        why = "; ".join(f"{reason}: {count}" for reason, count in dropped.items())
        reasons = f" ({why})" if why else ""
        raise InputError(f"{path}: none of the {read} jobs can be used{reasons}")
    if not own_clock:
        origin_s = kept[0].submit_s
        for job in kept:  # the readers made these jobs for here, nobody else has seen them yet
            object.__setattr__(job, "submit_s", round(job.submit_s - origin_s, 3))
    used = dict.fromkeys(job.tenant for job in kept if job.tenant is not None)
    instance = Instance(
        name=stem(path, ".csv") if name is None else name,
        cluster=cluster,
        jobs=tuple(kept),
        failures=tuple(
            Failure(job=job.id, work_s=work_s, kind=FAILED_ATTEMPT)
            for job in kept
            for work_s in (failed_s or {}).get(job.id, ())
        ),
        tenants=tuple(
            Tenant(name=tenant, gpu_quota=None if quotas is None else quotas.get(tenant))
            for tenant in (used if quotas is None else sorted(used))
        ),
    )
    return Imported(instance=instance, read=read, dropped=dict(dropped))


def _inside(
    entries: list[Job | str], span: Window, tenant: str | None, dropped: Counter[str]
) -> list[Job]:
    """Return the jobs of `tenant` that are submitted within `span`; the others are counted in
    `dropped`. Raises InputError for a tenant without jobs."""
    inside: list[Job] = []
    tenants: set[str | None] = set()
    for entry in entries:
        if isinstance(entry, str):
            dropped[entry] += 1
            continue
        tenants.add(entry.tenant)
        if tenant is not None and entry.tenant != tenant:
            dropped[f"of another tenant than {tenant}"] += 1
        elif (outside := span.outside(entry.submit_s)) is not None:
            dropped[outside] += 1
        else:
            inside.append(entry)
    if tenant is not None and tenant not in tenants:
        raise _no_such_tenant(tenant, sorted(name for name in tenants if name is not None))
    return inside


def _no_such_tenant(tenant: str, names: Sequence[str]) -> InputError:
    more = ", ..." if len(names) > SHOWN_TENANTS else ""
    known = f"the tenants are {', '.join(names[:SHOWN_TENANTS])}{more}"
    return InputError(
        f"--tenant {tenant!r}: no usable job is of it; "
        f"{known if names else 'the trace names no tenant'}"
    )


def _runnable(
    cluster: Cluster,
    tenants: tuple[Tenant, ...],
    jobs: list[Job],
    limit: int | None,
    dropped: Counter[str],
    *,
    by_reason: bool,
) -> list[Job]:
    """Return by submission the first `limit` of the jobs that can run on `cluster`; the others are
    counted in `dropped`, those that never can by reason or, together, under that of the first."""
    from ..physics.catalogue import Catalogue
    from ..physics.unschedulable import why_never

    catalogue = Catalogue.of(cluster, tenants)
    kept: dict[str, Job] = {}
    seen: set[str] = set()
    never, example = 0, ""
    for job in sorted(jobs, key=lambda job: job.submit_s):
        if job.id in seen:
            dropped[NAMED_TWICE] += 1
        elif (reason := why_never(catalogue, job)) is not None:
            never += 1
            example = example or f"{NEVER}, the first is {job.id}: {reason}"
            if by_reason:
                dropped[reason] += 1
        elif limit is not None and len(kept) >= limit:
            dropped[f"after the first {limit}"] += 1
        else:
            kept[job.id] = job
        seen.add(job.id)
    if never and not by_reason:
        dropped[example] = never
    return [*kept.values()]


def stem(path: Path, *suffixes: str) -> str:
    """Return the name of a file without `.gz` and then these endings."""
    name = path.name.removesuffix(".gz")
    for suffix in suffixes:
        name = name.removesuffix(suffix)
    return name
