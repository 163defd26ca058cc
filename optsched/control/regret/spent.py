"""Where the time of each job went, measured: from the journal's attempts, to the second."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from ...executors.base import SAVED_AND_STOPPED, AttemptKey
from ...frozen import record
from ...physics import lost_s
from ..journal.events import AttemptEnded, Cleared, Held, Released, StartRefused, Submitted
from ..journal.journal import Entry
from ..journal.state import Attempt, LiveJob, State

PARTS = ("work", "waiting", "switching", "failures", "held", "after")
"""What the time of a job is made of: useful work; waiting for GPUs; starting, restoring, saving,
and work done again because of a preemption; pauses after failures, and work done again because of
them; on hold; before its predecessors had completed."""


@dataclass(slots=True)
class Spent:
    """A job from `release_s` (its submission, the end of its first hold, or the start of the
    period) to `end_s`: its completion, or, where it had not completed in the period, the end of
    what it had done by then. All of that time is in one of `parts` (seconds). `work_s` is the
    useful work done (reference seconds at rate 1) in `parts["work"]` seconds; `setup_s` what its
    first attempt here took before it worked."""

    job: LiveJob
    release_s: float
    end_s: float
    completed: bool
    work_s: float = 0.0
    setup_s: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    @property
    def took_s(self) -> float:
        """Return the time from its release to its end."""
        return self.end_s - self.release_s


Span = tuple[float, float]


class Past:
    """The history that entries of a journal tell: `state` at their end, when jobs were on hold, and
    until when a job paused after each attempt."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.state = State()
        self.holds: dict[str, list[Span]] = {}
        self.pauses: dict[AttemptKey, float] = {}
        self.begin_s: float | None = None
        self.end_s = 0.0
        for entry in entries:
            self.begin_s = entry.at_s if self.begin_s is None else self.begin_s
            self.end_s = max(self.end_s, entry.at_s)
            self._take_in(entry)

    def _take_in(self, entry: Entry) -> None:
        event, at_s = entry.event, entry.at_s
        self.state.apply(at_s, event)
        if isinstance(event, Submitted):
            if event.submission.hold:
                self._hold(event.submission.job.id, at_s)
        elif isinstance(event, Held):
            self._hold(event.job, at_s)
        elif isinstance(event, Released):
            spans = self.holds.get(event.job, [])
            self.holds[event.job] = [(begin, min(end, at_s)) for begin, end in spans]
        elif isinstance(event, AttemptEnded | Cleared | StartRefused):
            job = self.state.jobs[event.job]
            self.pauses[event.key] = job.ready_s
            held = any(end == math.inf for _, end in self.holds.get(event.job, []))
            if job.held is not None and not held:
                self._hold(event.job, at_s)

    def _hold(self, job: str, at_s: float) -> None:
        self.holds.setdefault(job, []).append((at_s, math.inf))

    def spent(self, from_s: float, to_s: float) -> list[Spent]:
        """Return the jobs that completed in a period, or did something useful in it and may still
        complete, by submission; what they did before and after it does not count."""
        spent = []
        for job in self.state.jobs.values():
            if job.finished in ("failed", "cancelled") or not job.attempts:
                continue
            end_s = _end_s(job.attempts[-1], to_s)
            completed = job.finished == "completed" and end_s <= to_s
            if completed and end_s <= from_s:
                continue
            release_s = max(job.submit_s, from_s)
            own = self._spent(job, release_s, end_s if completed else to_s, completed)
            if own.work_s > 0 and (completed or own.took_s > 0):
                spent.append(own)
        return spent

    def _spent(self, job: LiveJob, release_s: float, end_s: float, completed: bool) -> Spent:
        holds = self.holds.get(job.id, [])
        for begin, end in holds:
            if begin <= release_s < end:
                release_s = min(end, end_s)
        spent = Spent(job, release_s, end_s, completed)
        before = (self.state.jobs.get(name) for name in job.submission.predecessors)
        done_s = [other.finished_s or 0.0 for other in before if other is not None]
        before_s = max(done_s, default=0.0)
        pieces: list[Piece] = []
        at_s, pause_s, first = job.submit_s, 0.0, True
        for attempt in job.attempts:
            attempt_end_s = _end_s(attempt, end_s)
            begin_s = attempt.intended_s if attempt.started_s is None else attempt.started_s
            begin_s = max(at_s, min(begin_s, attempt_end_s))
            pieces += _gap(at_s, begin_s, holds, before_s, pause_s)
            at_s = max(at_s, attempt_end_s)
            pause_s = self.pauses.get(attempt.key, 0.0)
            ran = _ran(attempt, job, begin_s, at_s)
            pieces += ran
            if at_s > release_s and first:
                spent.setup_s = max(0.0, ran[0].end_s - max(release_s, ran[0].begin_s))
                first = False
        pieces = [
            replace(piece, begin_s=max(piece.begin_s, release_s), end_s=min(piece.end_s, end_s))
            for piece in pieces
            if piece.end_s > release_s and piece.begin_s < end_s
        ]
        if not completed:  # to the end of its last useful work
            while pieces and not (pieces[-1].part == "work" and pieces[-1].took_s > 0):
                pieces.pop()
            spent.end_s = pieces[-1].end_s if pieces else release_s
        for piece in pieces:
            spent.parts[piece.part] += piece.took_s
            spent.work_s += piece.took_s * piece.rate
        return spent


def useful_work_s(job: LiveJob) -> float:
    """Return the reference work that the ended attempts of a job did and did not have to do again,
    as it was measured: what those that failed did counts only as far as it was saved."""
    return math.fsum(
        piece.took_s * piece.rate
        for attempt in job.attempts
        if attempt.started_s is not None and attempt.ended is not None
        for piece in _ran(
            attempt, job, attempt.started_s, max(attempt.started_s, _end_s(attempt, 0.0))
        )
    )


@record
class Piece:
    """A stretch of a job's time, and how much useful work was done in each second of it."""

    part: str
    begin_s: float
    end_s: float
    rate: float = 0.0

    @property
    def took_s(self) -> float:
        """Return how long it was."""
        return self.end_s - self.begin_s


def _end_s(attempt: Attempt, now_s: float) -> float:
    """Return when nothing of it was left; `now_s` where something is."""
    return now_s if attempt.end_s is None else attempt.end_s


def _gap(
    from_s: float, to_s: float, holds: list[Span], before_s: float, pause_s: float
) -> Iterator[Piece]:
    """Yield a time in which nothing of the job ran: told apart at every instant at which its reason
    changes."""
    changes = (before_s, pause_s, *chain.from_iterable(holds))
    edges = {at_s for at_s in changes if from_s < at_s < to_s}
    for begin, end in pairwise(sorted({from_s, to_s, *edges}) if from_s < to_s else ()):
        middle = (begin + end) / 2
        if any(a <= middle < b for a, b in holds):
            part = "held"
        elif middle < before_s:
            part = "after"
        else:
            part = "failures" if middle < pause_s else "waiting"
        yield Piece(part, begin, end)


@record
class Course:
    """An attempt by instants: it was set up until `ready_s`, what it did after `kept_s` was lost,
    and from `stop_s` on it saved."""

    ready_s: float
    kept_s: float
    stop_s: float


def course_of(attempt: Attempt, job: LiveJob, begin_s: float, end_s: float) -> Course:
    """Return the course of an attempt from `begin_s` to `end_s`."""
    ready_s = min(end_s, max(begin_s, _worked_from_s(attempt, begin_s)))
    stop_s = end_s if attempt.stop_s is None else min(end_s, max(ready_s, attempt.stop_s))
    worked_s = stop_s - ready_s
    return Course(ready_s, ready_s + worked_s * _kept(attempt, job, worked_s), stop_s)


def _ran(attempt: Attempt, job: LiveJob, begin_s: float, end_s: float) -> list[Piece]:
    """Return an attempt: set-up, work that counts, work that was lost, saving, one after
    another."""
    course = course_of(attempt, job, begin_s, end_s)
    lost = "failures" if attempt.stop_s is None else "switching"
    return [
        Piece("switching", begin_s, course.ready_s),
        Piece("work", course.ready_s, course.kept_s, attempt.rate),
        Piece(lost, course.kept_s, course.stop_s),
        Piece("switching", course.stop_s, end_s),
    ]


def _worked_from_s(attempt: Attempt, begin_s: float) -> float:
    """Return when its set-up was over: as its command reported, or as long as it was believed to
    take."""
    progress = None if attempt.ended is None else attempt.ended.progress
    if (
        progress is not None
        and progress.began_s is not None
        and progress.step > progress.first_step
    ):
        return progress.began_s
    return begin_s + attempt.setup_s


def _kept(attempt: Attempt, job: LiveJob, productive_s: float) -> float:
    """Return the share of an attempt's work that did not have to be done again."""
    ended = attempt.ended
    if ended is None or ended.exit_status == 0:
        return 1.0
    saved = ended.exit_status == SAVED_AND_STOPPED
    progress = ended.progress
    if progress is not None and (progress.total_steps or job.submission.total_steps):
        if progress.step <= progress.first_step:
            return 0.0
        if saved and progress.saved_step is None:
            return 1.0
        kept = progress.first_step if progress.saved_step is None else progress.saved_step
        return min(
            1.0, max(0.0, (kept - progress.first_step) / (progress.step - progress.first_step))
        )
    if saved:
        return 1.0
    if job.submission.job.profile.checkpoint_every_s is None or productive_s <= 0:
        return 0.0
    return 1.0 - lost_s(job.submission.job, productive_s) / productive_s
