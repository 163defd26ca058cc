"""A controller that nothing stops: hostile jobs, users, clocks, nodes and edits of cluster.toml."""

import itertools
import json
import math
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from optsched import Job, Profile
from optsched.control import clock, deciding, seen
from optsched.control.clock import SteadyClock
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import (
    AttemptEnded,
    Cancelled,
    Cleared,
    Held,
    Noted,
    StopIntended,
    Submitted,
)
from optsched.control.journal.journal import JournalError
from optsched.control.journal.log import BugLog
from optsched.control.loop import Loop
from optsched.control.settings import read_settings
from optsched.control.submission import Submission
from optsched.control.what_if.future import outlook
from optsched.control.what_if.snapshot import snapshot
from optsched.errors import InputError
from optsched.executors.base import (
    MOST_COST_S,
    AttemptKey,
    AttemptState,
    NodeStatus,
    Observation,
    Progress,
)
from optsched.files import dump_instance, load_instance
from optsched_solvers.policies.parts import priced_round

from .hostile import HISTORIES, Hostile, check_history, node


@given(events=HISTORIES)
@settings(max_examples=30)
def test_nothing_stops_it(events: list[Any]) -> None:
    check_history(events)


@pytest.fixture
def lab(tmp_path: Path) -> Hostile:
    return Hostile(tmp_path)


def submit(
    lab: Hostile, gpus: int = 4, seconds: float = 30.0, saves_s: float = 1.0, **job: Any
) -> str:
    demands = {
        "gpus": gpus,
        "duration_s": seconds,
        "profile": Profile(checkpoint_s=1.0, restore_s=1.0),
        **job,
    }
    return lab.submit(demands, seconds, saves_s, 0, job.pop("total_steps", None))


def status(lab: Hostile) -> dict[str, str]:
    return {name: job.status for name, job in lab.controller.state.jobs.items()}


@pytest.mark.parametrize(
    "said",
    [
        {"at_s": 1.7e12, "began_s": 1.6e12, "saved_at_s": 1.7e12, "saved_step": 3},
        {"total_steps": 10**12},
        {"total_steps": 10**12, "began_s": 1.0, "step": 3},
        {"checkpoint_s": 1e9, "restore_s": 1e9},
        {"began_s": 8.9e9},
        {"saved_step": 0, "saved_at_s": 0.0},
        {"total_steps": math.inf, "began_s": math.nan},
        {"step": -1},
        {"step": "many"},
        {"first_step": 10**15, "total_steps": 1},
    ],
    ids=str,
)
def test_what_a_job_says_stops_nobody(lab: Hostile, said: dict[str, Any]) -> None:
    bad = submit(lab, gpus=8, seconds=60.0)
    lab.executor.reports[bad] = {
        "step": 5,
        "at_s": lab.clock.at_s + 1,
        "began_s": lab.clock.at_s,
        **said,
    }
    lab.run(5)
    other = submit(lab, gpus=4, seconds=5.0)
    lab.run(5)
    lab.restart()
    lab.run(150)
    assert status(lab) == {bad: "completed", other: "completed"}
    assert not lab.bugs and not lab.controller.left_out


def test_what_cannot_be_is_taken_as_not_said() -> None:
    assert Progress.reported(
        {"step": 1, "at_s": 2.0, "began_s": 1.7e12, "total_steps": 1.5, "checkpoint_s": 1e9}
    ) == (Progress(step=1, at_s=2.0))
    assert Progress.reported(
        {"step": 1.0, "at_s": 2, "restore_s": MOST_COST_S, "saves": True}
    ) == Progress(step=1, at_s=2.0, restore_s=MOST_COST_S, saves=True)
    assert Progress.reported({"step": 1, "at_s": 1.7e12}) is None


@pytest.mark.parametrize("days", [1, 31, 400, 30000])
def test_who_has_waited_for_long_weighs_no_more_than_there_is(lab: Hostile, days: int) -> None:
    submit(lab, gpus=8, seconds=1000.0, saves_s=-1.0, preemptible=False)
    lab.run(3)
    waits = submit(lab, gpus=8, weight=1e9)
    lab.clock.at_s += days * 86400.0
    lab.run(70)
    assert status(lab)[waits] == "completed" and not lab.bugs


@pytest.mark.parametrize(
    ("edit", "demands", "why"),
    [
        ("tenants", {"tenant": "a"}, "tenant 'a' is not in tenants"),
        ("resources", {"resources": {"licence": 1.0}}, "the cluster has no 'licence'"),
    ],
)
def test_an_edit_of_the_cluster_keeps_those_it_is_about(
    lab: Hostile, edit: str, demands: dict[str, Any], why: str
) -> None:
    """What runs goes on and keeps its GPUs, who waits is told why, and the others go on."""
    runs = submit(lab, gpus=4, seconds=100.0, **demands)
    lab.run(3)
    waits = submit(lab, gpus=8, seconds=5.0, **demands)
    lab.edit = edit
    lab.restart()
    other = submit(lab, gpus=4, seconds=5.0)
    lab.run(20)
    assert status(lab) == {runs: "running", waits: "waiting", other: "completed"}
    assert why in lab.controller.left_out[runs] and why in lab.controller.left_out[waits]
    for name in (runs, waits):
        assert why in " ".join(explain_job(snapshot(lab.controller), name).sentences)
    notes = [
        entry.event.text
        for entry in lab.controller.journal.entries()
        if isinstance(entry.event, Noted)
    ]
    assert len([text for text in notes if why in text]) == 2
    ahead = outlook(snapshot(lab.controller))
    assert set(ahead.left_out) == {runs, waits} and ahead.instance.cluster.total_gpus == 4
    load_instance(dump_instance(ahead.instance))
    lab.edit = ""
    lab.restart()
    lab.run(120)
    assert set(status(lab).values()) == {"completed"} and not lab.bugs


@pytest.mark.parametrize("how", ["restart", "reload"])
def test_a_quota_below_what_runs_and_may_not_be_preempted(lab: Hostile, how: str) -> None:
    runs = submit(lab, gpus=4, seconds=60.0, tenant="a", preemptible=False)
    lab.run(3)
    lab.do(how, "quota")
    other, waits = submit(lab, gpus=4, seconds=5.0), submit(lab, gpus=1, seconds=5.0, tenant="a")
    whole = submit(lab, gpus=8, seconds=5.0)
    lab.run(20)
    assert status(lab) == {runs: "running", other: "completed", waits: "waiting", whole: "waiting"}
    assert not lab.bugs
    of_a, of_none = (
        " ".join(explain_job(snapshot(lab.controller), name).sentences) for name in (waits, whole)
    )
    assert "Its tenant a may hold 1 GPU and holds 4" in of_a and "never" not in of_a
    assert "It needs 8 GPUs, and only 4 of the 8" in of_none and "enant a" not in of_none
    lab.run(60)
    assert set(status(lab).values()) == {"completed"}


@pytest.mark.parametrize(
    "more", [{"gpus": 3}, {"gpus": 0}, {"cpus": 0}, {"memory_gib": math.nan}, {"gpus": 10**9}]
)
def test_a_node_that_shrinks_below_what_is_held_of_it(lab: Hostile, more: dict[str, Any]) -> None:
    profile = Profile(cpus_per_gpu={2: 1.0}, checkpoint_s=1.0)
    runs = submit(lab, gpus=4, seconds=60.0, profile=profile)
    lab.run(3)
    at = lab.controller.state.jobs[runs].attempts[0].placement[0].node
    lab.executor.nodes = tuple(
        node(at, **more) if one.name == at else one for one in lab.executor.nodes
    )
    other = submit(lab, gpus=4, seconds=5.0, profile=profile)
    lab.run(20)
    assert status(lab) == {runs: "running", other: "completed"} and not lab.bugs
    lab.run(60)
    assert status(lab)[runs] == "completed"


def test_a_node_that_loses_a_label(lab: Hostile) -> None:
    """Who wants it and runs there goes on, out of rounds; nobody else is."""
    lab.executor.nodes = (node("n0", labels=("ib",)), node("n1"))
    runs = submit(lab, gpus=2, seconds=60.0, node_labels={"ib": "required"})
    beside = submit(lab, gpus=2, seconds=60.0)
    lab.run(3)
    lab.executor.nodes = (node("n0"), node("n1"))
    waits = submit(lab, gpus=2, seconds=5.0, node_labels={"ib": "required"})
    other = submit(lab, gpus=4, seconds=5.0)
    lab.run(20)
    assert status(lab) == {runs: "running", beside: "running", waits: "waiting", other: "completed"}
    assert list(lab.controller.left_out) == [runs] and not lab.bugs
    assert "for which label ib is required" in lab.controller.left_out[runs]
    lab.executor.nodes = (node("n0", labels=("ib",)), node("n1"))
    lab.run(70)
    assert set(status(lab).values()) == {"completed"}


def test_gpus_of_strangers_are_taken(lab: Hostile) -> None:
    lab.executor.stranger("n0", 2)
    lab.executor.stranger("n1", 1)
    names = [submit(lab, gpus=gpus, seconds=10.0) for gpus in (6, 3, 2)]
    lab.run(40)
    assert status(lab) == dict(zip(names, ("waiting", "completed", "completed"), strict=True))
    # nothing is started on them, which the executor would not do
    assert not lab.bugs and not lab.controller.state.jobs[names[0]].attempts
    lab.executor.strangers.clear()
    lab.run(70)
    assert set(status(lab).values()) == {"completed"}


@pytest.mark.parametrize("gpus", [4, 8])
@pytest.mark.parametrize("demand", [{}, {"labels": ("x",), "anti_affinity": {"x": "node"}}])
def test_a_node_that_goes_with_an_attempt_keeps_nobody_from_starting(
    lab: Hostile, gpus: int, demand: dict[str, Any]
) -> None:
    lost = submit(lab, gpus=gpus, seconds=300.0, labels=("x",), preemptible=False)
    lab.run(3)
    (attempt,) = lab.controller.state.live_attempts()
    gone = attempt.placement[0].node
    lab.executor.nodes = tuple(own for own in lab.executor.nodes if own.name != gone)
    after = submit(lab, gpus=0, seconds=30.0, **demand)
    lab.run(5)
    assert not lab.bugs
    assert status(lab)[lost] == "running"
    assert status(lab)[after] == ("running" if gpus == 4 or not demand else "waiting")


def test_a_node_that_goes_with_a_stranger_keeps_nobody_from_starting(lab: Hostile) -> None:
    lab.executor.stranger("n0", 1)
    lab.executor.nodes = (node("n1"),)
    first, second = submit(lab, gpus=2), submit(lab, gpus=2)
    lab.run(3)
    assert not lab.bugs
    assert status(lab) == {first: "running", second: "running"}


def test_a_start_with_a_clock_far_ahead_and_back(
    lab: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time()
    for wall_s in (now_s + 80 * 366 * 86400.0, 1e11):
        monkeypatch.setattr(clock.time, "time", lambda wall_s=wall_s: wall_s)
        ahead = SteadyClock(now_s).now_s()
        monkeypatch.setattr(clock.time, "time", lambda: now_s)
        assert now_s < SteadyClock(ahead).now_s() < 9.9e9
    monkeypatch.undo()
    jobs = [submit(lab, gpus=8, seconds=30.0) for _ in range(2)]
    lab.run(3)
    lab.clock.at_s += 3e9
    lab.restart()
    jobs.append(submit(lab, gpus=8, seconds=30.0))
    lab.run(150)
    assert [status(lab)[name] for name in jobs] == ["completed"] * 3 and not lab.bugs


def test_users_are_heard_when_rounds_fail(lab: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, held = submit(lab, gpus=4, seconds=100.0), submit(lab, gpus=4, seconds=100.0)
    lab.run(3)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of the round")

    with monkeypatch.context() as patch:
        patch.setattr(priced_round, "decide", broken)
        patch.setattr(deciding, "MOST_TRIES", 1)
        waits = submit(lab, gpus=4, seconds=5.0)
        lab.controller.record(Cancelled(job=runs, by="me"), Held(job=held, by="me"))
        lab.run(10)
        assert status(lab) == {runs: "cancelled", held: "held", waits: "waiting"}
        lab.look()
    notes = [
        entry.event.text
        for entry in lab.controller.journal.entries()
        if isinstance(entry.event, Noted)
    ]
    assert notes == [
        "deciding a round failed, and is tried again: RuntimeError: a bug of the round"
    ]
    assert lab.bugs and {bug.partition(": ")[2] for bug in lab.bugs} == {
        "RuntimeError: a bug of the round"
    }
    lab.controller._failing.clear()
    lab.run(70)
    assert status(lab)[waits] == "completed"


@pytest.mark.parametrize("together", [False, True])
def test_who_makes_rounds_fail_is_found_and_the_others_go_on(
    lab: Hostile, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    """One job, or two of them together."""
    names = [f"j{i}" for i in range(7)]
    bad = {"j2", "j5"} if together else {"j5"}

    def sometimes(instance: Any, *given: Any, **named: Any) -> Any:
        if bad <= set(instance.job):
            raise ZeroDivisionError("no room for this one")
        return decide(instance, *given, **named)

    decide = priced_round.decide
    monkeypatch.setattr(priced_round, "decide", sometimes)
    for _ in names:
        submit(lab, gpus=2, seconds=5.0)
    lab.run(30)
    done = {name for name, one in status(lab).items() if one == "completed"}
    assert done >= ({"j2"} if together else set(names)) - bad or "j5" in done
    if not together:
        assert status(lab)["j5"] == "waiting" and done == set(names) - bad
        assert (
            "ZeroDivisionError: no room for this one"
            in explain_job(snapshot(lab.controller), "j5").sentences[0]
        )
    monkeypatch.undo()
    lab.clock.at_s += 600.0
    lab.run(70)
    assert set(status(lab).values()) == {"completed"}


def test_a_start_that_fails_by_a_bug_holds_nothing(
    lab: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = lab.executor.start

    def sometimes(order: Any) -> None:
        if order.key.job == "j0":
            raise ValueError("embedded null byte")
        start(order)

    monkeypatch.setattr(lab.executor, "start", sometimes)
    bad, other = submit(lab, gpus=8), submit(lab, gpus=8, seconds=5.0)
    lab.run(300)
    assert status(lab) == {bad: "held", other: "completed"}
    assert "embedded null byte" in explain_job(snapshot(lab.controller), bad).sentences[-1]


def test_text_that_is_none_is_written_so_that_it_is_read_again(lab: Hostile) -> None:
    lab.executor.reason = "a\ud800b"
    bad = submit(lab, seconds=5.0)
    lab.run(10)
    lab.restart()
    attempt = lab.controller.state.jobs[bad].attempts[0]
    assert attempt.ended is not None and attempt.ended.reason == "a?b"


def test_what_could_not_be_read_again_is_not_written(lab: Hostile) -> None:
    last = lab.controller.journal.last
    with pytest.raises(ValueError):
        lab.controller.record(
            Submitted(
                submission=Submission(
                    job=Job(id="a", duration_s=math.nan), argv=("true",), directory="/"
                )
            )
        )
    assert lab.controller.journal.last == last and not lab.controller.state.jobs


def test_a_listener_that_fails_keeps_nobody_from_what_was_written(lab: Hostile) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError("the terminal is gone")

    lab.controller.listeners.append(broken)
    names = [submit(lab, seconds=5.0) for _ in range(2)]
    lab.controller.record(Cancelled(job=names[0], by="me"), Cancelled(job=names[1], by="me"))
    assert set(status(lab).values()) == {"cancelled"} and lab.bugs


def test_a_turn_that_fails_is_followed_by_others(
    lab: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []

    def step() -> float:
        turns.append(1)
        raise KeyError("bug")

    monkeypatch.setattr(lab.controller, "step", step)
    monkeypatch.setattr("optsched.control.loop.LOOK_S", 0.05)
    loop = Loop(lab.controller)
    thread = threading.Thread(target=loop.run)
    thread.start()
    until_s = time.monotonic() + 20
    while len(turns) < 2 and time.monotonic() < until_s:
        time.sleep(0.05)
    assert loop.ask(lambda one: one.clock.now_s()) == lab.clock.at_s
    loop.stop()
    thread.join(10)
    assert len(turns) >= 2 and not thread.is_alive() and lab.bugs[0] == "a turn: KeyError: 'bug'"


def test_bugs_are_logged_for_their_owner(tmp_path: Path) -> None:
    log = BugLog(tmp_path / "bugs.log")
    for _ in range(3):
        try:
            raise ValueError("a\ud800")
        except ValueError as error:
            log.heard("doing this", error)
    text = log.path.read_text()
    assert (
        text.count("Traceback") == 1
        and "doing this" in text
        and log.path.stat().st_mode & 0o777 == 0o600
    )
    BugLog(tmp_path / "no" / "bugs.log").heard("that", ValueError())


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("[resources]\nx = -1", "resources.x"),
        ('solver = "none"', "solver"),
        ('[[nodes]]\nname = "a"\ngpus = 10000000', "gpus"),
    ],
)
def test_a_cluster_that_no_round_could_be_about_is_refused(
    tmp_path: Path, line: str, where: str
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f'format = "optsched-cluster/1"\n{line}\n')
    with pytest.raises(InputError, match=where):
        read_settings(path)


def test_all_of_it_can_be_sent(lab: Hostile) -> None:
    submit(lab, duration_s=1e10)
    lab.run(3)
    json.dumps(explain_job(snapshot(lab.controller), "j0").facts, allow_nan=False)


@pytest.mark.parametrize("which", ["journal", "journal-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_journal_that_is_taken_away_is_noticed_before_anything_is_done(
    lab: Hostile, which: str, replaced: bool
) -> None:
    submit(lab, seconds=5.0)
    lab.run(2)
    path = lab.folder / which
    kept = path.read_bytes()
    path.unlink()
    if replaced:
        path.write_bytes(kept)
    begun, last = list(lab.executor.begun), lab.controller.journal.last
    with pytest.raises(
        JournalError, match=r"was deleted or replaced while it was written to; put back"
    ):
        lab.controller.step()
    with pytest.raises(JournalError, match="was deleted or replaced"):
        submit(lab)
    assert lab.executor.begun == begun and lab.controller.journal.last == last


def test_who_asks_while_the_journal_is_gone_is_told(lab: Hostile) -> None:
    loop = Loop(lab.controller)
    failed: list[Exception] = []

    def run() -> None:
        try:
            loop.run()
        except JournalError as error:
            failed.append(error)

    (lab.folder / "journal").unlink()
    asked = threading.Thread(target=run)
    loop._asked.append((lambda one: one.record(Held(job="a", by="me")), answer := Future()))
    asked.start()
    with pytest.raises(JournalError, match="was deleted or replaced"):
        answer.result(10)
    asked.join(10)
    assert failed and not asked.is_alive()


def test_an_attempt_of_which_nothing_is_left_is_cleared(lab: Hostile) -> None:
    name = submit(lab, gpus=8, seconds=20.0)
    lab.run(5)
    key = AttemptKey(name, 1)
    lab.executor.hidden.add(key)
    lab.run(60)
    assert status(lab) == {name: "lost"}
    assert "optsched clear j0" in " ".join(explain_job(snapshot(lab.controller), name).sentences)
    lab.executor.processes[key].ended_s = lab.clock.at_s  # it is gone, and nobody saw it
    lab.controller.record(Cleared(job=name, number=1, by="root", left_s=20.0))
    lab.restart()
    lab.run(60)
    job = lab.controller.state.jobs[name]
    assert job.status == "completed" and len(job.attempts) == 2
    assert job.attempts[0].ended is not None and job.attempts[0].ended.reason == (
        "root vouched that nothing of it was left"
    )


def test_an_attempt_that_was_vouched_for_and_goes_on_is_ended_before_its_gpus_are_given(
    lab: Hostile,
) -> None:
    name = submit(lab, gpus=8, seconds=50.0)
    lab.run(5)
    key = AttemptKey(name, 1)
    lab.executor.unreachable.add(key)
    lab.run(3)
    assert status(lab) == {name: "lost"}
    lab.controller.record(
        Cleared(job=name, number=1, by="root", left_s=50.0), Cancelled(job=name, by="root")
    )
    lab.executor.strangers[key] = {"n0": 4, "n1": 4}  # it is seen again, with its GPUs
    lab.executor.hidden.add(key)
    other = submit(lab, gpus=8, seconds=5.0)
    lab.run(10)
    assert status(lab) == {name: "cancelled", other: "waiting"}
    lab.executor.unreachable.clear()
    lab.run(10)
    assert lab.executor.processes[key].status == -9
    lab.executor.strangers.clear()
    lab.run(70)
    assert status(lab)[other] == "completed"


def test_a_journal_that_holds_the_cause_is_gone_on_with(lab: Hostile) -> None:
    """As a controller may have written it that took jobs at their word."""
    name = submit(lab, gpus=8, seconds=20.0)
    lab.run(3)
    said = Progress(
        step=5, at_s=1.7e12, began_s=1.6e12, saved_at_s=1.7e12, checkpoint_s=1e12, restore_s=1e15
    )
    lab.controller.record(
        StopIntended(job=name, number=1, why="preempt", grace_s=6.0),
        AttemptEnded(
            job=name, number=1, exit_status=85, started_s=1000.0, left_s=1e14, progress=said
        ),
    )
    lab.executor.processes[AttemptKey(name, 1)].ended_s = lab.clock.at_s
    lab.restart()
    lab.run(60)
    assert status(lab) == {name: "completed"} and not lab.bugs and not lab.controller.left_out


def test_the_seconds_of_a_round_are_those_of_its_turn(
    lab: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = lab.executor.observe

    def slowly() -> Any:
        time.sleep(0.3)
        return observe()

    monkeypatch.setattr(lab.executor, "observe", slowly)
    submit(lab)
    lab.controller.step()
    [entry] = lab.controller.journal.rounds()
    assert 0.3 < entry.wall_s <= lab.controller.round_s and lab.controller.last_round is not None
    assert (
        lab.controller.last_round.wall_s is not None
        and lab.controller.last_round.wall_s < entry.wall_s - 0.29
    )


def test_an_end_that_cannot_be_written_keeps_nobody_elses(
    lab: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [submit(lab, gpus=2, seconds=5.0) for _ in range(3)]

    def odd(seen: Any) -> Any:
        return replace(seen, cpu_s=math.nan) if seen.key.job == names[0] else seen

    monkeypatch.setattr(seen, "sane", odd)
    lab.run(10)
    assert [status(lab)[name] for name in names] == ["running", "completed", "completed"]
    later = submit(lab, gpus=2, seconds=5.0)  # one at a time, too
    lab.run(10)
    assert status(lab)[later] == "completed" and "looking" not in " ".join(lab.bugs)
    monkeypatch.undo()
    lab.controller._failing.clear()
    lab.run(3)
    assert set(status(lab).values()) == {"completed"}


ODD = [None, -1.0, 1e308, math.inf, math.nan, 10**400, "7", True, []]
ODD_OF = {
    **dict.fromkeys(("started_s", "ended_s", "exit_status", "peak_memory_gib", "cpu_s"), ODD),
    "retry_s": ODD,
    "reason": [None, 7, "\ud800", "\x00", "x" * 10**6],
    "output": [None, "\ud800"],
    "gpu_ids": [{"n0": ("\ud800",)}, {"gone": ("0",)}, {"n0": ("0",) * 10_000}],
    "progress": [None, Progress(step=1, at_s=math.nan, checkpoint_s=math.inf)],
    "state": [*AttemptState],
}
"""What an executor from elsewhere may say of an attempt."""


@pytest.mark.parametrize("field", ODD_OF)
def test_what_an_executor_says_that_cannot_be(
    lab: Hostile, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """It is taken as not said; what is said twice, late, or of attempts that nobody knows, ends
    nothing."""
    observe, inventory = lab.executor.observe, lab.executor.inventory
    turns = itertools.count()
    unknown = Observation(key=AttemptKey("j0", 10**6), state=AttemptState.ENDED)

    def odd_observe() -> Any:
        said = ODD_OF[field][next(turns) % len(ODD_OF[field])]
        observed = observe()
        return (*observed, *(replace(own, **{field: said}) for own in observed), unknown)

    def odd_inventory() -> Any:
        nodes = inventory()
        names = ("a\nb", '"', "../x", "n[0-3]", "\ud800", "")
        return (*nodes, nodes[0], *(NodeStatus(node=node(name)) for name in names))

    monkeypatch.setattr(lab.executor, "observe", odd_observe)
    monkeypatch.setattr(lab.executor, "inventory", odd_inventory)
    monkeypatch.setattr(lab.executor, "check", lambda order: None)
    monkeypatch.setattr(lab.executor, "forget", lab.executor.forgotten.add)
    names = [submit(lab, gpus=4, seconds=3.0) for _ in range(2)]
    lab.run(40)
    lab.look()
    lab.restart()
    lab.run(10)
    assert not lab.bugs
    assert {status(lab)[name] for name in names} <= {"completed", "waiting", "failed", "held"}
