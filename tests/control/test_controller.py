"""The controller in virtual time: what runs, what is written down, and what is left after a crash
at any point."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Job, Node, Profile
from optsched.control import present
from optsched.control.controller import Controller
from optsched.control.journal.events import Cancelled, Event, Held, Noted, Released, Submitted
from optsched.control.journal.journal import Journal
from optsched.control.journal.state import State
from optsched.control.learned import NEVER_S
from optsched.control.settings import NodeSettings, Settings
from optsched.control.submission import Submission
from optsched.driver import reservation
from optsched.executors.base import AttemptKey

from .virtual import VirtualClock, VirtualExecutor

NODES = (
    Node(name="n0", gpu_type="a", gpus=4, cpus=8),
    Node(name="n1", gpu_type="a", gpus=4, cpus=8),
)
SETTINGS = Settings(
    format="optsched-cluster/1",
    every=60.0,
    budget=60.0,
    nodes=(NodeSettings(name="n[0-1]", gpu_type="a", gpus=4),),
)


class Crash(BaseException):
    """The controller is killed here."""


def _raised(what: str, error: Exception) -> None:
    raise error


class Lab:
    """A controller on virtual nodes whose journal is in `folder`; `crash_at` counts journal writes
    and calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.executor = VirtualExecutor(NODES, self.clock)
        self.points = itertools.count(1)
        self.crash_at = 0
        self._guard(self.executor, "start", "checkpoint_stop", "kill", "forget")
        self.controller = self.new()

    def new(self) -> Controller:
        journal = Journal(self.folder / "journal")
        self._guard(journal, "append", "add_round")
        controller = Controller(SETTINGS, self.executor, journal, self.clock)
        controller.bug = _raised
        return controller

    def _guard(self, target: Any, *names: str) -> None:
        for name in names:
            setattr(target, name, self._crashing(getattr(target, name)))

    def _crashing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **named: Any) -> Any:
            self._point()
            found = call(*args, **named)
            self._point()
            return found

        return guarded

    def _point(self) -> None:
        if next(self.points) == self.crash_at:
            raise Crash

    def crash(self) -> None:
        """A new controller from the journal of the old one."""
        self.controller.journal.close()
        self.controller = self.new()

    def submit(
        self,
        name: str,
        gpus: int,
        seconds: float,
        *,
        saves_s: float = 1.0,
        status: int = 0,
        **more: Any,
    ) -> None:
        profile = more.pop("profile", Profile(checkpoint_s=1.0, restore_s=1.0))
        job = Job(id=name, gpus=gpus, duration_s=seconds, profile=profile, **more.pop("job", {}))
        self.controller.record(
            Submitted(
                submission=Submission(
                    job=job,
                    argv=("work", str(seconds), str(saves_s), str(status)),
                    directory="/",
                    **more,
                )
            )
        )

    def run(self, seconds: float, turn_s: float = 1.0) -> None:
        """Turns until so many seconds have passed."""
        end_s = self.clock.at_s + seconds
        while self.clock.at_s < end_s:
            self.controller.step()
            self.clock.at_s += turn_s
        self.controller.step()

    def status(self) -> dict[str, str]:
        return {name: job.status for name, job in self.controller.state.jobs.items()}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_jobs_run_to_their_end_and_the_journal_tells_all_of_it(lab: Lab) -> None:
    for i in range(5):
        lab.submit(f"j{i}", 4, 10.0 + i)
    lab.run(60)
    assert set(lab.status().values()) == {"completed"}
    assert not lab.controller.state.open
    rebuilt = State()
    for entry in lab.controller.journal.entries():
        rebuilt.apply(entry.at_s, entry.event)
    assert {name: job.finished_s for name, job in rebuilt.jobs.items()} == {
        name: job.finished_s for name, job in lab.controller.state.jobs.items()
    }
    assert len(lab.controller.journal.rounds()) > 0
    assert set(lab.executor.begun) == {AttemptKey(f"j{i}", 1) for i in range(5)}


def test_a_short_job_preempts_a_long_one_that_goes_on_from_its_checkpoint(lab: Lab) -> None:
    lab.submit("long", 4, 3000.0)
    lab.submit("other", 4, 3000.0)
    lab.run(10)
    lab.submit("short", 4, 20.0)
    lab.run(5)
    status = lab.status()
    assert status["short"] == "running" and sorted(status.values()) == [
        "running",
        "running",
        "waiting",
    ]
    preempted = next(name for name, one in status.items() if one == "waiting")
    job = lab.controller.state.jobs[preempted]
    assert job.preemptions == 1 and job.left_s == pytest.approx(3000.0 - 10.0, abs=3.0)
    lab.run(40)
    assert lab.status()["short"] == "completed"
    assert lab.executor.begun.count(AttemptKey(preempted, 2)) == 1
    lab.run(3000)
    assert set(lab.status().values()) == {"completed"}


def test_a_job_is_told_the_memory_that_was_chosen_for_it(lab: Lab) -> None:
    lab.executor.nodes = tuple(
        Node(name=one.name, gpu_type="a", gpus=4, memory_gib=16.0, gpu_memory_gib=16.0)
        for one in NODES
    )
    less = Profile(
        memory_gib_per_gpu=8.0,
        memory_rates={4.0: 0.5},
        gpu_memory_gib=24.0,
        gpu_memory_rates={12.5: 0.75},
    )
    lab.submit("less", 4, 100.0, profile=less)
    lab.submit("all", 1, 100.0, profile=Profile(memory_gib_per_gpu=8.0, memory_rates={4.0: 0.5}))
    lab.run(5)
    orders = {key.job: process.order for key, process in lab.executor.processes.items()}
    told = {
        name: {k: v for k, v in order.environment.items() if "MEMORY" in k}
        for name, order in orders.items()
        if order is not None
    }
    assert told["less"] == {"OPTSCHED_MEMORY_GIB_PER_GPU": "4", "OPTSCHED_GPU_MEMORY_GIB": "12.5"}
    assert orders["less"] is not None and orders["less"].memory_gib == (16.0,)
    assert told["all"] == {} and orders["all"] is not None and orders["all"].memory_gib == (8.0,)


def test_who_would_lose_more_than_it_gains_is_not_preempted(lab: Lab) -> None:
    lab.submit("long", 8, 100.0, profile=Profile(checkpoint_s=60.0, restore_s=60.0))
    lab.run(10)
    lab.submit("short", 8, 20.0)
    lab.run(60)
    assert lab.controller.state.jobs["long"].preemptions == 0
    lab.run(80)
    assert set(lab.status().values()) == {"completed"}


def test_who_may_not_save_loses_too_much_to_be_preempted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        f"{__name__}.SETTINGS", SETTINGS.model_copy(update={"preempt_unsaved": True})
    )
    lab = Lab(tmp_path)
    lab.submit("long", 8, 300.0, profile=Profile(checkpoint_every_s=NEVER_S))
    lab.run(150)
    lab.submit("short", 8, 100.0)
    lab.run(20)
    assert lab.status() == {"long": "running", "short": "waiting"}
    lab.submit("urgent", 8, 5.0, job={"weight": 50.0})
    lab.run(20)
    assert (
        lab.controller.state.jobs["long"].preemptions == 1 and lab.status()["urgent"] == "completed"
    )
    assert lab.controller.state.jobs["long"].profile.checkpoint_every_s is None  # it ended with 85


def test_who_is_not_known_to_save_is_not_preempted_until_it_has_saved(lab: Lab) -> None:
    lab.submit("long", 8, 300.0, profile=Profile(checkpoint_every_s=NEVER_S))
    lab.run(10)
    lab.submit("urgent", 8, 5.0, job={"weight": 1e6})
    lab.run(20)
    assert lab.status() == {"long": "running", "urgent": "waiting"}
    lab.controller.record(Held(job="long", by="me"))
    lab.run(5)
    assert lab.status() == {"long": "held", "urgent": "running"}
    lab.controller.record(Released(job="long", by="me"))
    lab.run(30)
    assert lab.status() == {"long": "running", "urgent": "completed"}
    assert lab.controller.state.jobs["long"].profile.checkpoint_every_s is None  # it ended with 85
    lab.submit("again", 8, 5.0, job={"weight": 1e6})
    lab.run(20)
    assert (
        lab.controller.state.jobs["long"].preemptions == 1 and lab.status()["again"] == "completed"
    )


def test_what_fails_is_tried_again_as_often_as_said(lab: Lab) -> None:
    lab.submit("fails", 1, 5.0, status=3, retries=2)
    lab.run(200)
    job = lab.controller.state.jobs["fails"]
    assert (job.status, job.failures, len(job.attempts)) == ("failed", 3, 3)
    assert job.reason == "its command ended with exit status 3"


def test_a_job_that_never_saves_is_killed_when_its_grace_is_over(lab: Lab) -> None:
    lab.submit("deaf", 8, 3000.0, saves_s=-1.0, grace_s=7.0)
    lab.run(10)
    lab.submit("short", 8, 5.0)
    lab.run(30)
    job = lab.controller.state.jobs["deaf"]
    assert lab.status()["short"] == "completed"
    assert (job.attempts[0].ended.exit_status, job.left_s) == (-9, 3000.0)  # type: ignore[union-attr]
    assert job.status == "running" and len(job.attempts) == 2


def test_held_jobs_wait_and_cancelled_ones_stop(lab: Lab) -> None:
    lab.submit("a", 4, 100.0)
    lab.submit("b", 4, 100.0, hold=True)
    lab.run(5)
    assert lab.status() == {"a": "running", "b": "held"}
    lab.controller.record(Held(job="a", by="me"), Released(job="b", by="me"))
    lab.run(5)
    assert lab.status() == {"a": "held", "b": "running"}
    lab.controller.record(Cancelled(job="a", by="me"), Cancelled(job="b", by="me"))
    lab.run(5)
    assert lab.status() == {"a": "cancelled", "b": "cancelled"}
    assert lab.controller.state.jobs["a"].reason == "me cancelled it"


def test_after_another(lab: Lab) -> None:
    lab.submit("first", 1, 10.0, status=1)
    lab.submit("second", 1, 10.0, job={"after": ("first",)})
    lab.submit("third", 1, 10.0)
    lab.submit("fourth", 1, 10.0, job={"after": ("third",)})
    lab.run(8)
    assert lab.status()["fourth"] == "waiting"
    lab.run(25)
    assert lab.status() == {
        "first": "failed",
        "second": "cancelled",
        "third": "completed",
        "fourth": "completed",
    }
    assert lab.controller.state.jobs["second"].reason == "first, which it comes after, failed"


def test_a_node_that_is_lost_gives_its_jobs_back(lab: Lab) -> None:
    lab.submit("a", 4, 50.0)
    lab.submit("b", 4, 50.0)
    lab.run(5)
    lab.executor.down = {"n0"}
    lab.run(200)
    assert set(lab.status().values()) == {"completed"}
    assert sorted(len(job.attempts) for job in lab.controller.state.jobs.values()) == [1, 2]
    assert not lab.controller.state.nodes["n0"].usable


def test_a_drained_node_keeps_what_runs_and_takes_no_more(lab: Lab) -> None:
    lab.submit("a", 4, 50.0)
    lab.run(3)
    node = lab.controller.state.jobs["a"].attempts[0].placement[0].node
    lab.executor.drained = {node}
    lab.submit("b", 2, 10.0)
    lab.submit("c", 4, 10.0)
    lab.run(70)
    assert set(lab.status().values()) == {"completed"}
    assert {
        job.attempts[0].placement[0].node
        for job in lab.controller.state.jobs.values()
        if job.id != "a"
    } != {node}


def test_no_answer_is_lost_not_done(lab: Lab) -> None:
    lab.submit("a", 8, 20.0)
    lab.run(3)
    lab.executor.silent = True
    lab.submit("b", 8, 5.0)
    lab.run(60)
    assert lab.status() == {"a": "lost", "b": "waiting"}
    lab.executor.silent = False
    lab.run(20)
    assert lab.status() == {"a": "completed", "b": "completed"}


def test_silence_is_noted_once_each_time(lab: Lab) -> None:
    """Also where no attempt goes on that could be lost."""
    for _ in range(2):
        lab.executor.silent = True
        lab.run(100)
        lab.executor.silent = False
        lab.run(10)
    notes = [
        entry.event.text
        for entry in lab.controller.journal.entries()
        if isinstance(entry.event, Noted)
    ]
    assert notes == ["nothing is known about the nodes: the network is down"] * 2


def test_a_clock_that_jumps_is_noted_and_nothing_else_happens(lab: Lab) -> None:
    lab.submit("a", 8, 20.0)
    lab.run(5)
    lab.clock.jumps = [7200.0]
    lab.run(30)
    notes = [
        entry.event for entry in lab.controller.journal.entries() if isinstance(entry.event, Noted)
    ]
    assert [note.text for note in notes] == [
        "the clock of this host jumped by +7200.0 s; times here do not follow it"
    ]
    assert lab.status() == {"a": "completed"} and len(lab.controller.state.jobs["a"].attempts) == 1


def test_a_broken_connection_is_no_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ConnectionResetError("reset by peer")

    with monkeypatch.context() as patch:
        patch.setattr(lab.executor, "start", broken)
        lab.submit("a", 8, 20.0)
        lab.run(10)
        assert lab.status() == {"a": "starting"}
    with monkeypatch.context() as patch:
        patch.setattr(lab.executor, "observe", broken)
        lab.run(40)
        assert lab.status() == {"a": "lost"}
    lab.run(40)
    assert lab.status() == {"a": "completed"} and lab.executor.begun == [AttemptKey("a", 1)]


def test_a_lost_answer_starts_nothing_twice(lab: Lab) -> None:
    lab.executor.deaf = True
    lab.submit("a", 8, 20.0)
    lab.run(60)
    assert lab.status() == {"a": "completed"} and lab.executor.begun == [AttemptKey("a", 1)]


def test_refusals_are_tried_again_later_and_less_often_and_then_held(lab: Lab) -> None:
    lab.executor.refuses = True
    lab.submit("a", 8, 20.0)
    lab.run(4)
    assert lab.status() == {"a": "waiting"}
    lab.run(300)
    assert lab.status() == {"a": "held"}
    assert "no more processes here" in (lab.controller.state.jobs["a"].held or "")
    lab.executor.refuses = False
    lab.controller.record(Released(job="a", by="me"))
    lab.run(30)
    assert lab.status() == {"a": "completed"}


def test_what_the_manager_declines_is_tried_again_however_often(lab: Lab) -> None:
    """It is no fault of the job's, which is never put on hold for it."""
    lab.executor.declines_s = 7.0
    lab.submit("a", 8, 20.0)
    lab.run(100)
    job = lab.controller.state.jobs["a"]
    assert lab.status() == {"a": "waiting"} and (job.faults, job.reason) == (
        0,
        "a limit is reached",
    )
    assert 12 <= len(job.attempts) <= 15
    lab.executor.declines_s = None
    lab.crash()
    lab.run(30)
    assert lab.status() == {"a": "completed"}


def test_nobody_is_stopped_for_a_place_that_nobody_may_have(lab: Lab) -> None:
    lab.submit("a", 4, 1000.0)
    lab.submit("b", 4, 1000.0)
    lab.run(3)
    lab.executor.drained = {"n0", "n1"}
    lab.submit("c", 4, 1.0)
    lab.run(100)
    assert lab.status() == {"a": "running", "b": "running", "c": "waiting"}
    assert not any(job.preemptions for job in lab.controller.state.jobs.values())
    lab.executor.drained = set()
    lab.run(10)
    assert lab.status()["c"] == "completed"


@pytest.mark.parametrize(("patience_s", "starts"), [(300.0, True), (1e9, False)])
def test_nobody_waits_for_ever(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, patience_s: float, starts: bool
) -> None:
    """A long gang over the whole cluster, with an endless stream of shorter jobs that would fill
    it."""
    monkeypatch.setattr(present, "PATIENCE_S", patience_s)
    monkeypatch.setattr(present, "PATIENCE_RUNS", 0.0)
    monkeypatch.setattr(reservation.Reservations, "entitled", lambda self, world: [])
    lab.submit("gang", 8, 1000.0)
    for i in range(12):
        for k in range(3):
            lab.submit(f"short-{i}-{k}", 4, 150.0)
        lab.run(200, turn_s=50.0)
    assert bool(lab.controller.state.jobs["gang"].attempts) == starts


ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.integers(1, 8),
            st.integers(1, 60),
            st.sampled_from([0.0, 1.0, 5.0, -1.0]),
            st.sampled_from([0, 0, 0, 3]),
        ),
        st.tuples(st.just("run"), st.integers(1, 40)),
        st.tuples(st.just("hold"), st.integers(0, 5)),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("down"), st.sampled_from(["n0", "n1"])),
        st.tuples(st.just("up")),
        st.tuples(st.just("silent"), st.booleans()),
        st.tuples(st.just("deaf"), st.booleans()),
        st.tuples(st.just("crash")),
    ),
    min_size=3,
    max_size=14,
)


@pytest.mark.parametrize("examples", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_whatever_happens_no_job_is_lost_or_run_twice(examples: int) -> None:
    @settings(max_examples=examples)
    @given(actions=ACTIONS, crashes=st.lists(st.integers(1, 25), max_size=12))
    def check(actions: list[Any], crashes: list[int]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check_history(Lab(Path(folder)), actions, iter(crashes))

    check()


def check_history(lab: Lab, actions: list[Any], crashes: Iterator[int]) -> None:
    def next_crash() -> None:
        lab.points, lab.crash_at = itertools.count(1), next(crashes, 0)

    def safely(call: Callable[..., Any], *args: Any, **named: Any) -> None:
        while True:
            try:
                return call(*args, **named)
            except Crash:
                next_crash()
                lab.crash()
                if call is lab_submit and args[0] in lab.controller.state.jobs:
                    return None  # it was accepted before the crash

    def lab_submit(*args: Any, **named: Any) -> None:
        lab.submit(*args, **named)

    def lab_run(seconds: float) -> None:
        lab.run(seconds)

    def change(event: Event) -> None:
        lab.controller.record(event)

    next_crash()
    names: list[str] = []
    for what, *rest in actions:
        live = [name for name in names if name in lab.controller.state.open]
        if what == "submit":
            gpus, seconds, saves_s, status = rest
            names.append(f"j{len(names)}")
            safely(
                lab_submit,
                names[-1],
                gpus,
                float(seconds),
                saves_s=saves_s,
                status=status,
                grace_s=6.0,
                retries=1,
            )
        elif what == "run":
            safely(lab_run, rest[0])
        elif what in ("hold", "release", "cancel"):
            if rest[0] < len(live):
                kinds = {"hold": Held, "release": Released, "cancel": Cancelled}
                safely(change, kinds[what](job=live[rest[0]], by="me"))
        elif what == "down":
            lab.executor.down = {rest[0]}
        elif what == "up":
            lab.executor.down = set()
        elif what == "crash":
            lab.crash()
        else:
            setattr(lab.executor, what, rest[0])
    lab.executor.silent = lab.executor.deaf = False
    lab.executor.down = set()
    lab.crash_at = 0
    lab.crash()
    for name in [*lab.controller.state.open]:
        lab.controller.record(Released(job=name, by="me"))
    lab.run(2500.0, turn_s=5.0)
    status = lab.status()
    assert set(status) == set(names)
    assert all(one in ("completed", "failed", "cancelled") for one in status.values()), status
    assert all(process.ended_s is not None for process in lab.executor.processes.values())
    assert {key for key, one in lab.executor.processes.items() if one.order is not None} == set(
        lab.executor.begun
    )
    for job in lab.controller.state.jobs.values():
        if job.status == "completed":
            assert job.attempts[-1].ended is not None and job.attempts[-1].ended.exit_status == 0
