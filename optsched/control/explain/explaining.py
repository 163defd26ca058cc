"""Why a job of a live cluster is where it is: what it does or waits for, at what cost, and what
would change that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...duration import human
from ...errors import InputError
from ...executors.base import SAVED_AND_STOPPED
from ...model.instance import Running
from ...model.job import Job
from ...physics import TIME_TOLERANCE_S, hold_to_save_s, lost_s, unsaved_s
from ..journal.log import place
from ..journal.state import ENDED_AS, Attempt, LiveJob, Status
from ..learned import NEVER_S
from ..out_of_order import out_of
from ..present import as_running, guarded
from ..what_if.snapshot import Snapshot
from .round_says import round_says
from .waiting import why_it_waits

STOPPED_FOR = {
    "preempt": "to make room for others",
    "migrate": "to move elsewhere",
    "resize": "to go on with another size",
    "hold": "because it is held",
    "cancel": "because it is cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Sentences for people, the most important first, and the numbers in them for machines."""

    job: str
    status: Status
    sentences: tuple[str, ...]
    facts: dict[str, Any]


def explain_job(snapshot: Snapshot, job_id: str, *, names: bool = False) -> Explained:
    """Why a job runs, waits, stops or has ended. Jobs of other users than its own are named only
    with `names`.

    Raises InputError where there is no such job.
    """
    job = snapshot.state.jobs.get(job_id)
    if job is None:
        raise InputError(f"job {job_id!r} is not known here; `optsched queue` lists jobs")
    facts: dict[str, Any] = {}
    says: list[str] = []
    attempt = job.live
    if job.finished is not None:
        says += _finished(job, facts)
    elif attempt is None:
        said = _held(job, snapshot) if job.held is not None else None
        says += said if said is not None else why_it_waits(snapshot, job, facts, names)
        says += _attempts(job.attempts)
    elif attempt.lost is not None:
        says += [
            f"{job_id}: nobody can tell how it is, because {attempt.lost}.",
            f"It keeps {place(attempt.placement)} until it is seen again; only then is it decided "
            f"what becomes of it, so that it never runs twice. `optsched clear {job_id}` ends that "
            "where nothing of it is left.",
        ]
    elif attempt.leaving:
        says += _stopping(snapshot, job, attempt)
    elif attempt.started_s is None:
        waits = snapshot.said.get(attempt.key)
        says += [
            f"{job_id} is being started on {place(attempt.placement)} since "
            f"{human(snapshot.now_s - attempt.intended_s)}; it has not been seen running yet"
            f"{f': {waits}' if waits else ''}."
        ]
    else:
        says += _running(snapshot, job, attempt, facts, names)
        broken = out_of(snapshot.state, attempt)
        if broken:
            facts["out"] = list(broken)
            says.append(
                f"Of what it runs on is out of order: {', '.join(broken)}; nobody stops it for "
                "that."
            )
    facts["attempts"] = [_numbers(one) for one in job.attempts]
    return Explained(job=job_id, status=job.status, sentences=tuple(says), facts=facts)


def _finished(job: LiveJob, facts: dict[str, Any]) -> list[str]:
    assert job.finished is not None and job.finished_s is not None
    took_s = job.finished_s - job.submit_s
    facts["completion_s"] = took_s
    because = f": {job.reason}" if job.reason else ""
    return [
        f"{job.id} {ENDED_AS[job.finished]} {human(took_s)} after it was submitted{because}.",
        *_attempts(job.attempts),
    ]


def _held(job: LiveJob, snapshot: Snapshot) -> list[str]:
    return [
        f"{job.id} is on hold: {job.held}.",
        f"Once it is released (`optsched release {job.id}`) it waits for its turn with the others; "
        f"it was submitted {human(snapshot.now_s - job.submit_s)} ago and has {human(job.left_s)} "
        "of work to do.",
    ]


def _stopping(snapshot: Snapshot, job: LiveJob, attempt: Attempt) -> list[str]:
    if attempt.killed is not None and attempt.stop_s is None:
        return [f"{job.id} is being ended on {place(attempt.placement)}: {attempt.killed}."]
    assert attempt.stop_s is not None
    why = STOPPED_FOR[attempt.stop_why or "preempt"]
    asked_s = snapshot.now_s - attempt.stop_s
    left_s = attempt.grace_s - asked_s
    until = (
        f"it is killed in {human(left_s)} if it has not ended by then"
        if left_s > 0
        else "its grace is over"
    )
    said = [
        f"{job.id} was asked {human(asked_s)} ago to save and stop on "
        f"{place(attempt.placement)}, {why}; {until}."
    ]
    if attempt.killed is not None:
        said.append(f"It is being killed: {attempt.killed}.")
    if job.cancelled is not None:
        said.append(f"After that it is gone: {job.cancelled}.")
    elif job.held is not None:
        said.append(f"After that it is on hold: {job.held}.")
    elif job.id in snapshot.state.claims:
        said.append(f"After that it goes on on {place(snapshot.state.claims[job.id].placement)}.")
    else:
        said.append(f"After that it waits for its turn and {_goes_on(snapshot, job, attempt)}.")
    return said


def _goes_on(snapshot: Snapshot, job: LiveJob, attempt: Attempt) -> str:
    """Where it goes on once it has been stopped, and what of its work is lost with that."""
    progress = snapshot.progress.get(attempt.key)
    known, entry = as_running(job, attempt, progress, snapshot.now_s)
    if known.profile.checkpoint_every_s is None:
        return "goes on from what it saved"
    lost = human(lost_s(known, unsaved_s(entry, snapshot.now_s)))
    if known.profile.checkpoint_every_s == NEVER_S:
        return f"starts from the beginning, as it is not known to save: the {lost} it has worked are lost"  # noqa: E501
    return f"goes on from its last checkpoint: {lost} of its work are lost"


def _running(
    snapshot: Snapshot, job: LiveJob, attempt: Attempt, facts: dict[str, Any], names: bool
) -> list[str]:
    assert attempt.started_s is not None
    progress = snapshot.progress.get(attempt.key)
    known, entry = as_running(job, attempt, progress, snapshot.now_s)
    since_s = snapshot.now_s - attempt.started_s
    ends_s = entry.setup_s + entry.remaining_s / attempt.rate
    share = 1 - min(1.0, entry.remaining_s / max(known.work_s, entry.remaining_s))
    steps = ""
    if progress is not None:
        total = progress.total_steps or job.submission.total_steps
        steps = f", step {progress.step:,}" + (f" of {total:,}" if total else "")
        share = progress.step / total if total else share
    facts.update(
        since_s=since_s, remaining_s=entry.remaining_s, expected_end_s=ends_s, share_done=share
    )
    doing = " (still starting up)" if entry.setup_s > 0 else ""
    said = [
        f"{job.id} runs since {human(since_s)} on {place(attempt.placement)}{doing}; {share:.0%} "
        f"done{steps}, expected to end in {human(ends_s)}{_sure(job, progress is not None)}."
    ]
    if abs(attempt.rate - 1) > 1e-9:
        said.append(f"There it makes {attempt.rate:.3g} s of its reference work a second.")
    if job.id in snapshot.left_out:
        facts["left_out"] = snapshot.left_out[job.id]
        said.append(f"Rounds leave it alone, and it goes on: {snapshot.left_out[job.id]}.")
        return said + _attempts(job.attempts[:-1])
    said.append(_preemption(snapshot, job, known, entry, facts))
    said += round_says(snapshot, job, facts, names)
    return said + _attempts(job.attempts[:-1])


def _sure(job: LiveJob, measured: bool) -> str:
    if measured:
        return ""
    return (
        f" (its length is an estimate: {job.submission.estimate})"
        if job.submission.estimate
        else ""
    )


def _preemption(
    snapshot: Snapshot, live: LiveJob, job: Job, entry: Running, facts: dict[str, Any]
) -> str:
    """Whether it could be preempted, and what that would cost."""
    now_s = snapshot.now_s
    if not job.preemptible:
        return "It cannot be preempted: it was submitted so."
    if job.max_preemptions is not None and entry.preemptions >= job.max_preemptions:
        return f"It cannot be preempted any more: it was {entry.preemptions} times, as often as it allows."  # noqa: E501
    if not guarded(job, live, snapshot.preempt_unsaved).preemptible:
        return (
            "It is not preempted, because it is not known to save: submit it with --saves if it "
            "does (see docs/jobs.md), or once it has saved, it is known."
        )
    ripe_s = job.min_run_s - (now_s - entry.started_s)
    later = f" in {human(ripe_s)} at the earliest" if ripe_s > TIME_TOLERANCE_S else ""
    parts = {
        "checkpoint_s": hold_to_save_s(job),
        "startup_s": job.profile.startup_s,
        "restore_s": job.profile.restore_s,
        "lost_s": lost_s(job, unsaved_s(entry, now_s)),
    }
    facts["preemption"] = parts
    words = {
        "checkpoint_s": "to save",
        "startup_s": "to start up again",
        "restore_s": "to restore",
        "lost_s": "of work done again",
    }
    listed = ", ".join(f"{human(value)} {words[name]}" for name, value in parts.items() if value)
    cost = (
        f"that would cost {human(sum(parts.values()))} ({listed})"
        if listed
        else "that would cost it nothing known"
    )
    return f"It could be preempted{later}: {cost}."


def _attempts(attempts: Sequence[Attempt]) -> list[str]:
    """How each attempt went, one sentence each."""
    said = []
    for one in attempts:
        ended = one.ended
        if ended is None:
            continue
        where = f"Attempt {one.key.number} on {place(one.placement)}"
        if one.started_s is None:
            said.append(f"{where} never began{f': {ended.reason}' if ended.reason else ''}.")
            continue
        end_s = ended.ended_s if ended.ended_s is not None else one.ended_s
        ran = f"ran {human(max(0.0, (end_s or one.started_s) - one.started_s))}"
        said.append(f"{where} {ran} and {_how_it_ended(one)}.")
    return said


def _how_it_ended(one: Attempt) -> str:
    ended = one.ended
    assert ended is not None
    status = ended.exit_status
    if status == 0:
        return "completed"
    asked = "" if one.stop_why is None else f"was asked to stop {STOPPED_FOR[one.stop_why]} and "
    left = f", {human(ended.left_s)} of work left"
    if status == SAVED_AND_STOPPED:
        saved_s = (
            None if one.stop_s is None or ended.ended_s is None else ended.ended_s - one.stop_s
        )
        return f"{asked}saved{f' in {human(max(0.0, saved_s))}' if saved_s is not None else ' and stopped'}{left}"  # noqa: E501
    reason = ended.reason or one.killed
    because = f" because {reason}" if reason else ""
    if status is None:
        return f"{asked}ended nobody knows how{because}{left}"
    how = f"with signal {-status}" if status < 0 else f"with exit status {status}"
    return f"{asked}ended {how}{because}{left}"


def _numbers(one: Attempt) -> dict[str, Any]:
    ended = one.ended
    return {
        "number": one.key.number,
        "started_s": one.started_s,
        "ended_s": None if ended is None else ended.ended_s,
        "exit_status": None if ended is None else ended.exit_status,
        "stopped_for": one.stop_why,
        "left_s": None if ended is None else ended.left_s,
    }
