"""Which jobs of a trace become jobs of the instance: those submitted in time, able to run, and the
first N of them."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from ..errors import InputError
from ..model.cluster import Cluster, Tenant
from ..model.instance import Instance
from ..model.job import Job
from .imported import Imported
from .tables.dates import given_s

BEFORE = "submitted before --from"
AFTER = "submitted at --until or later"
NAMED_TWICE = "a job of this id came before"
NEVER = "can never run on this cluster"


@dataclass(frozen=True, slots=True)
class Window:
    """The submission times that are read, in seconds of the trace: from `start_s`, before
    `end_s`."""

    start_s: float = -math.inf
    end_s: float = math.inf

    def outside(self, submit_s: float) -> str | None:
        """Why a job submitted then is left out; None for one that is read."""
        if submit_s < self.start_s:
            return BEFORE
        return AFTER if submit_s >= self.end_s else None


def window(start: str | None, end: str | None, unix_start_s: float | None = None) -> Window:
    """The window for `--from` and `--until`: seconds of the trace, or dates where the Unix time of
    its second 0 is known. A date without a time zone is in UTC. Raises InputError."""
    found = Window(
        -math.inf if start is None else _instant("--from", start, unix_start_s),
        math.inf if end is None else _instant("--until", end, unix_start_s),
    )
    if found.start_s >= found.end_s:
        raise InputError(f"--from {start} is not before --until {end}; nothing would be read")
    return found


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


def runnable(
    cluster: Cluster,
    found: Iterable[Job],
    limit: int | None,
    dropped: Counter[str],
    *,
    by_reason: bool = True,
) -> list[Job]:
    """Return by submission the first `limit` of the jobs that can run on `cluster`; the others are
    counted in `dropped`, those that never can by reason or, together, under that of the first."""
    from ..physics.catalogue import Catalogue
    from ..physics.unschedulable import why_never

    kept: list[Job] = []
    never, example = 0, ""
    for job in sorted(found, key=lambda job: job.submit_s):
        if (reason := why_never(Catalogue.of(cluster), job)) is not None:
            if by_reason:
                dropped[reason] += 1
            never += 1
            example = example or f"{NEVER}, the first is {job.id}: {reason}"
        elif limit is not None and len(kept) >= limit:
            dropped[f"after the first {limit}"] += 1
        else:
            kept.append(job)
    if never and not by_reason:
        dropped[example] = never
    return kept


def nothing_left(source: Path, dropped: Mapping[str, int], read: int | None = None) -> InputError:
    """Return the error that none of the jobs, `read` of them, can be used, and why not."""
    why = "; ".join(f"{reason}: {count}" for reason, count in dropped.items())
    if read is None:
        return InputError(f"{source}: no job can be used ({why or 'it lists none'})")
    reasons = f" ({why})" if why else ""
    return InputError(f"{source}: none of the {read} jobs can be used{reasons}")


def imported(
    path: Path,
    cluster: Cluster,
    entries: Iterable[Job | str],
    limit: int | None,
    *,
    name: str | None = None,
    twice: str = NAMED_TWICE,
) -> Imported:
    """Return the instance of the first `limit` of the jobs that can run on `cluster`; its clock
    starts with the first.

    `entries` are the jobs of a trace in its order, and for each line without one the reason. Raises
    InputError where no job is left.
    """
    dropped: Counter[str] = Counter()
    found: dict[str, Job] = {}
    count = 0
    for entry in entries:
        count += 1
        if isinstance(entry, str):
            dropped[entry] += 1
        elif found.setdefault(entry.id, entry) is not entry:
            dropped[twice] += 1
    kept = runnable(cluster, found.values(), limit, dropped, by_reason=False)
    if not kept:
        raise nothing_left(path, dropped)
    origin_s = kept[0].submit_s
    for job in kept:  # the readers made these jobs for here, nobody else has seen them yet
        object.__setattr__(job, "submit_s", round(job.submit_s - origin_s, 3))
    tenants = dict.fromkeys(job.tenant for job in kept if job.tenant is not None)
    instance = Instance(
        name=stem(path, ".csv") if name is None else name,
        cluster=cluster,
        jobs=tuple(kept),
        tenants=tuple(Tenant(name=tenant) for tenant in tenants),
    )
    return Imported(instance=instance, read=count, dropped=dict(dropped))


def stem(path: Path, *suffixes: str) -> str:
    """Return the name of a file without `.gz` and then these endings."""
    name = path.name.removesuffix(".gz")
    for suffix in suffixes:
        name = name.removesuffix(suffix)
    return name
