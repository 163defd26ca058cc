"""GPU-hours by user, tenant, day and cause: recounted from what ran, and kept when jobs are
dropped."""

import math
import sqlite3
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Profile
from optsched.control.account import AMOUNTS, CAUSES, bill_of, day_of
from optsched.control.api.accounting import account
from optsched.control.api.bodies import AccountQuery
from optsched.control.api.peer import Caller
from optsched.control.budgets import Meter, Spent, period_s
from optsched.control.journal.events import Held, Pruned, Released
from optsched.control.journal.journal import Journal, JournalError
from optsched.control.journal.ledger import Key
from optsched.control.journal.retention import Retention
from optsched.control.settings import RetentionSettings

from .hostile import MEMORY, Hostile

DAY_S = 86400.0
SHORT = RetentionSettings(rounds="1d", jobs="1d", outputs="1d", profiles="1d")
ROOT = Caller(0, "root", True, True)
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.fixed_dictionaries(
                {
                    "gpus": st.integers(1, 8),
                    "user": st.sampled_from(["ann", "bob"]),
                    "tenant": st.sampled_from([None, "a", "b"]),
                    "duration_s": st.just(50.0),
                    "profile": st.sampled_from([Profile(), Profile(checkpoint_s=1.0)]),
                    "max_nodes": st.just(2),
                }
            ),
            st.integers(1, 60),
            st.sampled_from([0.0, 3.0, -1.0]),
            st.sampled_from([0, 0, 3]),
            st.just(None),
        ),
        st.tuples(st.just("run"), st.integers(1, 30)),
        st.tuples(st.sampled_from(["hold", "release", "cancel"]), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.sampled_from([DAY_S, 3 * DAY_S])),
        st.tuples(st.just("down"), st.sampled_from(["n0", "n1"])),
        st.tuples(st.just("up")),
        st.tuples(st.just("restart"), st.just("")),
        st.tuples(st.just("drop")),
    ),
    min_size=5,
    max_size=25,
)


class Asked:
    """What `account` needs of a service."""

    def __init__(self, lab: Hostile) -> None:
        self.lab = lab

    def ask(self, call: Any) -> Any:
        return call(self.lab.controller)


def rows(lab: Hostile, by: str = "user,tenant,day", caller: Caller = ROOT, **query: Any) -> Any:
    return account(Asked(lab), caller, AccountQuery(by=by, **query))  # type: ignore[arg-type]


def recounted(lab: Hostile) -> dict[Key, float]:
    """GPU-seconds by day, user and tenant, from the processes that there were."""
    used: dict[Key, float] = {}
    for key, process in lab.executor.processes.items():
        if process.order is None:
            continue
        user, tenant = lab.owners[key.job]  # type: ignore[attr-defined]
        gpus = sum(slot.gpus for slot in process.order.placement)
        end_s = lab.clock.at_s if process.ended_s is None else process.ended_s
        for day in range(day_of(process.begun_s), day_of(end_s) + 1):
            first_s, last_s = max(process.begun_s, day * DAY_S), min(end_s, (day + 1) * DAY_S)
            who = Key(day, user, tenant or "")
            used[who] = used.get(who, 0.0) + gpus * (last_s - first_s)
    return {who: gpu_s for who, gpu_s in used.items() if gpu_s > 0}


@given(EVENTS)
@settings(max_examples=25)
def test_sums_agree_with_what_ran_whatever_was_dropped(events: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        lab = Hostile(Path(name))
        lab.owners = {}  # type: ignore[attr-defined]
        submitted: Counter[str] = Counter()
        for what, *rest in events:
            if what == "drop":
                Retention(SHORT).drop(lab.controller)
                continue
            lab.do(what, *rest)
            metered(lab)
            if what == "submit":
                job = rest[0]
                submitted[job["user"]] += 1
                lab.owners[lab.names[-1]] = job["user"], job["tenant"]  # type: ignore[attr-defined]
        lab.run(2)
        answer, expected = rows(lab), recounted(lab)
        of_accounts: Counter[tuple[str, str]] = Counter()
        for who, gpu_s in expected.items():
            of_accounts[who.user, who.tenant] += gpu_s
        for spent in (
            metered(lab),
            metered(lab, Meter(lab.controller.state, lab.controller.journal)),
        ):
            assert {
                who: pytest.approx(gpu_s) for who, gpu_s in spent.items() if gpu_s
            } == of_accounts
        told = {
            (row.day, row.user, row.tenant): 3600 * row.gpu_h for row in answer.rows if row.gpu_h
        }
        assert told.keys() == {
            (f"{np_day(key.day)}", key.user, key.tenant or None) for key in expected
        }
        for key, gpu_s in expected.items():
            who = np_day(key.day), key.user, key.tenant or None
            assert math.isclose(told[who], gpu_s, rel_tol=1e-9, abs_tol=1e-6)
        by_user = {row.user: row.jobs for row in rows(lab, "user").rows}
        assert by_user == dict(submitted)
        assert math.isclose(
            answer.total.gpu_h, math.fsum(row.gpu_h for row in rows(lab, "job").rows), abs_tol=1e-9
        )
        lab.controller.journal.close()


def metered(lab: Hostile, meter: Meter | None = None) -> Spent:
    """What budgets are measured by, counted as it was used or from what is left of it."""
    return (meter or lab.controller.meter).spent(0.0, lab.controller.clock.now_s())


def np_day(day: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(day * DAY_S, UTC).strftime("%Y-%m-%d")


def causes(lab: Hostile) -> dict[str, float]:
    """Seconds of 8 GPUs by what they were spent on."""
    total = rows(lab).total
    spent = {cause: 450 * getattr(total, f"{cause}_gpu_h") for cause in CAUSES}
    return {cause: seconds for cause, seconds in spent.items() if seconds}


def submit(lab: Hostile, status: int = 0, saves_s: float = 0.0, **more: Any) -> str:
    demands = {"gpus": 8, "max_nodes": 2, "duration_s": 100.0, **more}
    return lab.submit(demands, 100.0, saves_s, status, None)


def test_what_completes_was_work(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    submit(lab, profile=Profile(startup_s=10.0))
    lab.run(110)
    assert causes(lab) == {"setup": 10.0, "work": 90.0}


def test_what_fails_is_lost_to_failure(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    submit(lab, status=3, profile=Profile(checkpoint_every_s=None))
    lab.run(102)
    assert causes(lab) == {"failed": 100.0}


def test_a_node_that_goes_takes_work_with_it(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    submit(lab)
    lab.run(40)
    lab.do("down", "n0")
    lab.run(2)
    assert causes(lab) == {"lost": 40.0}


@pytest.mark.parametrize(("saves_s", "spent"), [(5.0, "work"), (-1.0, "stopped")])
def test_a_hold_costs_the_saving_and_what_was_not_saved(
    tmp_path: Path, saves_s: float, spent: str
) -> None:
    lab = Hostile(tmp_path)
    name = submit(lab, saves_s=saves_s)
    lab.run(40)
    lab.controller.record(Held(job=name, by="me"))
    lab.run(20)
    took_s = 5.0 if saves_s > 0 else 6.0  # its grace
    assert causes(lab) == {spent: 40.0, "saving": took_s}
    lab.controller.record(Released(job=name, by="me"))


def test_preemption_is_told_apart(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    name = submit(lab, saves_s=-1.0, profile=Profile(checkpoint_every_s=1000.0))
    lab.run(40)
    submit(lab, duration_s=1.0, weight=1e9)
    lab.run(20)
    assert lab.controller.state.jobs[name].preemptions == 1
    assert causes(lab)["preempted"] == 40.0 and rows(lab).total.preemptions == 1


def test_days_users_and_tenants_are_asked_for(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    for user, tenant in (("ann", "a"), ("bob", "b"), ("bob", None)):
        lab.submit(
            {"gpus": 4, "duration_s": 50.0, "user": user, "tenant": tenant}, 3600.0, 0.0, 0, None
        )
        lab.run(7300, turn_s=100.0)
        lab.clock.at_s += DAY_S
    assert [(row.user, round(row.gpu_h, 1)) for row in rows(lab, "user").rows] == [
        ("ann", 4.0),
        ("bob", 8.0),
    ]
    ann = Caller(1, "ann", False, False)
    assert [row.user for row in rows(lab, "user", ann).rows] == ["ann"]
    with pytest.raises(Exception, match="only administrators"):
        rows(lab, "user", ann, user="bob")
    assert [row.tenant for row in rows(lab, "tenant", user="bob").rows] == [None, "b"]
    from datetime import date

    first = rows(lab, "day", to_day=date(1970, 1, 1))
    assert [(row.day, round(row.gpu_h, 1)) for row in first.rows] == [("1970-01-01", 4.0)]
    assert rows(lab, "tenant", tenant="b").total.jobs == 1
    before = rows(lab)
    lab.clock.at_s += 5 * DAY_S
    Retention(SHORT).drop(lab.controller)
    assert not lab.controller.state.jobs
    assert rows(lab).rows == before.rows and rows(lab).uncounted_before_s is None
    lab.restart()
    assert rows(lab).rows == before.rows


def dropped(tmp_path: Path) -> Hostile:
    lab = Hostile(tmp_path)
    submit(lab)
    lab.run(110)
    lab.clock.at_s += 5 * DAY_S
    Retention(SHORT).drop(lab.controller)
    return lab


@pytest.mark.parametrize(
    "statement", ["DELETE FROM ledger", "UPDATE ledger SET user = 'other'", "DROP TABLE ledger"]
)
def test_what_is_kept_of_dropped_jobs_cannot_be_changed(tmp_path: Path, statement: str) -> None:
    lab = dropped(tmp_path)
    lab.controller.journal.close()
    with sqlite3.connect(lab.folder / "journal") as file:
        file.execute(statement)
    with pytest.raises(JournalError, match="is damaged"):
        list(Journal(lab.folder / "journal").entries())


def test_what_an_earlier_version_dropped_is_said_to_be_missing(tmp_path: Path) -> None:
    lab = dropped(tmp_path)
    event = lab.controller.journal.last_pruned()
    assert event is not None and event.uncounted_s is None
    old = Pruned(jobs_before_s=5.0, rounds_before_s=None, jobs=1, rounds=0, events=1, digest="")
    assert old.uncounted_s == 5.0


def test_a_bill_has_no_other_amounts(tmp_path: Path) -> None:
    lab = dropped(tmp_path)
    submit(lab)
    lab.run(10)
    state = lab.controller.state
    bill = bill_of(state, state.jobs.values(), lab.clock.at_s)
    assert {name for sums in bill.values() for name in sums} <= set(AMOUNTS)


@pytest.mark.parametrize(
    ("period", "first", "after"),
    [
        ("day", "2028-02-29", "2028-03-01"),
        ("week", "2028-02-28", "2028-03-06"),
        ("month", "2028-02-01", "2028-03-01"),
        ("year", "2028-01-01", "2029-01-01"),
    ],
)
def test_periods_are_those_of_the_calendar(period: Any, first: str, after: str) -> None:
    from datetime import UTC, datetime

    begin_s, end_s = (
        datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() for day in (first, after)
    )
    seen_s = datetime(2028, 2, 29, 13, tzinfo=UTC).timestamp()
    assert period_s(period, seen_s) == (begin_s, end_s)
    assert period_s(period, begin_s) == (begin_s, end_s) and period_s(period, end_s)[0] == end_s
    assert period_s(period, end_s - 0.001)[1] == end_s
    assert period_s("forever", seen_s) == (0.0, math.inf)
    for odd_s in (-1e9, 1e15):  # clocks may say anything
        begin_s, end_s = period_s(period, odd_s)
        assert -7 * DAY_S < begin_s < end_s
