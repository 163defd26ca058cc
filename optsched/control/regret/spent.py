"""Where the time of each job went, measured: from the journal's attempts, to the second."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from ...executors.base import SAVED_AND_STOPPED
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


Span = tuple[float, float]


class Past:
    """The history that entries of a journal tell: `state` at their end, when jobs were on hold, and
    until when a job paused after each attempt."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.state = State()
        self.holds: dict[str, list[Span]] = {}
        self.pauses: dict[tuple[str, int], float] = {}
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
                self.holds[event.submission.job.id] = [(at_s, float("inf"))]
        elif isinstance(event, Held):
            self.holds.setdefault(event.job, []).append((at_s, float("inf")))
        elif isinstance(event, Released):
            spans = self.holds.get(event.job, [])
            self.holds[event.job] = [(begin, min(end, at_s)) for begin, end in spans]
        elif isinstance(event, AttemptEnded | Cleared | StartRefused):
            job = self.state.jobs[event.job]
            self.pauses[event.job, event.number] = job.ready_s
            if job.held is not None and not any(
                end == float("inf") for _, end in self.holds.get(event.job, [])
            ):
                self.holds.setdefault(event.job, []).append((at_s, float("inf")))

    def spent(self, from_s: float, to_s: float) -> list[Spent]:
        """The jobs that completed in a period, or did something useful in it and may still
        complete, by submission; what they did before and after it does not count."""
        found = []
        for job in self.state.jobs.values():
            if job.finished in ("failed", "cancelled") or not job.attempts:
                continue
            end_s = _end_s(job.attempts[-1], to_s)
            completed = job.finished == "completed" and end_s <= to_s
            if completed and end_s <= from_s:
                continue
            one = self._spent(
                job, max(job.submit_s, from_s), end_s if completed else to_s, completed
            )
            if one.work_s > 0 and (completed or one.end_s > one.release_s):
                found.append(one)
        return found

    def _spent(self, job: LiveJob, release_s: float, end_s: float, completed: bool) -> Spent:
        holds = self.holds.get(job.id, [])
        for begin, end in holds:
            if begin <= release_s < end:
                release_s = min(end, end_s)
        found = Spent(job, release_s, end_s, completed)
        before_s = max(
            (
                float(other.finished_s or 0.0)
                for one in job.submission.job.after
                if (other := self.state.jobs.get(one)) is not None
            ),
            default=0.0,
        )
        pieces: list[Piece] = []
        at_s, pause_s, first = job.submit_s, 0.0, True
        for attempt in job.attempts:
            begin_s = attempt.intended_s if attempt.started_s is None else attempt.started_s
            begin_s = max(at_s, min(begin_s, _end_s(attempt, end_s)))
            pieces += _gap(at_s, begin_s, holds, before_s, pause_s)
            at_s = max(at_s, _end_s(attempt, end_s))
            pause_s = self.pauses.get((job.id, attempt.key.number), 0.0)
            ran = _ran(attempt, job, begin_s, at_s)
            pieces += ran
            if at_s > release_s and first:
                found.setup_s, first = (
                    max(0.0, ran[0].end_s - max(release_s, ran[0].begin_s)),
                    False,
                )
        pieces = [
            Piece(one.part, max(one.begin_s, release_s), min(one.end_s, end_s), one.rate)
            for one in pieces
            if one.end_s > release_s and one.begin_s < end_s
        ]
        if not completed:  # to the end of its last useful work
            useful = [
                i for i, one in enumerate(pieces) if one.part == "work" and one.end_s > one.begin_s
            ]
            pieces = pieces[: useful[-1] + 1] if useful else []
            found.end_s = pieces[-1].end_s if pieces else release_s
        for one in pieces:
            found.parts[one.part] += one.end_s - one.begin_s
            found.work_s += (one.end_s - one.begin_s) * one.rate
        return found


def useful_work_s(job: LiveJob) -> float:
    """Reference work that the ended attempts of a job did and did not have to do again, as it was
    measured: what those that failed did counts only as far as it was saved."""
    return math.fsum(
        (one.end_s - one.begin_s) * one.rate
        for attempt in job.attempts
        if attempt.started_s is not None and attempt.ended is not None
        for one in _ran(
            attempt, job, attempt.started_s, max(attempt.started_s, _end_s(attempt, 0.0))
        )
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a job's time, and how much useful work was done in each second of it."""

    part: str
    begin_s: float
    end_s: float
    rate: float = 0.0


def _end_s(attempt: Attempt, now_s: float) -> float:
    """When nothing of it was left; `now_s` where something is."""
    if attempt.ended is None or attempt.ended_s is None:
        return now_s
    return attempt.ended_s if attempt.ended.ended_s is None else attempt.ended.ended_s


def _gap(
    from_s: float, to_s: float, holds: list[Span], before_s: float, pause_s: float
) -> list[Piece]:
    """A time in which nothing of the job ran: told apart at every instant at which its reason
    changes."""
    if to_s <= from_s:
        return []
    edges = sorted(
        {
            from_s,
            to_s,
            *(
                one
                for one in (before_s, pause_s, *(edge for span in holds for edge in span))
                if from_s < one < to_s
            ),
        }
    )
    found = []
    for begin, end in pairwise(edges):
        middle = (begin + end) / 2
        if any(a <= middle < b for a, b in holds):
            part = "held"
        elif middle < before_s:
            part = "after"
        elif middle < pause_s:
            part = "failures"
        else:
            part = "waiting"
        found.append(Piece(part, begin, end))
    return found


def _ran(attempt: Attempt, job: LiveJob, begin_s: float, end_s: float) -> list[Piece]:
    """An attempt: set-up, work that counts, work that was lost, saving, one after another."""
    ready_s = min(end_s, max(begin_s, _worked_from_s(attempt, begin_s)))
    stop_s = end_s if attempt.stop_s is None else min(end_s, max(ready_s, attempt.stop_s))
    lost_from_s = ready_s + (stop_s - ready_s) * _kept(attempt, job, stop_s - ready_s)
    return [
        Piece("switching", begin_s, ready_s),
        Piece("work", ready_s, lost_from_s, attempt.rate),
        Piece("failures" if attempt.stop_s is None else "switching", lost_from_s, stop_s),
        Piece("switching", stop_s, end_s),
    ]


def _worked_from_s(attempt: Attempt, begin_s: float) -> float:
    """When its set-up was over: as its command reported, or as long as it was believed to take."""
    progress = None if attempt.ended is None else attempt.ended.progress
    if (
        progress is not None
        and progress.began_s is not None
        and progress.step > progress.first_step
    ):
        return progress.began_s
    return begin_s + attempt.setup_s


def _kept(attempt: Attempt, job: LiveJob, productive_s: float) -> float:
    """The share of an attempt's work that did not have to be done again."""
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
