"""A job's segments add up to its work, with every start, stop and lost second paid for."""

import math
from collections.abc import Iterator
from typing import Literal

from ..model import Decision, Instance, Job, JobPlan, Running, Segment
from ..physics import (
    TIME_TOLERANCE_S,
    hold_to_save_s,
    lost_s,
    placed_rate,
    remaining_after_preemption_s,
    runs_out_of_memory_s,
    setup_s,
    unsaved_s,
)
from .contention import Crowding
from .fetches import Fetches
from .segments import check_segment, same_size, same_stay
from .violation import Violation, broken

WORK_TOLERANCE = 1e-9
"""Share of a job's work that counts as rounding."""

End = Literal["completes", "preempted", "failure", "outage", "out_of_memory"]
_AN = {"failure": "a failure", "outage": "an outage", "out_of_memory": "want of GPU memory"}

Stretch = list[Segment]
"""Segments in which a job goes on without stopping: only its sharing partner, or the cores that it
changes in place, change between them."""


def check_job(
    instance: Instance, entry: JobPlan, crowding: Crowding, fetches: Fetches, *, replay: bool
) -> Iterator[Violation]:
    """Check each segment, then what they add up to, then the decision they are said to be."""
    job = instance.job[entry.id]
    kept: list[Segment] = []
    if stays_first(instance, entry):
        size = instance.running_job[entry.id].mode.size
        first = stretches_of(job, entry.segments)[0]
        kept = [segment for segment in first if segment.mode.size == size]
    before_s = -math.inf
    violations: list[Violation] = []
    for segment in entry.segments:
        is_kept = any(segment is own for own in kept)
        violations.extend(check_segment(instance, job, segment, before_s, is_kept))
        before_s = segment.end_s
    yield from violations
    if violations:
        return
    yield from _progress(instance, job, entry, crowding, fetches, replay)
    expected = decision_now(instance, job, entry.segments)
    if entry.decision != expected:
        said = f"is said to {entry.decision} at {instance.now_s:.12g} s"
        says = f"{said}, its segments say {expected}"
        yield broken("decision", job.id, says, instance.now_s)


def decision_now(instance: Instance, job: Job, segments: tuple[Segment, ...]) -> Decision:
    """Return what a plan's segments mean for `job` at `now_s`."""
    entry = instance.running_job.get(job.id)
    stretches = stretches_of(job, segments)
    first = segments[0]
    starts_now = first.start_s <= instance.now_s + TIME_TOLERANCE_S
    if entry is None:
        if not starts_now:
            return "wait"
        return "resume" if job.id in instance.suspended_job else "start"
    if _stays(instance, entry, first):
        if not _only_saves(job, stretches):
            return "continue"
        following = stretches[1][0]
        at_once = following.start_s <= stretches[0][-1].end_s + TIME_TOLERANCE_S
    else:
        following, at_once = first, starts_now
    if not at_once:
        return "preempt"
    return "migrate" if same_size(entry.mode, following.mode) else "resize"


def _stays(instance: Instance, entry: Running, first: Segment) -> bool:
    """Return whether a running job's first segment holds at `now_s` what the job holds already."""
    return first.start_s <= instance.now_s + TIME_TOLERANCE_S and same_stay(
        instance.job[entry.job], entry.mode, entry.placement, first.mode, first.placement
    )


def stretches_of(job: Job, segments: tuple[Segment, ...]) -> list[Stretch]:
    """Return the segments of a job by stay."""
    stretches: list[Stretch] = []
    for segment in segments:
        last = stretches[-1][-1] if stretches else None
        if (
            last is not None
            and abs(segment.start_s - last.end_s) <= TIME_TOLERANCE_S
            and same_stay(job, last.mode, last.placement, segment.mode, segment.placement)
        ):
            stretches[-1].append(segment)
        else:
            stretches.append([segment])
    return stretches


def stays_first(instance: Instance, entry: JobPlan) -> bool:
    """Return whether a job runs already and goes on as it does."""
    running = instance.running_job.get(entry.id)
    return running is not None and _stays(instance, running, entry.segments[0])


def starts(instance: Instance, entry: JobPlan) -> list[Segment]:
    """Return the segments with which a job starts or comes back."""
    stays = stays_first(instance, entry)
    stretches = stretches_of(instance.job[entry.id], entry.segments)
    return [stretch[0] for stretch in stretches[1 if stays else 0 :]]


def goes_on_at_once(job: Job, entry: JobPlan, segment: Segment) -> bool:
    """Return whether another segment continues this one, beside another job or alone."""
    return not any(stretch[-1] is segment for stretch in stretches_of(job, entry.segments))


def _only_saves(job: Job, stretches: list[Stretch]) -> bool:
    """Return whether the first stretch of a running job is nothing but the checkpoint before its
    preemption."""
    length_s = stretches[0][-1].end_s - stretches[0][0].start_s
    planned = len(stretches) > 1 and stretches[0][-1].stopped_by is None
    return planned and length_s <= hold_to_save_s(job) + TIME_TOLERANCE_S


def _node(segment: Segment) -> str | None:
    return segment.placement[0].node if segment.placement else None


def _on(node: str | None) -> str:
    return "" if node is None else f" on node {node}"


def _at_node(rule: str, job: Job, node: str | None, says: str, time_s: float) -> Violation:
    return Violation(rule, f"job {job.id}{_on(node)} {says}", job.id, node, time_s)


def fills_memory_s(instance: Instance, entry: JobPlan, segment: Segment) -> float | None:
    """Return how long `segment` may last beside a job with which it needs more memory than its GPUs
    have; None where it does not begin a stay, whose memory was filled before."""
    job, running = instance.job[entry.id], instance.running_job.get(entry.id)
    first = entry.segments[0]
    ran_before = segment is not first or running is not None or entry.id in instance.suspended_job
    goes_on = segment is first and running is not None and _stays(instance, running, first)
    if goes_on or not any(stretch[0] is segment for stretch in stretches_of(job, entry.segments)):
        return None
    return runs_out_of_memory_s(job, ran_before)


def _progress(
    instance: Instance, job: Job, entry: JobPlan, crowding: Crowding, fetches: Fetches, replay: bool
) -> Iterator[Violation]:
    running = instance.running_job.get(job.id)
    suspended = instance.suspended_job.get(job.id)
    remaining = instance.remaining_s(job)
    past = running.preemptions if running else suspended.preemptions if suspended else 0
    preemptions = past
    stretches = stretches_of(job, entry.segments)
    goes_on = (
        running if running is not None and _stays(instance, running, entry.segments[0]) else None
    )
    if running is not None and (goes_on is None or _only_saves(job, stretches)):
        saves_s = 0.0 if goes_on is None else stretches[0][-1].end_s - stretches[0][0].start_s
        yield from _preempted_now(instance, job, running, saves_s)
        remaining = remaining_after_preemption_s(instance, running)
        preemptions += 1
        stretches = stretches if goes_on is None else stretches[1:]
        goes_on = None
    ran_before = running is not None or suspended is not None
    failing = list(instance.attempts.get(job.id, ()))
    whole_s = job.work_s
    if failing:
        remaining = whole_s = failing[0].work_s
    for i, stretch in enumerate(stretches):
        last = i == len(stretches) - 1
        ends: End = "completes" if last else stretch[-1].stopped_by or "preempted"
        started_s = stretch[0].start_s
        overhead_s = setup_s(job, ran_before) + fetches.get((job.id, started_s), 0.0)
        worked: list[
            tuple[float, float]
        ] = []  # seconds and rate since the last checkpoint or start
        if goes_on is not None:
            started_s, overhead_s = goes_on.started_s, goes_on.setup_s
            rate = placed_rate(instance, job, goes_on.mode, goes_on.placement)
            worked.append((unsaved_s(goes_on, instance.now_s), rate))
        goes_on, ran_before = None, True
        wrong = _incident(instance, stretch, last, bool(failing))
        if wrong is None and ends == "out_of_memory":
            wrong = _out_of_memory(instance, entry, stretch[-1], replay)
            if wrong is None:
                continue
        if wrong is not None:
            end_s = stretch[-1].end_s
            says = f"{wrong} at {end_s:.12g} s"
            yield _at_node("incident", job, _node(stretch[-1]), says, end_s)
            return
        before = len(worked)
        violations = list(
            _stretch(instance, job, stretch, crowding, overhead_s, ends, remaining, whole_s, worked)
        )
        if violations:
            yield from violations
            return
        remaining -= math.fsum(seconds * rate for seconds, rate in worked[before:])
        if ends == "failure":
            failing.pop(0)
            kept_s = (
                math.fsum(failed.kept_s for failed in instance.attempts[job.id])
                if not failing
                else 0.0
            )
            remaining = whole_s = failing[0].work_s if failing else job.work_s - kept_s
        elif ends == "outage":
            remaining += min(_lost_in_outage_s(job, worked), whole_s - remaining)
        elif not last:
            preemptions += 1
            stopped_s = stretch[-1].end_s - hold_to_save_s(job)
            yield from _may_stop(job, _node(stretch[-1]), started_s, stopped_s)
            remaining += min(_lost_work_s(job, worked), whole_s - remaining)
    # What is past counts, but no plan can undo it: a job that was stopped too often only must not
    # be stopped again.
    if job.max_preemptions is not None and preemptions > max(past, job.max_preemptions):
        says = f"is preempted {preemptions} times by {entry.completion_s:.12g} s"
        allowed = f"{job.max_preemptions} are allowed"
        yield broken("preemptions", job.id, f"{says}, {allowed}", entry.completion_s)


def _incident(instance: Instance, stretch: Stretch, last: bool, fails: bool) -> str | None:
    """Return what is wrong with the end of a stretch: where it was not planned it is an incident of
    the instance, and none of those is missing."""
    end = stretch[-1]
    if any(segment.stopped_by is not None for segment in stretch[:-1]):
        return "is stopped and goes on at once"
    if last and end.stopped_by is not None:
        return f"is stopped by {_AN[end.stopped_by]} and never completes"
    if last and fails:
        return "completes in an attempt that fails"
    if end.stopped_by == "failure" and not fails:
        return "is stopped by a failure that the instance does not have"
    if end.stopped_by == "outage" and not any(
        abs(outage.start_s - end.end_s) <= TIME_TOLERANCE_S
        for slot in end.placement
        for outage in instance.node_outages.get(slot.node, ())
    ):
        return "is stopped by an outage, but none of its nodes is lost then"
    return None


def _out_of_memory(instance: Instance, entry: JobPlan, end: Segment, replay: bool) -> str | None:
    """Return what is wrong with a start that was stopped by want of GPU memory: what it did counts
    for nothing, so nothing else is checked."""
    partner = end.mode.share_with
    after_s, ran_s = fills_memory_s(instance, entry, end), end.end_s - end.start_s
    stopped = "is stopped by want of GPU memory"
    if not replay:
        return f"{stopped}, which no plan may intend,"
    if partner is None:  # what the two need together is looked at beside all pairs
        return f"{stopped}, but that suffices"
    if after_s is None:
        return f"{stopped}, which it had filled before,"
    if abs(ran_s - after_s) > TIME_TOLERANCE_S:
        return f"{stopped} {ran_s:.12g} s after its start, not {after_s:.12g} s,"
    return None


def _stretch(
    instance: Instance,
    job: Job,
    stretch: Stretch,
    crowding: Crowding,
    overhead_s: float,
    ends: End,
    remaining: float,
    whole_s: float,
    worked: list[tuple[float, float]],
) -> Iterator[Violation]:
    """Check the work done in a stretch, added to `worked` piece by piece; ends at its first
    violation."""
    start_s, end_s = stretch[0].start_s, stretch[-1].end_s
    from_s, until_s = (
        start_s + overhead_s,
        end_s - (hold_to_save_s(job) if ends == "preempted" else 0.0),
    )
    if until_s - from_s < -TIME_TOLERANCE_S and ends != "outage":
        holds = f"holds its resources from {start_s:.12g} to {end_s:.12g} s"
        says = f"{holds}, which is shorter than its start-up, restore and checkpoint"
        yield _at_node("overhead", job, _node(stretch[0]), says, start_s)
        return
    # rounding of the instants at which jobs on the same channels start, two tolerances each
    others = 0.0
    for segment in stretch:
        node = _node(segment)
        rate = placed_rate(instance, job, segment.mode, segment.placement)
        if rate <= 0:
            says = f"makes no progress{_on(node)} at {segment.start_s:.12g} s"
            yield broken("rate", job.id, says, segment.start_s, node)
            return
        pieces = crowding.pieces(
            job, segment, max(segment.start_s, from_s), min(segment.end_s, until_s)
        )
        for seconds, slower in pieces:
            worked.append((seconds, rate / slower))
            remaining -= seconds * rate / slower
        rounding = TIME_TOLERANCE_S * rate + WORK_TOLERANCE * whole_s
        others += 2 * TIME_TOLERANCE_S * rate * (len(pieces) - 1)
        at_end = segment is stretch[-1]
        # When its node is lost a job may have been saving, which the plan does not tell.
        saving = hold_to_save_s(job) * rate if ends == "outage" else 0.0
        finishes = ends in ("completes", "failure")
        what = None
        if remaining < -rounding - saving - others:
            what = f"still holds its resources{_on(node)} at {segment.end_s:.12g} s although its work is done"  # noqa: E501
        elif at_end and ends == "preempted" and remaining <= rounding:
            what = f"stops{_on(node)} at {segment.end_s:.12g} s and starts again although its work is done"  # noqa: E501
        elif at_end and finishes and remaining > rounding + others:
            what = (
                f"ends{_on(node)} at {segment.end_s:.12g} s with {remaining:.6g} s of its "
                f"{whole_s:.12g} s of reference work left"
            )
        if what is not None:
            yield broken("work", job.id, what, segment.end_s, node)
            return


def _lost_in_outage_s(job: Job, worked: list[tuple[float, float]]) -> float:
    """Return the reference work lost with a node: what no checkpoint holds, on demand there is none
    in a stay."""
    if job.profile.checkpoint_every_s is not None:
        return _lost_work_s(job, worked)
    return math.fsum(seconds * rate for seconds, rate in worked)


def _lost_work_s(job: Job, worked: list[tuple[float, float]]) -> float:
    """Return the reference work lost by a stop: that of the last seconds, which no periodic
    checkpoint holds."""
    lost = lost_s(job, math.fsum(seconds for seconds, _ in worked))
    work = 0.0
    for seconds, rate in reversed(worked):
        part = min(lost, seconds)
        work += part * rate
        lost -= part
    return work


def _preempted_now(
    instance: Instance, job: Job, running: Running, saves_s: float
) -> Iterator[Violation]:
    """Check a running job that does not continue: allowed to stop, and saving on its GPUs for
    `saves_s` first."""
    node = running.placement[0].node if running.placement else None
    now_s, hold_s = instance.now_s, hold_to_save_s(job)
    yield from _may_stop(job, node, running.started_s, now_s)
    if hold_s - saves_s > TIME_TOLERANCE_S:
        gives_up = f"gives up its resources{_on(node)} at {now_s + saves_s:.12g} s"
        says = f"{gives_up}, its checkpoint takes until {now_s + hold_s:.12g} s"
        yield broken("checkpoint", job.id, says, now_s + saves_s, node)


def _may_stop(
    job: Job, node: str | None, started_s: float, stopped_s: float
) -> Iterator[Violation]:
    """Check that a job that is preempted is preemptible, and has run as long as it must."""
    says, ran_s = f"is preempted at {stopped_s:.12g} s", stopped_s - started_s
    if not job.preemptible:
        yield _at_node("preemption", job, node, f"{says}, it is not preemptible", stopped_s)
    elif ran_s < job.min_run_s - TIME_TOLERANCE_S:
        after = f"after {ran_s:.12g} s, its minimum run is {job.min_run_s:.12g} s"
        yield _at_node("minimum run", job, node, f"{says} {after}", stopped_s)
