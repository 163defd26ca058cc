"""Checks that every other one relies on, and the order between jobs."""

import math
from collections.abc import Iterator

from ..model import Instance, JobPlan, Plan
from ..physics import TIME_TOLERANCE_S
from .violation import Violation, broken


def structure(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check for known jobs and nodes, one entry a job, finite times."""
    seen: set[str] = set()
    for entry in plan.jobs:
        if entry.id not in instance.job:
            yield Violation("unknown job", f"job {entry.id} is not in the instance", entry.id)
        elif entry.id in seen:
            yield Violation(
                "duplicate job", f"job {entry.id} has two entries in the plan", entry.id
            )
        seen.add(entry.id)
        if not entry.segments:
            yield Violation(
                "no segments", f"job {entry.id} has no segments, so it never runs", entry.id
            )
        yield from _segments(instance, entry)
    for job in instance.jobs:
        if job.id not in seen:
            yield Violation(
                "no segments", f"job {job.id} is missing from the plan, so it never runs", job.id
            )


def _segments(instance: Instance, entry: JobPlan) -> Iterator[Violation]:
    for i, segment in enumerate(entry.segments):
        at = f"at {segment.start_s:.12g} s"
        if not (math.isfinite(segment.start_s) and math.isfinite(segment.end_s)):
            message = (
                f"job {entry.id}: segment {i + 1} goes from {segment.start_s:.12g} s to "
                f"{segment.end_s:.12g} s, which are not both finite"
            )
            yield Violation("time", message, entry.id, None, segment.start_s)
        for slot in segment.placement:
            if slot.node not in instance.cluster.node:
                says = f"is placed {at} on node {slot.node}, which does not exist"
                yield broken("unknown node", entry.id, says, segment.start_s, slot.node)
        mode = segment.mode
        for partner in (*mode.shared_gpus, *([mode.share_with] if mode.share_with else [])):
            if partner not in instance.job or partner == entry.id:
                why = "which is itself" if partner == entry.id else "which is not in the instance"
                says = f"shares GPUs {at} with {partner}, {why}"
                yield broken("sharing", entry.id, says, segment.start_s)
        if mode.shared_gpus:
            whole = all(type(gpus) is int and gpus > 0 for gpus in mode.shared_gpus.values())
            if mode.share_with is not None or not whole:
                says = f"does not share a whole number of its GPUs {at}, or all of them as well"
                yield broken("sharing", entry.id, says, segment.start_s)


def precedence(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check that no job starts before all its predecessors have completed."""
    entries = {entry.id: entry for entry in plan.jobs}
    for job in instance.jobs:
        start_s = entries[job.id].segments[0].start_s
        for before in job.after:
            if start_s < entries[before].completion_s - TIME_TOLERANCE_S:
                completes = f"before {before} completes at {entries[before].completion_s:.12g} s"
                says = f"starts at {start_s:.12g} s, {completes}"
                yield broken("precedence", job.id, says, start_s)
