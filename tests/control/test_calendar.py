"""Windows of the live cluster: nobody runs into one unsaved, whoever decides, whatever crashes."""

from datetime import datetime
from pathlib import Path

import pytest

from optsched import Profile
from optsched.control.api.views import job_view
from optsched.control.calendar import windows_ahead
from optsched.control.journal.events import WindowLifted, WindowSet
from optsched.control.learned import NEVER_S
from optsched.control.settings import TenantSettings, WindowSettings, read_settings
from optsched.errors import InputError
from optsched.executors.base import NoAnswerError
from optsched.model.cluster import FOR_EVER_S, Tenant, Window

from . import test_controller
from .test_controller import SETTINGS, Lab

PLAIN = Profile(checkpoint_every_s=NEVER_S)


def set_window(lab: Lab, *nodes: str, begin: float, end: float, **who: tuple[str, ...]) -> None:
    now_s = lab.clock.now_s()
    window = Window(nodes=nodes, from_s=now_s + begin, to_s=now_s + end, name="switch", **who)
    lab.controller.record(WindowSet(window=window, by="root"))


@pytest.mark.parametrize("policy", [None, "backfill", "tiresias"])
def test_who_can_save_fills_the_time_and_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str | None
) -> None:
    settings = SETTINGS.model_copy(update={"policy": policy})
    monkeypatch.setattr(test_controller, "SETTINGS", settings)
    lab = Lab(tmp_path)
    set_window(lab, "n0", "n1", begin=100, end=200)
    lab.submit("plain", 4, 300.0, profile=PLAIN)
    lab.submit("saves", 4, 300.0, profile=Profile(checkpoint_s=5.0))
    lab.run(50)
    lab.crash()
    lab.run(10)
    assert lab.status() == {"plain": "waiting", "saves": "running"}
    reason = job_view(lab.controller, lab.controller.state.jobs["plain"], lab.clock.now_s()).reason
    assert reason is not None and "wherever it fits, first into switch on n" in reason
    lab.run(41)
    assert lab.status() == {"plain": "waiting", "saves": "waiting"}
    saves = lab.controller.state.jobs["saves"]
    assert saves.attempts[0].stop_why == "preempt" and 195 < saves.left_s < 215
    lab.run(90)
    assert lab.status() == {"plain": "waiting", "saves": "waiting"}
    lab.run(20)
    assert lab.status() == {"plain": "running", "saves": "running"}
    lab.run(300)
    assert set(lab.status().values()) == {"completed"}


def test_a_drained_node_runs_empty_and_nobody_is_killed(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.submit("plain", 4, 60.0, profile=PLAIN)
    lab.submit("saves", 4, 300.0)
    lab.run(10)
    where = {
        name: lab.controller.state.jobs[name].attempts[0].placement[0].node
        for name in ("plain", "saves")
    }
    window = Window(nodes=("n0", "n1"), from_s=lab.clock.now_s(), to_s=FOR_EVER_S, name="drain")
    lab.controller.record(WindowSet(window=window, by="root"))
    lab.run(20)
    assert lab.status() == {"plain": "running", "saves": "waiting"}
    lab.run(60)
    assert lab.status() == {"plain": "completed", "saves": "waiting"}
    lab.controller.record(WindowLifted(name="drain", by="root"))
    lab.run(20)
    assert lab.status()["saves"] == "running" and set(where.values()) == {"n0", "n1"}


def test_what_the_manager_reserves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a window as any other, holds while the manager is silent, and is gone with it there."""
    lab = Lab(tmp_path)
    now_s, silent = lab.clock.now_s(), False
    nodes = ("n0", "n1", "n9")
    maint = Window(nodes=nodes, from_s=now_s + 100, to_s=FOR_EVER_S, name="Slurm's m")
    there: tuple[Window, ...] = (maint,)

    def told() -> tuple[Window, ...]:
        if silent:
            raise NoAnswerError("scontrol did not answer within 10 s")
        return there

    monkeypatch.setattr(lab.executor, "reserved_windows", told, raising=False)
    lab.submit("plain", 4, 300.0, profile=PLAIN)
    lab.submit("saves", 4, 300.0, profile=Profile(checkpoint_s=5.0))
    lab.run(50)
    assert lab.status() == {"plain": "waiting", "saves": "running"}
    reason = job_view(lab.controller, lab.controller.state.jobs["plain"], lab.clock.now_s()).reason
    assert reason is not None and "first into Slurm's m on n" in reason
    silent = True
    lab.executor.drained = {"n0", "n1"}  # nobody else can start there any more
    lab.crash()
    notes: list[str] = []
    lab.controller.listeners.append(lambda _, event: notes.append(getattr(event, "text", "")))
    lab.run(40)
    assert lab.status() == {"plain": "waiting", "saves": "running"}
    lab.run(10)
    assert lab.status() == {"plain": "waiting", "saves": "waiting"}
    saves = lab.controller.state.jobs["saves"]
    assert saves.attempts[0].ended_s is not None and saves.attempts[0].ended_s < now_s + 100
    assert [note for note in notes if note] == [
        "the cluster manager does not report its reservations, so the last known ones hold: "
        "scontrol did not answer within 10 s"
    ]
    assert [own.nodes for own in lab.controller.cluster.windows] == [("n0", "n1")]
    silent, there, lab.executor.drained = False, (), set()
    lab.run(20)
    assert lab.controller.cluster.windows == ()
    assert lab.status() == {"plain": "running", "saves": "running"}


def test_a_window_of_the_file_that_names_no_node_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night = WindowSettings(name="night", nodes=("n[1-3]",), every="day", length=60.0)
    settings = SETTINGS.model_copy(update={"windows": (night, night)})
    monkeypatch.setattr(test_controller, "SETTINGS", settings)
    lab = Lab(tmp_path)
    notes: list[str] = []
    lab.controller.listeners.append(lambda _, event: notes.append(getattr(event, "text", "")))
    lab.run(10)
    text = "the window 'night' of cluster.toml names what is no node of the cluster: n2, n3"
    assert [note for note in notes if note] == [text, text]


def test_who_can_save_does_in_time_although_rounds_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    begins_s = lab.clock.now_s() + 100
    set_window(lab, "n0", "n1", begin=100, end=200)
    lab.submit("saves", 4, 300.0, profile=Profile(checkpoint_s=5.0))
    lab.submit("plain", 4, 80.0, profile=PLAIN)
    lab.run(20)
    assert set(lab.status().values()) == {"running"}

    def fails(*_: object) -> None:
        raise KeyError("saves")

    lab.controller.bug = lambda what, error: None
    monkeypatch.setattr(lab.controller, "_drive", fails)
    lab.submit("late", 8, 10.0)
    lab.run(70)
    assert lab.status() == {"saves": "running", "plain": "completed", "late": "waiting"}
    lab.run(8)
    (attempt,) = lab.controller.state.jobs["saves"].attempts
    assert attempt.ended is not None and attempt.ended.exit_status == 85
    assert attempt.ended_s is not None and attempt.ended_s < begins_s


def drawn_w(lab: Lab) -> float:
    attempts = lab.controller.state.live_attempts()
    return sum(attempt.mode.resources["power_w"] for attempt in attempts)


def test_a_lower_cap_is_made_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SETTINGS.model_copy(update={"resources": {"power_w": 2400.0}})
    monkeypatch.setattr(test_controller, "SETTINGS", settings)
    lab = Lab(tmp_path)
    now_s = lab.clock.now_s()
    dim = Window(from_s=now_s + 100, to_s=now_s + 200, name="dim", resources={"power_w": 1500.0})
    lab.controller.record(WindowSet(window=dim, by="root"))
    for i in range(3):
        profile = Profile(checkpoint_s=5.0, power_w={"a": 300.0})
        lab.submit(f"saves-{i}", 2, 300.0, profile=profile)
    plain = Profile(checkpoint_every_s=NEVER_S, power_w={"a": 300.0})
    lab.submit("plain", 2, 150.0, profile=plain)
    lab.submit("long", 2, 250.0, profile=plain)
    lab.run(60)
    assert lab.status()["long"] == "waiting" and drawn_w(lab) == 1800.0
    lab.run(45)
    assert 600.0 <= drawn_w(lab) <= 1500.0
    lab.run(700)
    assert set(lab.status().values()) == {"completed"}


@pytest.mark.parametrize("policy", [None, "backfill"])
def test_a_lower_quota_is_made_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str | None
) -> None:
    tenants = (TenantSettings(name="t", gpu_quota=6), TenantSettings(name="u", gpu_quota=8))
    settings = SETTINGS.model_copy(update={"tenants": tenants, "policy": policy})
    monkeypatch.setattr(test_controller, "SETTINGS", settings)
    lab = Lab(tmp_path)
    now_s = lab.clock.now_s()
    fewer = Window(from_s=now_s + 100, to_s=now_s + 200, name="night", quotas={"t": 3})
    lab.controller.record(WindowSet(window=fewer, by="root"))
    for i in range(3):
        lab.submit(f"saves-{i}", 2, 300.0, profile=Profile(checkpoint_s=5.0), job={"tenant": "t"})
    lab.submit("plain", 2, 300.0, profile=PLAIN, job={"tenant": "u"})
    lab.run(60)
    assert set(lab.status().values()) == {"running"}
    lab.submit("long", 4, 120.0, profile=PLAIN, job={"tenant": "t"})
    aside = lab.controller._pose(lab.clock.now_s(), {"saves-0": "odd"}).instance
    (left,), (own, _) = aside.cluster.windows, aside.tenants
    assert (own.gpu_quota, dict(left.quotas)) == (4, {"t": 1})  # less the 2 GPUs it holds
    lab.run(45)
    held = [attempt.key.job for attempt in lab.controller.state.live_attempts()]
    assert sorted(held)[:1] == ["plain"] and len(held) == 2  # one of t is left its 2 of 3 GPUs
    reason = job_view(lab.controller, lab.controller.state.jobs["long"], lab.clock.now_s()).reason
    assert reason is not None and "t may hold 3 GPUs while night lasts and holds 2" in reason
    lab.run(900)
    assert set(lab.status().values()) == {"completed"}


def test_a_window_lowers_no_quota_that_settings_have_lowered_further() -> None:
    night = Window(from_s=5.0, to_s=9.0, quotas={"t": 3, "u": 2, "gone": 1})
    tenants = (Tenant(name="t", gpu_quota=2), Tenant(name="u", gpu_quota=1, borrow_gpus=1))
    (left,) = windows_ahead((night,), (), {}, tenants, (), 0.0)
    assert dict(left.quotas) == {"u": 2}


def test_a_reservation_is_for_its_users(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    set_window(lab, "n0", begin=0, end=1000, users=("ann",))
    lab.submit("others", 8, 50.0)
    lab.submit("other", 4, 50.0)
    lab.run(20)
    assert lab.status() == {"others": "waiting", "other": "running"}
    placement = lab.controller.state.jobs["other"].attempts[0].placement
    assert [slot.node for slot in placement] == ["n1"]


def test_recurring_windows_are_known_four_times_ahead() -> None:
    sunday = WindowSettings(name="weekly", every="sunday", at="02:00", length="4h")
    now = datetime(2026, 8, 2, 3, 0)  # a Sunday, within the window
    ahead = windows_ahead((), (sunday,), {"n0": None}, (), (), now.timestamp())
    begins = [datetime.fromtimestamp(window.from_s) for window in ahead]
    assert [(day.month, day.day, day.hour) for day in begins] == [
        (8, 2, 2),
        (8, 9, 2),
        (8, 16, 2),
        (8, 23, 2),
    ]
    daily = WindowSettings(every="day", at="23:30", length="1h")
    first = windows_ahead((), (daily,), {"n0": None}, (), (), now.timestamp())[0]
    assert datetime.fromtimestamp(first.from_s) == datetime(2026, 8, 2, 23, 30)
    once = WindowSettings(start=datetime(2026, 8, 2, 2, 0), length="30m")
    assert windows_ahead((), (once,), {"n0": None}, (), (), now.timestamp()) == ()


FILE = """format = "optsched-cluster/1"
[[nodes]]
name = "n[0-1]"
gpus = 4
[[tenants]]
name = "t"
gpu_quota = 3
borrow_gpus = 1
[[tenants]]
name = "free"
[[windows]]
"""


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ('every = "sunday"\nat = "25:00"\nlength = "1h"', "at"),
        ('length = "1h"', "either when it is, or how often"),
        ('every = "day"\nlength = 0', "longer than 0 s"),
        ('every = "day"\nlength = "1h"\ntenants = ["x"]', "'x' is not in tenants"),
        ('every = "day"\nlength = "1h"\nnodes = ["n[0-"]', "nodes"),
        (
            'every = "day"\nlength = "1h"\nresources = {power_w = 1}',
            "'power_w' is not in resources",
        ),
        ('every = "day"\nlength = "1h"\nquotas = {x = 1}', "there is no tenant 'x'"),
        ('every = "day"\nlength = "1h"\nquotas = {free = 1}', "'free' has no gpu_quota to lower"),
        ('every = "day"\nlength = "1h"\nquotas = {t = 5}', "5 GPUs are more than the 4"),
        ('every = "day"\nlength = "1h"\nquotas = {t = -1}', "quotas"),
        ('every = "day"\nlength = "1h"\nquotas = {t = nan}', "quotas"),
    ],
)
def test_faults_of_windows_are_told(tmp_path: Path, window: str, problem: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE + window)
    with pytest.raises(InputError, match=problem):
        read_settings(path)


def test_a_file_has_windows(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE + 'start = 2026-08-02T02:00:00\nlength = "4h"\nnodes = ["n[0-1]"]')
    (window,) = read_settings(path).windows
    assert window.node_names() == ("n0", "n1") and float(window.length) == 14400
