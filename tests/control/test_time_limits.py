"""Time limits: asked to save and stopped after so long in all, warned before, believed in."""

import re
import signal
from pathlib import Path

import pytest

from optsched.control.api.views import job_view
from optsched.control.caps import limits_of
from optsched.control.journal.events import Held, Released, Signalled
from optsched.control.settings import LimitSettings, TenantSettings, UserLimits
from optsched.control.warning import SIGNAL, SIGNALS, number_of, warning_of

from .test_controller import SETTINGS, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_it_is_warned_once_then_asked_to_save_and_stopped(lab: Lab) -> None:
    lab.submit("long", 2, 1000.0, limit_s=40.0, warning="SIGUSR1@15", saves_s=3.0)
    lab.run(20)
    assert lab.executor.signals == []
    view = job_view(lab.controller, lab.controller.state.jobs["long"], lab.clock.at_s)
    assert view.limit_s == 40.0
    lab.run(12)
    lab.crash()
    lab.run(60)
    job = lab.controller.state.jobs["long"]
    (attempt,) = job.attempts
    assert lab.executor.signals == [(attempt.key, signal.SIGUSR1)]
    assert (job.status, job.finished, job.reason) == (
        "timeout",
        "failed",
        "its time limit of 40 s was reached",
    )
    assert attempt.stop_why == "limit" and 40.0 <= attempt.ran_s(lab.clock.at_s) <= 47.0
    assert (
        sum(isinstance(entry.event, Signalled) for entry in lab.controller.journal.entries()) == 1
    )


def test_what_does_not_save_is_killed_after_its_grace(lab: Lab) -> None:
    lab.submit("deaf", 2, 1000.0, limit_s=20.0, saves_s=-1.0, grace_s=5.0)
    lab.run(80)
    assert lab.status() == {"deaf": "timeout"}


def test_all_attempts_count_and_waiting_does_not(lab: Lab) -> None:
    lab.submit("long", 2, 1000.0, limit_s=40.0)
    lab.run(25)
    lab.controller.record(Held(job="long", by="me"))
    lab.run(100)
    lab.controller.record(Released(job="long", by="me"))
    lab.run(60)
    job = lab.controller.state.jobs["long"]
    assert job.status == "timeout" and len(job.attempts) == 2
    assert 40.0 <= sum(attempt.ran_s(0.0) for attempt in job.attempts) <= 46.0


def test_what_completes_in_time_gets_no_signal(lab: Lab) -> None:
    lab.submit("short", 2, 30.0, limit_s=40.0, warning="USR1@5")
    lab.run(60)
    assert lab.executor.signals == [] and lab.status() == {"short": "completed"}


def test_it_is_believed_to_be_over_by_its_limit(lab: Lab) -> None:
    lab.submit("long", 2, 1000.0, limit_s=100.0)
    lab.run(30)
    assert lab.controller.last_instance is not None
    lab.controller.decide()
    (entry,) = lab.controller.last_instance.running
    assert 60.0 <= entry.remaining_s <= 75.0


def test_limits_of_user_tenant_and_all() -> None:
    settings = SETTINGS.model_copy(
        update={
            "limits": LimitSettings(
                time_limit="4h",
                max_time_limit="1d",
                users={"ann": UserLimits(max_time_limit="2d", time_limit="1d")},
            ),
            "tenants": (TenantSettings(name="quick", max_time_limit="1h"),),
        }
    )
    assert limits_of(settings, "bob", None)[2:] == (14400.0, 86400.0)
    assert limits_of(settings, "bob", "quick")[2:] == (3600.0, 3600.0)
    assert limits_of(settings, "ann", "quick")[2:] == (86400.0, 172800.0)
    assert limits_of(SETTINGS, "bob", None)[2:] == (None, None)
    with pytest.raises(ValueError, match="longer than 0 s"):
        LimitSettings(time_limit=0)


def test_signals_are_named_as_in_a_shell() -> None:
    assert warning_of("USR1") == ("USR1", 60.0)
    assert warning_of("SIGHUP@5") == ("HUP", 5.0)
    assert number_of("SIGUSR1") == number_of("USR1") == signal.SIGUSR1
    assert all(re.match(SIGNAL, name) for name in SIGNALS) and not re.match(SIGNAL, "STOP")
