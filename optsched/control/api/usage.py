"""Use over time: the GPUs that tenants or users held, and how many of their jobs waited."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..controller import Controller
from ..journal.state import LiveJob
from .answers import Share, Usage
from .bodies import UsageQuery
from .peer import Caller
from .service import Service, between_turns

Stretch = tuple[float, float, int]
"""From when to when, and how much it counts: the GPUs that were held, or a job that waited."""


def usage(service: Service, caller: Caller, query: UsageQuery) -> Usage:
    """Return what was held and who waited in the last hours, on the average of each interval."""
    now_s, stretches = _stretches(service, caller, query)
    from_s, step_s = now_s - 3600.0 * query.hours, 3600.0 * query.hours / query.intervals
    edges = np.arange(query.intervals + 1, dtype=np.float64) * step_s
    shares = []
    for name, (held, waits) in stretches.items():
        gpus, waiting = (_means(own, from_s, edges) for own in (held, waits))
        shares.append(Share(name=name, gpus=gpus, waiting=waiting))
    shares.sort(key=lambda share: (-sum(share.gpus), share.name or ""))
    return Usage(from_s=from_s, now_s=now_s, step_s=step_s, shares=tuple(shares))


@between_turns
def _stretches(
    service: Service, controller: Controller, caller: Caller, query: UsageQuery
) -> tuple[float, dict[str | None, tuple[list[Stretch], list[Stretch]]]]:
    """Return the present, and by name when GPUs were held and when jobs waited."""
    now_s = controller.clock.now_s()
    from_s = now_s - 3600.0 * query.hours
    found: dict[str | None, tuple[list[Stretch], list[Stretch]]] = defaultdict(lambda: ([], []))
    for job in controller.state.jobs.values():
        if job.finished_s is not None and job.finished_s < from_s:
            continue
        noun = job.submission.job
        name = noun.tenant if query.by == "tenant" else noun.user
        held, waits = found[name if caller.sees(job) else None]
        for begin_s, end_s, gpus, holds in _of_job(job, now_s):
            if end_s > from_s:
                (held if holds else waits).append((begin_s, end_s, gpus))
    return now_s, found


def _of_job(job: LiveJob, now_s: float) -> Iterator[tuple[float, float, int, bool]]:
    """Yield the parts of a job's life up to now: from when to when, how much it counts, and whether
    it held something then."""
    at_s = job.submit_s
    for attempt in job.attempts:
        known_s = now_s if attempt.ended_s is None else attempt.ended_s
        end_s = known_s if attempt.end_s is None else min(known_s, attempt.end_s)
        yield at_s, attempt.intended_s, 1, False
        yield attempt.intended_s, end_s, sum(slot.gpus for slot in attempt.placement), True
        at_s = end_s
    if job.finished_s is not None:
        yield at_s, job.finished_s, 1, False
    elif job.held is None and job.live is None:
        yield at_s, now_s, 1, False


def _means(
    stretches: list[Stretch], from_s: float, edges: NDArray[np.float64]
) -> tuple[float, ...]:
    """Return how much there was on the average between each two `edges`, seconds after `from_s`."""
    if not stretches:
        return (0.0,) * (len(edges) - 1)
    begins, ends, amounts = np.array(stretches, dtype=float).T
    begins = np.maximum(begins - from_s, 0.0)
    ends = np.maximum(ends - from_s, begins)
    so_far = _since(begins, amounts, edges) - _since(ends, amounts, edges)
    means = np.diff(so_far) / np.diff(edges)
    return tuple(float(mean) for mean in np.round(np.maximum(means, 0.0), 4))


def _since(
    at_s: NDArray[np.float64], amounts: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return, up to each edge, the amounts times how long ago each was added."""
    order = np.argsort(at_s)
    added = np.concatenate(([0.0], np.cumsum(amounts[order])))
    moments = np.concatenate(([0.0], np.cumsum(amounts[order] * at_s[order])))
    many = np.searchsorted(at_s[order], edges)
    total: NDArray[np.float64] = edges * added[many] - moments[many]
    return total
