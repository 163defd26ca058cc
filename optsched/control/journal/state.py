"""Jobs and their attempts as the controller knows them, rebuilt from the journal's events and from
nothing else."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from ...driver.shares import DecayedUse, account_of
from ...duration import human
from ...executors.base import SAVED_AND_STOPPED, AttemptKey
from ...model import Job, Mode, Placement, Profile, Use, Window
from ..learned import NEVER_S, learned
from ..submission import Submission
from .events import (
    AttemptEnded,
    AttemptFound,
    AttemptLost,
    AttemptRunning,
    Cancelled,
    Changed,
    Claim,
    Cleared,
    Event,
    Held,
    KillIntended,
    ManagerReserved,
    NodeSeen,
    OfAttempt,
    Pruned,
    Released,
    Requeued,
    RoundDecided,
    Signalled,
    StartIntended,
    StartRefused,
    StopIntended,
    Submitted,
    Why,
    WindowLifted,
    WindowSet,
)

Status = Literal[
    "waiting",
    "held",
    "starting",
    "running",
    "stopping",
    "lost",
    "completed",
    "failed",
    "timeout",
    "cancelled",
]
PREEMPTIONS: tuple[Why, ...] = ("preempt", "migrate", "resize")
"""Why an attempt is stopped by the scheduler's own decision."""
FINISHED: tuple[Status, ...] = ("completed", "failed", "timeout", "cancelled")
OPEN: frozenset[str] = frozenset(get_args(Status)) - set(FINISHED)
ENDED_AS: dict[Status, str] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "was cancelled",
}
"""How a job has finished, as a predicate."""
BACK_OFF_S = 5.0
"""How long a job waits after its first attempt that failed, or that could not be started; doubled
by each more."""
LONGEST_BACK_OFF_S = 600.0
MOST_FAULTS = 5
"""So many attempts in a row that ended by no doing of the command put a job on hold."""


@dataclass(slots=True)
class Attempt:
    """One attempt, from the intention to start it until nothing of it is left."""

    key: AttemptKey
    mode: Mode
    placement: Placement
    intended_s: float
    work_s: float
    rate: float
    setup_s: float
    started_s: float | None = None
    gpu_ids: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stop_s: float | None = None
    stop_why: Why | None = None
    grace_s: float = 0.0
    killed: str | None = None
    lost: str | None = None
    ended: AttemptEnded | None = None
    ended_s: float | None = None
    cleared: bool = False
    reserved: bool = False
    warned: bool = False

    @property
    def leaving(self) -> bool:
        """Tell whether it was asked to stop, or is being killed."""
        return self.stop_s is not None or self.killed is not None

    @property
    def end_s(self) -> float | None:
        """Return when nothing of it was left: as was seen, else when that became known."""
        return (
            self.ended_s if self.ended is None or self.ended.ended_s is None else self.ended.ended_s
        )

    def span_s(self, submit_s: float, now_s: float) -> tuple[float, float]:
        """Return from when to when it has run: whatever a node's clock says, between the submission
        of its job and the news of its end."""
        known_s = now_s if self.ended_s is None else self.ended_s
        begin_s = min(known_s, max(submit_s, self.started_s or 0.0))
        return begin_s, known_s if self.end_s is None else max(begin_s, min(known_s, self.end_s))

    def ran_s(self, now_s: float) -> float:
        """Return for how long it has run."""
        if self.started_s is None:
            return 0.0
        return max(0.0, (now_s if self.ended_s is None else self.ended_s) - self.started_s)


@dataclass(slots=True)
class LiveJob:
    """One job: what was submitted, what became of it so far, what it has to do yet, and its profile
    as its attempts have measured it. `waited_s` are its waits that are over, `waits_from_s` is
    since when it waits now. `requeued`: what runs of it is to stop
    and run again; its time limit counts from attempt `limited_from` on, and `gone_s` is for how
    long it had finished before it was requeued. Limits keep it off nodes with the labels
    `kept_off`, and count what it holds on those with the labels `counted_on` (see `limits`).
    `forms` are the job as rounds have last seen it."""

    submission: Submission
    submit_s: float
    left_s: float
    profile: Profile
    held: str | None = None
    cancelled: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    preemptions: int = 0
    failures: int = 0
    faults: int = 0
    ready_s: float = 0.0
    finished: Status | None = None
    finished_s: float | None = None
    reason: str | None = None
    timed_out: bool = False
    requeued: bool = False
    limited_from: int = 0
    gone_s: float = 0.0
    waited_s: float = 0.0
    waits_from_s: float | None = None
    kept_off: frozenset[str] = frozenset()
    counted_on: frozenset[str] = frozenset()
    forms: dict[frozenset[str], tuple[object, Job]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def form(self, job: Job, **fields: Any) -> Job:
        """Return the job with these fields, the same object as before if nothing has changed."""
        what, key = frozenset(fields), (job, fields)
        known = self.forms.get(what)
        if known is None or known[0] != key:
            known = self.forms[what] = key, replace(job, **fields)
        return known[1]

    @property
    def id(self) -> str:
        return self.submission.job.id

    @property
    def live(self) -> Attempt | None:
        """Return the attempt of which something is left, or that is about to be started."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].ended is None else None

    def limit_left_s(self, now_s: float) -> float:
        """Return for how long it may run yet in all."""
        limit_s = self.submission.own_limit_s
        if limit_s is None:
            return math.inf
        own = self.attempts[self.limited_from :]
        return limit_s - sum(attempt.ran_s(now_s) for attempt in own)

    @property
    def status(self) -> Status:
        """Return where it is, in one word for people."""
        if self.finished is not None:
            return "timeout" if self.timed_out else self.finished
        live = self.live
        if live is None:
            return "held" if self.held is not None else "waiting"
        if live.lost is not None:
            return "lost"
        if live.leaving:
            return "stopping"
        return "starting" if live.started_s is None else "running"


class State:
    """All jobs, attempts and nodes; `totals` count jobs that have finished, failures, preemptions.
    `apply` is the only way in which it changes; an event that does not fit is a bug (KeyError).

    Only `barred` is not the journal's, but as of the last look: why the manager would not start
    waiting jobs, by name. `use` is what attempts that have ended have held, where shares are given
    by it, with that half-life.
    """

    def __init__(self, half_life_s: float | None = None) -> None:
        self.use = None if half_life_s is None else DecayedUse(half_life_s)
        self.jobs: dict[str, LiveJob] = {}
        self.open: dict[str, LiveJob] = {}
        self.arrays: dict[str, dict[str, LiveJob]] = {}
        self.claims: dict[str, Claim] = {}
        self.stay: frozenset[str] = frozenset()
        self.round = 0
        self.nodes: dict[str, NodeSeen] = {}
        self.windows: dict[str, Window] = {}
        self.reserved: tuple[Window, ...] = ()
        self.now_s = 0.0
        self.barred: dict[str, str] = {}
        self.totals: Counter[str] = Counter()

    def drop(self, name: str) -> None:
        """Forget a job that has finished."""
        job = self.jobs.pop(name)
        if job.submission.array is not None:
            tasks = self.arrays[job.submission.array]
            del tasks[name]
            if not tasks:
                del self.arrays[job.submission.array]

    def attempt(self, key: AttemptKey) -> Attempt:
        """Return the attempt of that number."""
        return self.jobs[key.job].attempts[key.number - 1]

    def live_attempts(self) -> Iterable[Attempt]:
        """Return all attempts that may hold something."""
        return (live for job in self.open.values() if (live := job.live) is not None)

    def used(self, now_s: float) -> tuple[Use, ...]:
        """Return the decayed use of all accounts, with that of attempts which go on; nothing where
        it is not counted."""
        if self.use is None:
            return ()
        return self.use.at(
            now_s,
            (
                (account_of(job.submission.job), live.mode.gpus, live.intended_s)
                for job in self.open.values()
                if (live := job.live) is not None
            ),
        )

    def idle_out(self, node: str, room: int) -> int:
        """Return how many of the `room` GPUs that no attempt holds there are not to be given away:
        those that are out and that no attempt is known to hold."""
        seen = self.nodes.get(node)
        if seen is None or not seen.out:
            return 0
        held = {gpu for attempt in self.live_attempts() for gpu in attempt.gpu_ids.get(node, ())}
        return max(0, min(room, len(set(seen.out) - held)))

    def out_of(self, attempt: Attempt) -> tuple[str, ...]:
        """Return the GPUs that an attempt holds and that are out, each with its node."""
        return tuple(
            f"{gpu} on {node}"
            for node, ids in attempt.gpu_ids.items()
            for gpu in ids
            if node in self.nodes and gpu in self.nodes[node].out
        )

    def awaits(self, job: LiveJob) -> Iterator[str]:
        """Yield the predecessors that have not ended as the job waits for."""
        submission = job.submission
        for name in submission.job.after:
            if self._ending(name) != "completed":
                yield name
        for name in submission.after_any:
            if name in self.open:
                yield name
        for name in submission.after_not_ok:
            if self._ending(name) not in ("failed", "cancelled"):
                yield name

    def awaited(self, job: LiveJob) -> list[str]:
        """Return these predecessors."""
        return [*self.awaits(job)]

    def lost_predecessor(self, job: LiveJob) -> tuple[str, str] | None:
        """Return a predecessor that will never end as the job waits for, and what became of it."""
        for name in self.awaits(job):
            if name not in self.jobs:
                return name, "is unknown"
            if (finished := self.jobs[name].finished) is not None:
                return name, ENDED_AS[finished]
        return None

    def _ending(self, name: str) -> Status | None:
        return self.jobs[name].finished if name in self.jobs else None

    def apply(self, at_s: float, event: Event) -> None:
        """Take in one event, which became known at `at_s` (Unix time)."""
        self.now_s = max(self.now_s, at_s)
        self._happens(at_s, event)
        if isinstance(event, Pruned):
            self._take_over_use(at_s, event)
        name = getattr(event, "job", None)
        if isinstance(event, Submitted):
            name = event.submission.job.id
        if name in self.jobs:
            self._note_wait(self.jobs[name], at_s)

    def waited_s(self, job: LiveJob, now_s: float) -> float:
        """Return how long a job has waited in all: not while it ran, was on hold, paused after a
        failure, or waited for others to complete."""
        if job.waits_from_s is None:
            return job.waited_s
        before = (self.jobs.get(name) for name in job.submission.predecessors)
        done_s = [
            now_s if other is None or other.finished_s is None else other.finished_s
            for other in before
        ]
        return job.waited_s + max(0.0, now_s - max([job.waits_from_s, *done_s]))

    def _note_wait(self, job: LiveJob, at_s: float) -> None:
        """Begin or end the wait of a job to which something has happened."""
        waits = job.finished is None and job.live is None and job.held is None
        if job.waits_from_s is None:
            job.waits_from_s = max(at_s, job.ready_s) if waits else None
        elif not waits:
            job.waited_s, job.waits_from_s = self.waited_s(job, at_s), None

    def _happens(self, at_s: float, event: Event) -> None:
        """Take in an event; those about an attempt that there is in `_attempt_happens`."""
        match event:
            case Submitted(submission=submission):
                self._submit(submission, at_s)
            case Changed(submission=submission):
                self._change(submission, at_s)
            case Held(job=name):
                self.jobs[name].held = event.reason or f"{event.by} holds it"
                self.claims.pop(name, None)
            case Released(job=name):
                job = self.jobs[name]
                job.held, job.faults = None, 0
                job.ready_s = max(at_s, job.submission.begin_s or at_s)
            case Requeued(job=name):
                self._requeue(self.jobs[name], at_s)
            case Cancelled(job=name):
                job = self.jobs[name]
                job.cancelled = event.reason or f"{event.by} cancelled it"
                self.claims.pop(name, None)
                if job.live is None:
                    self._finish(job, "cancelled", at_s, job.cancelled)
            case RoundDecided():
                self.round = event.round
                self.claims = {claim.job: claim for claim in event.claims if claim.job in self.open}
                self.stay = frozenset(event.stay)
            case StartIntended(job=name):
                self.jobs[name].attempts.append(
                    Attempt(
                        event.key,
                        event.mode,
                        event.placement,
                        at_s,
                        event.work_s,
                        event.rate,
                        event.setup_s,
                        reserved=event.reserved,
                    )
                )
                self.claims.pop(name, None)
                self.stay |= {name}
            case WindowSet(window=window):
                known = {n: own for n, own in self.windows.items() if own.to_s > at_s}
                self.windows = known | {window.name: window}
            case WindowLifted(name=name):
                self.windows = {n: own for n, own in self.windows.items() if n != name}
            case ManagerReserved(windows=windows):
                self.reserved = windows
            case NodeSeen(node=name):
                self.nodes[name] = event
            case OfAttempt():
                self._attempt_happens(at_s, event, self.attempt(event.key))

    def _take_over_use(self, at_s: float, event: Pruned) -> None:
        if self.use is not None and event.decayed is not None:
            self.use = DecayedUse(self.use.half_life_s, event.decayed, at_s)

    def _attempt_happens(self, at_s: float, event: OfAttempt, attempt: Attempt) -> None:
        match event:
            case AttemptRunning():
                attempt.started_s, attempt.gpu_ids = event.started_s, event.gpu_ids
            case StopIntended():
                attempt.stop_s, attempt.stop_why, attempt.grace_s = at_s, event.why, event.grace_s
            case Signalled(by=by):
                attempt.warned = attempt.warned or by is None
            case KillIntended():
                attempt.killed = event.reason
            case AttemptLost():
                attempt.lost = event.reason
            case AttemptFound():
                attempt.lost = None
            case StartRefused(job=job, number=number, reason=reason, retry_s=retry_s):
                left_s = attempt.work_s
                ended = AttemptEnded(
                    job=job, number=number, reason=reason, left_s=left_s, retry_s=retry_s
                )
                self._settle(attempt, ended, at_s)
            case Cleared(job=job, number=number, left_s=left_s):
                attempt.cleared = True
                reason = f"{event.by} vouched that nothing of it was left"
                ended = AttemptEnded(
                    job=job,
                    number=number,
                    reason=reason,
                    started_s=attempt.started_s,
                    left_s=left_s,
                )
                self._settle(attempt, ended, at_s)
            case AttemptEnded():
                if attempt.started_s is None:
                    attempt.started_s = event.started_s
                self._settle(attempt, event, at_s)

    def _submit(self, submission: Submission, at_s: float) -> None:
        job = LiveJob(submission, at_s, submission.job.work_s, submission.job.profile)
        job.ready_s = submission.begin_s or 0.0
        if submission.hold:
            job.held = "it was submitted on hold"
        self.jobs[job.id] = self.open[job.id] = job
        if submission.array is not None:
            self.arrays.setdefault(submission.array, {})[job.id] = job

    def _requeue(self, job: LiveJob, at_s: float) -> None:
        job.failures = job.faults = 0
        if job.finished is None:
            job.requeued = job.live is not None
            job.limited_from = len(job.attempts)
            return
        if job.finished == "completed" or job.left_s <= 0:
            job.left_s = job.submission.job.work_s
        job.gone_s += at_s - (job.finished_s or at_s)
        job.limited_from, job.ready_s = len(job.attempts), at_s
        job.finished = job.finished_s = job.reason = job.held = job.cancelled = None
        job.timed_out = False
        self.open[job.id] = job

    def _change(self, submission: Submission, at_s: float) -> None:
        """Take over what a job asks for now; what its attempts have measured of it stays."""
        job, asked = self.jobs.get(submission.job.id), submission.job
        if job is None:
            return  # one that was dropped, by a version that left this event behind
        if job.attempts:
            names = ("rate", "locality", "cpus_per_gpu", "memory_gib_per_gpu", "memory_rates")
            job.profile = replace(
                job.profile, **{name: getattr(asked.profile, name) for name in names}
            )
            job.left_s = min(job.left_s, asked.work_s)
        else:
            job.profile, job.left_s = asked.profile, asked.work_s
        if submission.begin_s != job.submission.begin_s:
            job.ready_s = submission.begin_s or at_s
        job.submission = submission
        self.claims.pop(job.id, None)

    def _settle(self, attempt: Attempt, ended: AttemptEnded, at_s: float) -> None:
        """End an attempt, and take in what that means for its job."""
        attempt.ended, attempt.lost, attempt.ended_s = ended, None, at_s
        job, status = self.jobs[attempt.key.job], ended.exit_status
        job.requeued = False
        if self.use is not None:
            account = account_of(job.submission.job)
            self.use.hold(account, attempt.mode.gpus, attempt.intended_s, at_s)
        job.left_s = ended.left_s
        job.profile = learned(job.profile, ended.progress, ended.started_s)
        if status == SAVED_AND_STOPPED and job.profile.checkpoint_every_s == NEVER_S:
            job.profile = replace(job.profile, checkpoint_every_s=None)
        self.stay -= {job.id}
        if status == 0:
            self._finish(job, "completed", at_s, ended.reason)
        elif job.cancelled is not None:
            self._finish(job, "cancelled", at_s, job.cancelled)
        elif attempt.stop_why == "limit" or job.limit_left_s(at_s) <= 0:
            job.timed_out = True
            limit = human(job.submission.limit_s or 0.0)
            self._finish(job, "failed", at_s, f"its time limit of {limit} was reached")
        elif status == SAVED_AND_STOPPED or attempt.leaving:
            job.preemptions += attempt.stop_why in PREEMPTIONS
            self.totals["preemptions"] += attempt.stop_why in PREEMPTIONS
            job.faults = 0
            job.reason = (
                None if status == SAVED_AND_STOPPED else "it did not save when it was asked to stop"
            )
        elif status is None and ended.retry_s is not None:
            job.reason = ended.reason
            job.ready_s = at_s + min(LONGEST_BACK_OFF_S, max(0.0, ended.retry_s))
        elif status is None:
            job.faults += 1
            job.reason = ended.reason
            job.ready_s = at_s + _back_off_s(job.faults)
            if job.faults >= MOST_FAULTS:
                job.held = f"{job.faults} attempts in a row came to nothing, the last because {ended.reason}"  # noqa: E501
        else:
            job.failures += 1
            self.totals["failures"] += 1
            job.faults = 0
            job.reason = ended.reason or _ending(status)
            job.ready_s = at_s + _back_off_s(job.failures)
            if job.failures > job.submission.retries:
                self._finish(job, "failed", at_s, job.reason)

    def _finish(self, job: LiveJob, how: Status, at_s: float, reason: str | None) -> None:
        job.finished, job.finished_s, job.reason = how, at_s, reason
        self.totals[job.status] += 1
        del self.open[job.id]
        self.claims.pop(job.id, None)


def _back_off_s(times: int) -> float:
    return min(LONGEST_BACK_OFF_S, BACK_OFF_S * 2.0 ** (times - 1))


def _ending(status: int) -> str:
    if status >= 0:
        return f"its command ended with exit status {status}"
    return f"its command was ended by signal {-status}"
