"""Why a job of a live cluster is where it is: what it does or waits for, at what cost, and what
would change that."""

from collections.abc import Iterator, Sequence

from ...duration import human
from ...errors import InputError
from ...executors.base import SAVED_AND_STOPPED
from ...frozen import frozen
from ...model import Job, Running
from ...physics import TIME_TOLERANCE_S, hold_to_save_s, lost_s, unsaved_s
from ..expected import expected
from ..journal.events import AttemptEnded
from ..journal.log import place
from ..journal.state import ENDED_AS, Attempt, LiveJob, Status
from ..learned import NEVER_S
from ..present import as_running, guarded
from ..what_if.snapshot import Snapshot
from .blocked import Facts
from .round_says import round_says
from .waiting import why_it_waits

STOPPED_FOR = {
    "preempt": "to make room for others",
    "migrate": "to move elsewhere",
    "resize": "to go on with another size",
    "hold": "because it is held",
    "cancel": "because it is cancelled",
    "requeue": "to run again from its checkpoint",
    "limit": "because its time limit was reached",
}


@frozen
class Explained:
    """Sentences for people, the most important first, and the numbers in them for machines."""

    job: str
    status: Status
    sentences: tuple[str, ...]
    facts: Facts


def explain_job(snapshot: Snapshot, job_id: str, *, names: bool = False) -> Explained:
    """Return why a job runs, waits, stops or has ended. Jobs of other users than its own are named
    only with `names`.

    Raises InputError where there is no such job.
    """
    job = snapshot.state.jobs.get(job_id)
    if job is None:
        raise InputError(f"job {job_id!r} is not known here; `optsched queue` lists jobs")
    facts: Facts = {}
    sentences = (*_sentences(snapshot, job, facts, names), *_expected(snapshot, job, facts))
    facts["attempts"] = [_numbers(attempt) for attempt in job.attempts]
    return Explained(job=job_id, status=job.status, sentences=sentences, facts=facts)


def _sentences(snapshot: Snapshot, job: LiveJob, facts: Facts, names: bool) -> Iterator[str]:
    attempt, now_s = job.live, snapshot.now_s
    if job.finished is not None and job.finished_s is not None:
        took_s = facts["completion_s"] = job.finished_s - job.submit_s
        because = f": {job.reason}" if job.reason else ""
        yield f"{job.id} {ENDED_AS[job.finished]} {human(took_s)} after it was submitted{because}."
        yield from _attempts(job.attempts)
    elif attempt is None:
        if job.held is not None:
            yield f"{job.id} is on hold: {job.held}."
            yield (
                f"Once it is released (`optsched release {job.id}`) it waits for its turn with the "
                f"others; it was submitted {human(now_s - job.submit_s)} ago and has "
                f"{human(job.left_s)} of work to do."
            )
        else:
            yield from why_it_waits(snapshot, job, facts, names)
        yield from _attempts(job.attempts)
    elif attempt.lost is not None:
        yield f"{job.id}: its state is unknown, because {attempt.lost}."
        yield (
            f"It keeps {place(attempt.placement)} until it is seen again; only then is it decided "
            f"what happens to it, so that it never runs twice. If nothing is left of it, "
            f"`optsched clear {job.id}` frees its place."
        )
    elif attempt.leaving:
        yield from _stopping(snapshot, job, attempt)
    elif attempt.started_s is None:
        waits = snapshot.said.get(attempt.key)
        yield (
            f"{job.id} is being started on {place(attempt.placement)} since "
            f"{human(now_s - attempt.intended_s)}; it has not been seen running yet"
            f"{f': {waits}' if waits else ''}."
        )
    else:
        yield from _running(snapshot, job, attempt, facts, names)
        yield from _attempts(job.attempts[:-1])
        broken = snapshot.state.out_of(attempt)
        if broken:
            facts["out"] = list(broken)
            listed = ", ".join(broken)
            yield f"Some of what it runs on is out of order: {listed}; it is not stopped for that."


def _expected(snapshot: Snapshot, job: LiveJob, facts: Facts) -> Iterator[str]:
    """Yield when it starts and ends, as the last forecast says."""
    times, now_s = expected(snapshot.forecast, job, snapshot.now_s), snapshot.now_s
    facts["expected"] = times._asdict()
    if job.finished is not None or snapshot.forecast is None or job.held is not None:
        return

    horizon = human(snapshot.forecast.horizon_s)

    def within(p50_s: float | None, p90_s: float | None) -> str:
        def ahead(at_s: float | None) -> str:
            return f"more than {horizon}" if at_s is None else human(max(0.0, at_s - now_s))

        return f"in {ahead(p50_s)} (90 %: {ahead(p90_s)})"

    if times.end_p50_s is not None:
        starts = within(times.start_p50_s, times.start_p90_s)
        starts = "" if job.live is not None else f"starts {starts} and "
        yield f"The forecast is that it {starts}ends {within(times.end_p50_s, times.end_p90_s)}."
    elif times.forecast is not None:
        yield f"There is no forecast of when it starts and ends: {times.forecast}."


def _stopping(snapshot: Snapshot, job: LiveJob, attempt: Attempt) -> Iterator[str]:
    where = place(attempt.placement)
    if attempt.stop_s is None:
        yield f"{job.id} is being ended on {where}: {attempt.killed}."
        return
    why = STOPPED_FOR[attempt.stop_why or "preempt"]
    asked_s = snapshot.now_s - attempt.stop_s
    left_s = attempt.grace_s - asked_s
    until = "its grace period is over"
    if left_s > 0:
        until = f"it is killed in {human(left_s)} if it has not ended by then"
    yield f"{job.id} was asked {human(asked_s)} ago to save and stop on {where}, {why}; {until}."
    if attempt.killed is not None:
        yield f"It is being killed: {attempt.killed}."
    if job.cancelled is not None:
        then = f"it is gone: {job.cancelled}"
    elif job.held is not None:
        then = f"it is on hold: {job.held}"
    elif job.id in snapshot.state.claims:
        then = f"it resumes on {place(snapshot.state.claims[job.id].placement)}"
    else:
        then = f"it waits for its turn and {_goes_on(snapshot, job, attempt)}"
    yield f"After that {then}."


def _goes_on(snapshot: Snapshot, job: LiveJob, attempt: Attempt) -> str:
    """Return where it goes on once it has been stopped, and what of its work is lost with that."""
    progress = snapshot.progress.get(attempt.key)
    known, entry = as_running(job, attempt, progress, snapshot.now_s)
    if known.profile.checkpoint_every_s is None:
        return "goes on from what it saved"
    lost = human(lost_s(known, unsaved_s(entry, snapshot.now_s)))
    if known.profile.checkpoint_every_s == NEVER_S:
        return f"starts from the beginning, as it is not known to save: the {lost} it has worked are lost"  # noqa: E501
    return f"goes on from its last checkpoint: {lost} of its work are lost"


def _running(
    snapshot: Snapshot, job: LiveJob, attempt: Attempt, facts: Facts, names: bool
) -> Iterator[str]:
    progress = snapshot.progress.get(attempt.key)
    known, entry = as_running(job, attempt, progress, snapshot.now_s)
    since_s = snapshot.now_s - (attempt.started_s or 0.0)
    ends_s = entry.setup_s + entry.remaining_s / attempt.rate
    share = 1 - min(1.0, entry.remaining_s / max(known.work_s, entry.remaining_s))
    steps = sure = ""
    if progress is not None:
        total = progress.total_steps or job.submission.total_steps
        steps = f", step {progress.step:,}" + (f" of {total:,}" if total else "")
        share = progress.step / total if total else share
    elif job.submission.estimate:
        sure = f" (its length is an estimate: {job.submission.estimate})"
    facts.update(
        since_s=since_s, remaining_s=entry.remaining_s, expected_end_s=ends_s, share_done=share
    )
    doing = " (still starting up)" if entry.setup_s > 0 else ""
    yield (
        f"{job.id} has been running for {human(since_s)} on {place(attempt.placement)}{doing}; "
        f"{share:.0%} done{steps}, expected to end in {human(ends_s)}{sure}."
    )
    if abs(attempt.rate - 1) > 1e-9:
        yield f"There it makes {attempt.rate:.3g} s of its reference work a second."
    if job.id in snapshot.left_out:
        facts["left_out"] = snapshot.left_out[job.id]
        yield f"Rounds leave it alone, and it goes on: {snapshot.left_out[job.id]}."
    else:
        yield _preemption(snapshot, job, known, entry, facts)
        yield from round_says(snapshot, job, facts, names)


def _preemption(snapshot: Snapshot, live: LiveJob, job: Job, entry: Running, facts: Facts) -> str:
    """Return whether it could be preempted, and what that would cost."""
    now_s = snapshot.now_s
    if not job.preemptible:
        return "It cannot be preempted: it was submitted as not preemptible."
    if job.max_preemptions is not None and entry.preemptions >= job.max_preemptions:
        return f"It cannot be preempted any more: it was {entry.preemptions} times, the most it allows."  # noqa: E501
    if not guarded(job, live, snapshot.preempt_unsaved).preemptible:
        return (
            "It is not preempted, because it is not known to save: submit it with --saves if it "
            "does (see docs/jobs.md), or once it has saved, it is known."
        )
    ripe_s = job.min_run_s - (now_s - entry.started_s)
    later = f" in {human(ripe_s)} at the earliest" if ripe_s > TIME_TOLERANCE_S else ""
    profile = job.profile
    parts = {
        "checkpoint_s": (hold_to_save_s(job), "to save"),
        "startup_s": (profile.startup_s, "to start up again"),
        "restore_s": (profile.restore_s, "to restore"),
        "lost_s": (lost_s(job, unsaved_s(entry, now_s)), "of work done again"),
    }
    facts["preemption"] = {name: seconds for name, (seconds, _) in parts.items()}
    listed = ", ".join(f"{human(seconds)} {words}" for seconds, words in parts.values() if seconds)
    cost = "nothing that is known"
    if listed:
        cost = f"{human(sum(facts['preemption'].values()))} ({listed})"
    return f"It could be preempted{later}: that would cost {cost}."


def _attempts(attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield how each attempt went."""
    for attempt in attempts:
        if attempt.ended is None or attempt.end_s is None:
            continue
        reason = attempt.ended.reason
        where = f"Attempt {attempt.key.number} on {place(attempt.placement)}"
        if attempt.started_s is None:
            yield f"{where} never began{f': {reason}' if reason else ''}."
            continue
        ran = human(max(0.0, attempt.end_s - attempt.started_s))
        yield f"{where} ran {ran} and {_how_it_ended(attempt, attempt.ended)}."


def _how_it_ended(attempt: Attempt, ended: AttemptEnded) -> str:
    status = ended.exit_status
    if status == 0:
        return "completed"
    asked = ""
    if attempt.stop_why is not None:
        asked = f"was asked to stop {STOPPED_FOR[attempt.stop_why]} and "
    left = f", {human(ended.left_s)} of work left"
    if status == SAVED_AND_STOPPED:
        how = " and stopped"
        if attempt.stop_s is not None and ended.ended_s is not None:
            how = f" in {human(max(0.0, ended.ended_s - attempt.stop_s))}"
        return f"{asked}saved{how}{left}"
    reason = ended.reason or attempt.killed
    because = f" because {reason}" if reason else ""
    if status is None:
        how = "in an unknown way"
    else:
        how = f"with signal {-status}" if status < 0 else f"with exit status {status}"
    return f"{asked}ended {how}{because}{left}"


def _numbers(attempt: Attempt) -> Facts:
    names = ("ended_s", "exit_status", "left_s")
    return {
        "number": attempt.key.number,
        "started_s": attempt.started_s,
        "stopped_for": attempt.stop_why,
        **{name: getattr(attempt.ended, name, None) for name in names},
    }
