"""Who used how many GPU-hours and what they were spent on, measured from the attempts of jobs."""

from collections.abc import Iterable, Iterator

from .journal.ledger import Bill, Key
from .journal.state import PREEMPTIONS, Attempt, LiveJob, State
from .regret.spent import course_of

DAY_S = 86400.0
CAUSES = {
    "work": "work that was kept",
    "setup": "starting and restoring",
    "saving": "saving after being asked to stop",
    "preempted": "work lost because the job had to make way",
    "failed": "work lost because its command failed",
    "lost": "work lost with its node",
    "stopped": "work lost because the job was held, cancelled or at its time limit",
}
"""What the GPU time of a job is spent on."""
COUNTS = ("jobs", "completed", "failed", "cancelled", "preemptions")
AMOUNTS = (*COUNTS, "waited_s", "core_s", *(f"{cause}_gpu_s" for cause in CAUSES))
"""Jobs count on the day of their submission, with all that they waited, ends and preemptions when
they happened. `core_s` are core-seconds of jobs without GPUs."""


def bill_of(state: State, jobs: Iterable[LiveJob], now_s: float) -> Bill:
    """Return what jobs have used until `now_s`, by day, user and tenant."""
    bill: Bill = {}
    for job in jobs:
        user, tenant = job.submission.job.user or "", job.submission.job.tenant or ""
        for at_s, name, amount in _amounts(state, job, now_s):
            key = Key(day_of(at_s), user, tenant)
            sums = bill.setdefault(key, {})
            sums[name] = sums.get(name, 0.0) + amount
    return bill


def day_of(at_s: float) -> int:
    """Return the day of a Unix time, UTC."""
    return int(at_s // DAY_S)


def _amounts(state: State, job: LiveJob, now_s: float) -> Iterator[tuple[float, str, float]]:
    """Yield what a job used as instants of the days, names and amounts."""
    yield job.submit_s, "jobs", 1
    if waited_s := state.waited_s(job, now_s):
        yield job.submit_s, "waited_s", waited_s
    if job.finished is not None and job.finished_s is not None:
        yield job.finished_s, job.finished, 1
    for attempt in job.attempts:
        if attempt.stop_why in PREEMPTIONS and attempt.stop_s is not None:
            yield attempt.stop_s, "preemptions", 1
        if attempt.started_s is not None:
            yield from _of_attempt(job, attempt, now_s)


def _of_attempt(job: LiveJob, attempt: Attempt, now_s: float) -> Iterator[tuple[float, str, float]]:
    """Yield the GPU time of an attempt by cause and day; cores of one without GPUs."""
    gpus = sum(slot.gpus for slot in attempt.placement)
    cores = 0 if gpus else sum(slot.cpus for slot in attempt.placement)
    begin_s, end_s = attempt.span_s(job.submit_s, now_s)
    course = course_of(attempt, job, begin_s, end_s)
    spans = (
        (begin_s, course.ready_s, "setup"),
        (course.ready_s, course.kept_s, "work"),
        (course.kept_s, course.stop_s, _why_lost(attempt)),
        (course.stop_s, end_s, "saving"),
    )
    for from_s, to_s, cause in spans:
        for at_s, seconds in _by_day(from_s, to_s):
            if gpus:
                yield at_s, f"{cause}_gpu_s", gpus * seconds
            elif cores:
                yield at_s, "core_s", cores * seconds


def _why_lost(attempt: Attempt) -> str:
    if attempt.stop_why is not None or attempt.killed is not None:
        return "preempted" if attempt.stop_why in PREEMPTIONS else "stopped"
    status = None if attempt.ended is None else attempt.ended.exit_status
    return "lost" if status is None else "failed"


def _by_day(from_s: float, to_s: float) -> Iterator[tuple[float, float]]:
    """Yield a stretch of time by days: an instant of each day, and the seconds in it."""
    while from_s < to_s:
        until_s = min(to_s, (day_of(from_s) + 1) * DAY_S)
        yield from_s, until_s - from_s
        from_s = until_s
