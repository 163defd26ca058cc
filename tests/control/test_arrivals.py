"""Jobs that a cluster manager has become jobs of the journal, and what becomes of them there is
followed."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from optsched import Job, Node, Profile
from optsched.control.api.views import reason_of
from optsched.control.arrivals import FORGOTTEN, ON_HOLD, Intake
from optsched.control.caps import may_use
from optsched.control.controller import Controller
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import Cancelled, Changed, Noted
from optsched.control.journal.journal import Journal
from optsched.control.learned import NEVER_S
from optsched.control.present import as_waiting, guarded
from optsched.control.settings import Settings, TenantSettings, TierSettings
from optsched.control.what_if.snapshot import snapshot
from optsched.executors.base import Arrival, NoAnswerError, Order, Request

from .virtual import VirtualClock, VirtualExecutor

TENANTS = (
    TenantSettings(name="vision", users=("ann",)),
    TenantSettings(name="all"),
    TenantSettings(name="speech", users=("bob",)),
)
TIERS = (
    TierSettings(name="urgent", priority=100, qos=("high", "day")),
    TierSettings(name="patient", priority=-10, accounts=("guests",)),
)


@dataclass
class Manager(VirtualExecutor):
    """An executor in virtual time with jobs of its own; the orders for these it only keeps."""

    jobs: dict[str, Arrival] = field(default_factory=dict)
    told: list[tuple[str, ...]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    deaf: bool = False
    crashed: bool = False

    def arrivals(self) -> tuple[Arrival, ...]:
        return tuple(self.jobs.values())

    def leave(self, origin: str, why: str) -> None:
        self._hear("leave", origin, why)
        del self.jobs[origin]

    def forgot_end(self, origin: str, ended_s: float) -> bool:
        if self.deaf:
            raise NoAnswerError("deaf")
        return self.crashed

    def withdraw(self, origin: str) -> None:
        self._hear("withdraw", origin)

    def _hear(self, *words: str) -> None:
        if self.deaf:
            raise NoAnswerError("deaf")
        self.told.append(words)

    def start(self, order: Order) -> None:
        self.orders.append(order)
        super().start(replace(order, argv=("work", "10", "1", "0")))


def request(name: str, user: str = "ann", duration_s: float | None = 10.0, **more: Any) -> Request:
    job = Job(id=name, gpus=1, user=user, command="train", duration_s=duration_s, profile=Profile())
    return Request(job=job, argv=("sbatch", "train"), directory="/home", user_id=1000, **more)


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, VirtualClock()
        self.manager = Manager((Node(name="n0", gpu_type="a100", gpus=1),), self.clock)
        self.controller = self.open()

    def open(self) -> Controller:
        settings = Settings(
            format="optsched-cluster/1", state=self.folder, tenants=TENANTS, tiers=TIERS
        )
        return Controller(settings, self.manager, Journal(self.folder / "journal"), self.clock)

    def add(self, name: str, origin: str = "", **more: Any) -> None:
        wanted = more.pop("request", None) or request(name)
        self.manager.jobs[origin or name] = Arrival(
            origin=origin or name, name=name, request=wanted, **{"ready": True, **more}
        )

    def change(self, origin: str, **news: Any) -> None:
        self.manager.jobs[origin] = replace(self.manager.jobs[origin], **news)

    def step(self, seconds: float = 0.0) -> None:
        self.clock.at_s += seconds
        self.controller.step()

    def status(self, name: str) -> str | None:
        job = self.controller.state.jobs.get(name)
        return None if job is None else job.status


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_started_by_its_origin(place: Place) -> None:
    place.add("7", "x")
    place.step()
    place.step(1)
    (order,) = place.manager.orders
    assert (order.key.job, order.origin, order.user) == ("7", "x", 1000)
    place.step(20)
    assert place.status("7") == "completed"
    place.change("x", ready=False, gone="it has ended")
    place.step(20)
    assert place.manager.told == [] and len(place.controller.state.jobs) == 1


def test_weight_is_the_sites_to_give(place: Place) -> None:
    """Users may ask for no more than 1, root for what it likes."""
    for name, user_id, asked, weight in (
        ("a", 1000, 1000.0, 4.0),
        ("b", 1000, 0.5, 2.0),
        ("c", 0, 1000.0, 4000.0),
    ):
        wanted = replace(request(name), user_id=user_id, asked_weight=asked)
        place.add(name, request=replace(wanted, job=replace(wanted.job, weight=4.0)))
        place.step()
        assert place.controller.state.jobs[name].submission.job.weight == weight
    notes = [
        one.event.text for one in place.controller.journal.entries() if isinstance(one.event, Noted)
    ]
    assert notes == [
        "a: in its comment weight=1000: its user may ask for 1 at the most (max_weight in "
        "cluster.toml); "
        "QOS and account may weigh more"
    ]


@pytest.mark.parametrize(
    ("qos", "account", "priority"),
    [
        (None, None, 0),
        ("normal", "vision", 0),
        ("high", None, 100),
        ("normal", "guests", -10),
        ("high", "guests", 100),
    ],
)
def test_tiers_are_those_of_qos_and_account(
    place: Place, qos: str | None, account: str | None, priority: int
) -> None:
    place.add("7", request=request("7", qos=qos, account=account))
    place.step()
    assert place.controller.state.jobs["7"].submission.job.priority == priority


def test_a_higher_qos_goes_first(place: Place) -> None:
    """One GPU, two that wait for it: the longer one comes last, and is first once its QOS is
    another."""
    place.add("runs", request=request("runs", saves=False))
    place.step()
    place.add("short", request=request("short", duration_s=5.0))
    place.add("long", request=request("long", duration_s=500.0))
    place.step(1)
    place.change("long", request=request("long", duration_s=500.0, qos="day"))
    place.step(1)
    assert place.controller.state.jobs["long"].submission.job.priority == 100
    place.step(20)
    place.step(1)
    assert [order.key.job for order in place.manager.orders] == ["runs", "long"]


@pytest.mark.parametrize("tier", TIERS)
def test_tiers_of_the_manager_are_open_to_nobody_else(tier: TierSettings) -> None:
    assert not may_use(tier, "ann", "vision")


def test_changed_while_it_waits(place: Place) -> None:
    """What it asks for now counts, after a restart as well; what no order can start is left alone,
    not cancelled."""
    place.add("runs")
    place.step()
    place.add("7", "x", request=request("7", limit_s=60.0))
    place.step(1)
    place.controller.journal.close()
    place.controller = place.open()
    place.step()
    assert not [one for one in place.controller.journal.entries() if isinstance(one.event, Changed)]
    wanted = request("7", duration_s=None, limit_s=30.0)
    place.change("x", request=replace(wanted, job=replace(wanted.job, gpus=0, cpus=2)))
    for _ in range(2):
        place.step()
    job = place.controller.state.jobs["7"]
    assert (job.submission.job.gpus, job.left_s, job.submission.limit_s) == (0, 30.0, 30.0)
    assert (
        len([one for one in place.controller.journal.entries() if isinstance(one.event, Changed)])
        == 1
    )
    place.add("8", "y")
    place.step()
    place.change("y", request=None, unplanned="it excludes nodes")
    place.step()
    assert place.status("8") == "cancelled" and place.manager.told == [
        ("leave", "y", "it excludes nodes")
    ]
    place.step(20)
    assert place.manager.told == [("leave", "y", "it excludes nodes")]


def test_what_its_manager_would_not_start_is_no_part_of_a_round(place: Place) -> None:
    place.add("7", barred="a limit is reached")
    place.step()
    place.step(1)
    assert place.status("7") == "waiting" and not place.manager.orders
    said = explain_job(snapshot(place.controller), "7").sentences
    assert said[0] == "7 waits because the cluster manager would not start it: a limit is reached."
    assert (
        reason_of(place.controller, place.controller.state.jobs["7"], place.clock.now_s())
        == "a limit is reached"
    )
    place.change("7", barred=None)
    place.step(1)
    assert [order.key.job for order in place.manager.orders] == ["7"]


def test_whether_what_does_not_save_is_stopped(place: Place) -> None:
    """The manager says, of jobs of which nobody knows that they save."""
    for name, more in (("a", {"preempt_unsaved": True}), ("b", {}), ("c", {"saves": True})):
        place.add(name, request=request(name, **more))
    place.step()
    jobs = place.controller.state.jobs
    posed = {name: guarded(as_waiting(jobs[name]), jobs[name], False) for name in "abc"}
    assert {name: job.preemptible for name, job in posed.items()} == {
        "a": True,
        "b": False,
        "c": True,
    }


def test_not_before_it_is_ready(place: Place) -> None:
    place.add("7", ready=False)
    place.step()
    assert place.status("7") is None
    place.change("7", ready=True)
    place.step()
    assert place.status("7") is not None


def test_the_same_job_after_a_restart(place: Place) -> None:
    place.add("7", "x")
    place.step()
    place.controller.journal.close()
    place.controller = place.open()
    place.step()
    assert list(place.controller.state.jobs) == ["7"]


def test_a_number_that_is_given_out_again(place: Place) -> None:
    place.add("7", "x")
    place.step()
    del place.manager.jobs["x"]
    place.add("7", "y")
    place.step(20)
    place.step(1)
    assert list(place.controller.state.jobs) == ["7", "7-2"]
    assert [order.origin for order in place.manager.orders] == ["x", "y"]


def test_requeued_after_it_had_ended(place: Place) -> None:
    """Its user wants it to run once more; that is a new job here."""
    place.add("7", "x")
    place.step()
    place.step(20)
    assert place.status("7") == "completed"
    place.step(1)
    assert place.status("7-2") is not None


def test_what_a_crashed_manager_would_run_again(place: Place) -> None:
    """A job whose end it has forgotten is cancelled there, and nothing is decided while it is
    silent."""
    place.add("7", "x")
    place.step()
    place.manager.crashed = place.manager.deaf = True
    place.step(20)
    place.step(1)
    assert (place.status("7"), place.manager.told) == ("completed", [])
    place.manager.deaf = False
    place.step(1)
    assert place.manager.told == [("withdraw", "x")]
    assert "7-2" not in place.controller.state.jobs


def test_cancelled_there(place: Place) -> None:
    place.add("runs")
    place.step()
    place.add("waits")
    place.step(1)
    assert (place.status("runs"), place.status("waits")) == ("running", "waiting")
    for name in ("runs", "waits"):
        place.change(name, ready=False, cancelled=True, gone="it was cancelled")
    place.step(1)
    assert (place.status("runs"), place.status("waits")) == ("stopping", "cancelled")
    assert place.controller.state.jobs["waits"].reason == "it was cancelled"
    assert place.manager.told == []


def test_cancelled_here(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager is told until it has done so, unless it has nothing of it any more."""
    monkeypatch.setattr("optsched.control.arrivals.AGAIN_S", 0.0)
    place.add("7", held=True)
    place.step()
    place.manager.deaf = True
    place.controller.record(Cancelled(job="7", by="root"))
    place.step(1)
    assert place.manager.told == []
    place.manager.deaf = False
    place.step(1)
    place.change("7", ready=False, cancelled=True, gone="it was cancelled")
    place.step(10)
    assert place.manager.told == [("withdraw", "7")]


def test_held_and_released_there(place: Place) -> None:
    place.add("7", held=True)
    place.step()
    assert place.status("7") == "held" and place.controller.state.jobs["7"].held == ON_HOLD
    place.change("7", held=False)
    place.step(1)
    assert place.status("7") in ("waiting", "starting", "running")
    place.step(1)
    place.change("7", held=True)
    place.step(1)
    assert place.status("7") == "running"  # as there, what runs goes on


def test_forgotten(place: Place) -> None:
    place.add("7", held=True)
    place.step()
    del place.manager.jobs["7"]
    place.step(1)
    assert place.status("7") == "cancelled" and place.controller.state.jobs["7"].reason == FORGOTTEN


def test_what_is_left_alone_is_told_once(place: Place) -> None:
    place.manager.jobs["7"] = Arrival(origin="7", name="7", ready=True, unplanned="it is odd")
    for _ in range(3):
        place.step(1)
    notes = [
        entry.event.text
        for entry in place.controller.journal.entries()
        if isinstance(entry.event, Noted)
    ]
    assert notes == ["7 is left alone: it is odd"]
    assert place.manager.told == [("leave", "7", "it is odd")] and place.status("7") is None


def test_what_no_round_could_take_is_left_alone(place: Place) -> None:
    place.add("7", request=replace(request("7"), job=replace(request("7").job, duration_s=1e11)))
    place.step()
    assert [words[:2] for words in place.manager.told] == [("leave", "7")] and place.status(
        "7"
    ) is None


@pytest.mark.parametrize(
    ("wanted", "tenant"),
    [
        (request("7"), "vision"),
        (request("7", account="all"), "all"),
        (request("7", account="vision"), "vision"),
        (request("7", account="speech"), "vision"),
        (request("7", user="cat"), None),
        (request("7", user="cat", account="vision"), None),
    ],
)
def test_tenants(place: Place, wanted: Request, tenant: str | None) -> None:
    """An account names a tenant to which the user may belong, and no other."""
    place.add("7", request=wanted)
    place.step()
    assert place.controller.state.jobs["7"].submission.job.tenant == tenant


@pytest.mark.parametrize(
    ("wanted", "work_s", "estimate"),
    [
        (request("7"), 10.0, None),
        (request("7", duration_s=None, limit_s=600.0), 600.0, "its time limit"),
        (request("7", duration_s=None), 3600.0, "nobody stated how long it runs"),
    ],
)
def test_how_long_it_runs(
    place: Place, wanted: Request, work_s: float, estimate: str | None
) -> None:
    place.add("7", request=wanted)
    place.step()
    submission = place.controller.state.jobs["7"].submission
    assert (submission.job.work_s, submission.estimate) == (work_s, estimate)


def test_whether_it_saves(place: Place) -> None:
    """Of one of which nobody says so, stopping loses all it did."""
    place.add("a")
    place.add("b", request=request("b", saves=True, grace_s=7.0))
    place.step()
    a, b = (place.controller.state.jobs[name].submission for name in "ab")
    assert (a.job.profile.checkpoint_every_s, a.grace_s) == (NEVER_S, 60.0)
    assert (b.job.profile.checkpoint_every_s, b.grace_s) == (None, 7.0)


def test_one_that_fails_by_a_bug_keeps_nobody_from_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Intake._take

    def sometimes(intake: Intake, arrival: Arrival) -> None:
        if arrival.name == "a":
            raise ValueError("a bug")
        take(intake, arrival)

    monkeypatch.setattr(Intake, "_take", sometimes)
    place.add("a")
    place.add("b")
    for _ in range(3):
        place.step(1.0)
    assert (place.status("a"), place.status("b")) == (None, "running")
    notes = [own.event for own in place.controller.journal.entries()]
    said = [own.text for own in notes if isinstance(own, Noted)]
    assert said == [
        "taking in a of the cluster manager failed, and is tried again: ValueError: a bug"
    ]
    monkeypatch.undo()
    place.controller._failing.clear()
    place.step(60.0)
    assert place.status("a") is not None
