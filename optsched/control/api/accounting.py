"""What was used: from the ledger of dropped jobs, and from those that are still there."""

from collections.abc import Collection, Iterable, Iterator
from datetime import date
from itertools import chain

from ...frozen import record
from ..account import AMOUNTS, CAUSES, COUNTS, bill_of, day_of
from ..controller import Controller
from ..journal.ledger import Key, Sums
from ..journal.state import LiveJob, State
from .answers import Account, AccountRow
from .bodies import ACCOUNT_BY, AccountQuery
from .peer import Caller
from .refusal import HttpError
from .service import Service

MOST_ROWS = 100_000
EPOCH = date(1970, 1, 1).toordinal()
Entry = tuple[Key, str, Sums]
"""Amounts of a job; its name is "" where they are of several that were dropped."""


@record
class Scope:
    """Which amounts are asked for: days, and a user and a tenant, None for all."""

    first: int
    last: int
    user: str | None
    tenant: str | None

    def holds(self, key: Key) -> bool:
        """Tell whether amounts are among those asked for."""
        return self.first <= key.day <= self.last and self.tenant in (None, key.tenant)

    def may_have(self, job: LiveJob) -> bool:
        """Tell whether a job may have used anything of what is asked for."""
        return (
            self.user in (None, job.submission.job.user)
            and day_of(job.submit_s) <= self.last
            and (job.finished_s is None or day_of(job.finished_s) >= self.first)
        )


def account(service: Service, caller: Caller, query: AccountQuery) -> Account:
    """Return what was used, by user, tenant, day or job. Raises HttpError: 403 for who asks for
    others than himself and may not, 422 for more rows than are sent."""
    scope = _scope(caller, query)
    seen = service.ask(lambda own: _seen(own, scope))
    # What has finished does not change any more, so nobody need wait for it to be counted.
    finished = (job for job in seen.jobs if job.id not in seen.going_on and scope.may_have(job))
    entries = chain(seen.entries, _entries(seen.state, finished, seen.now_s))
    sums, total = _summed(entries, scope, query.by.split(","))
    return Account(
        now_s=seen.now_s,
        rows=tuple(_row(row, sums[row]) for row in sorted(sums)),
        total=_row(("", "", "", ""), total),
        uncounted_before_s=seen.uncounted_s,
    )


def _scope(caller: Caller, query: AccountQuery) -> Scope:
    if not caller.all_jobs and query.user not in (None, caller.name):
        raise HttpError(403, "only administrators see what others use; leave `user` out")
    scope = Scope(
        0 if query.from_day is None else query.from_day.toordinal() - EPOCH,
        date.max.toordinal() if query.to_day is None else query.to_day.toordinal() - EPOCH,
        query.user if caller.all_jobs else caller.name,
        query.tenant,
    )
    if scope.first > scope.last:
        raise HttpError(422, "from_day lies after to_day; swap them")
    return scope


def _summed(
    entries: Iterable[Entry], scope: Scope, by: Collection[str]
) -> tuple[dict[tuple[str, ...], Sums], Sums]:
    """Return the amounts that were asked for, by what is in `by`, and all of them."""
    sums: dict[tuple[str, ...], Sums] = {}
    total: Sums = {}
    for key, job, amounts in entries:
        if not scope.holds(key):
            continue
        day = "" if "day" not in by else date.fromordinal(EPOCH + key.day).isoformat()
        named = dict(zip(ACCOUNT_BY, (key.user, key.tenant, day, job), strict=True))
        row = tuple(named[name] if name in by else "" for name in ("day", "user", "tenant", "job"))
        if row not in sums and len(sums) == MOST_ROWS:
            raise HttpError(422, f"there are more than {MOST_ROWS} rows; ask for fewer days")
        for own in (sums.setdefault(row, {}), total):
            for name, amount in amounts.items():
                own[name] = own.get(name, 0.0) + amount
    return sums, total


@record
class Seen:
    """The `entries` of dropped jobs and of those `going_on`, until now; all jobs that are there."""

    now_s: float
    entries: list[Entry]
    state: State
    jobs: list[LiveJob]
    going_on: frozenset[str]
    uncounted_s: float | None


def _seen(controller: Controller, scope: Scope) -> Seen:
    state, journal, now_s = controller.state, controller.journal, controller.clock.now_s()
    entries = [(key, "", sums) for key, sums in journal.used(scope.first, scope.last, scope.user)]
    entries += _entries(state, filter(scope.may_have, state.open.values()), now_s)
    pruned = journal.last_pruned()
    uncounted_s = None if pruned is None else pruned.uncounted_s
    jobs = [*state.jobs.values()]
    return Seen(now_s, entries, state, jobs, frozenset(state.open), uncounted_s)


def _entries(state: State, jobs: Iterable[LiveJob], now_s: float) -> Iterator[Entry]:
    for job in jobs:
        for key, sums in bill_of(state, [job], now_s).items():
            yield key, job.id, sums


def _row(named: tuple[str, ...], sums: Sums) -> AccountRow:
    day, user, tenant, job = (name or None for name in named)
    hours = {
        name.removesuffix("_s") + "_h": sums.get(name, 0.0) / 3600
        for name in AMOUNTS
        if name not in COUNTS
    }
    return AccountRow(
        day=day,
        user=user,
        tenant=tenant,
        job=job,
        gpu_h=sum(hours[f"{cause}_gpu_h"] for cause in CAUSES),
        **{name: int(sums.get(name, 0)) for name in COUNTS},
        **hours,  # type: ignore[arg-type]
    )
