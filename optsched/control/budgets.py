"""What budgets of GPU-hours are measured by: GPU time that users and tenants have used in the
period that runs, as `optsched account` counts it."""

from datetime import UTC, date, datetime
from math import inf

from .account import DAY_S, day_of
from .journal.events import AttemptEnded, Cleared, Event, StartRefused
from .journal.journal import Journal
from .journal.state import Attempt, LiveJob, State
from .settings import Period

LAST_DAY, LAST_S = 10**9, 2.5e11
"""No day is later, and no clock that has a date."""
EPOCH = date(1970, 1, 1).toordinal()
Spent = dict[tuple[str, str], float]
"""GPU-seconds by user and tenant; "" is nobody, or no tenant."""


def period_s(period: Period, now_s: float) -> tuple[float, float]:
    """Return when the period that runs at a Unix time began and ends: a calendar's, in UTC."""
    if period == "forever":
        return 0.0, inf
    today = datetime.fromtimestamp(min(max(0.0, now_s), LAST_S), UTC).date()
    if period == "day":
        first, after = today.toordinal(), today.toordinal() + 1
    elif period == "week":
        first = today.toordinal() - today.weekday()
        after = first + 7
    else:
        month = 1 if period == "year" else today.month
        later = today.year * 12 + month - 1 + (12 if period == "year" else 1)
        first = date(today.year, month, 1).toordinal()
        after = date(later // 12, later % 12 + 1, 1).toordinal()
    return (first - EPOCH) * DAY_S, (after - EPOCH) * DAY_S


class Meter:
    """Counts GPU time since the beginning of a period: once from the ledger and from the jobs that
    there are, then as attempts end. It hears of all events once they have been taken in."""

    def __init__(self, state: State, journal: Journal) -> None:
        self._state, self._journal = state, journal
        self._from_s: float | None = None
        self._ended: Spent = {}

    def heard(self, at_s: float, event: Event) -> None:
        """Count an attempt that has ended."""
        if self._from_s is not None and isinstance(event, AttemptEnded | StartRefused | Cleared):
            job = self._state.jobs[event.job]
            self._add(self._ended, job, self._state.attempt(event.key), at_s)

    def spent(self, from_s: float, now_s: float) -> Spent:
        """Return what was used since `from_s`, the beginning of a day, until now."""
        if from_s != self._from_s:
            self._recount(from_s, now_s)
        spent = self._ended.copy()
        for job in self._state.open.values():
            if job.live is not None:
                self._add(spent, job, job.live, now_s)
        return spent

    def _recount(self, from_s: float, now_s: float) -> None:
        self._from_s, self._ended = from_s, {}
        for key, amounts in self._journal.used(day_of(from_s), LAST_DAY):
            own = (amount for name, amount in amounts.items() if name.endswith("_gpu_s"))
            charge(self._ended, (key.user, key.tenant), sum(own))
        for job in self._state.jobs.values():
            for attempt in job.attempts:
                if attempt.ended is not None:
                    self._add(self._ended, job, attempt, now_s)

    def _add(self, spent: Spent, job: LiveJob, attempt: Attempt, now_s: float) -> None:
        """Add the GPU time of an attempt since the period began."""
        if attempt.started_s is None or self._from_s is None:
            return
        begin_s, end_s = attempt.span_s(job.submit_s, now_s)
        gpus = sum(slot.gpus for slot in attempt.placement)
        noun = job.submission.job
        gpu_s = gpus * max(0.0, end_s - max(begin_s, self._from_s))
        charge(spent, (noun.user or "", noun.tenant or ""), gpu_s)


def charge(spent: Spent, account: tuple[str, str], gpu_s: float) -> None:
    """Add GPU-seconds to an account."""
    spent[account] = spent.get(account, 0.0) + gpu_s
