"""Which jobs of a trace become jobs of the instance: those submitted in time, able to run, and the
first N of them."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC

from ..errors import InputError
from ..model.cluster import Cluster
from ..model.job import Job
from .imported import END, START
from .tables.dates import given_s

BEFORE = "submitted before --from"
AFTER = "submitted at --until or later"
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
        -math.inf if start is None else _instant(START.flag, start, unix_start_s),
        math.inf if end is None else _instant(END.flag, end, unix_start_s),
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


def usable(
    cluster: Cluster, found: Iterable[Job], limit: int | None, dropped: Counter[str], source: str
) -> tuple[Job, ...]:
    """By submission the first `limit` of the jobs that can run on `cluster`; the others are counted
    in `dropped`.

    The clock of an instance starts with its first job. Raises InputError where none is left.
    """
    from ..physics.catalogue import Catalogue
    from ..physics.unschedulable import why_never

    kept: list[Job] = []
    never, example = 0, ""
    for job in sorted(found, key=lambda job: job.submit_s):
        if (reason := why_never(Catalogue.of(cluster), job)) is not None:
            never += 1
            example = example or f"{NEVER}, the first is {job.id}: {reason}"
        elif limit is not None and len(kept) >= limit:
            dropped[f"after the first {limit}"] += 1
        else:
            kept.append(job)
    if never:
        dropped[example] = never
    if not kept:
        why = (
            "; ".join(f"{reason}: {count}" for reason, count in dropped.items()) or "it lists none"
        )
        raise InputError(f"{source}: no job can be used ({why})")
    origin_s = kept[0].submit_s
    for job in kept:  # the readers made these jobs for here, nobody else has seen them yet
        object.__setattr__(job, "submit_s", round(job.submit_s - origin_s, 3))
    return tuple(kept)
