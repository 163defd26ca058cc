"""Jobs that run again from their last checkpoint, and what is counted of them."""

from pathlib import Path

import pytest

from optsched.control.api.views import job_view
from optsched.control.journal.events import Cancelled, Requeued
from optsched.control.journal.state import State

from .test_controller import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def requeue(lab: Lab, name: str) -> None:
    lab.controller.record(Requeued(job=name, by="me"))


def test_a_running_job_saves_and_goes_on(lab: Lab) -> None:
    lab.submit("runs", 2, 60.0)
    lab.run(20)
    requeue(lab, "runs")
    lab.crash()
    lab.run(80)
    job = lab.controller.state.jobs["runs"]
    assert job.status == "completed" and job.preemptions == 0
    assert [attempt.stop_why for attempt in job.attempts] == ["requeue", None]
    assert job.attempts[1].work_s < 50.0


def test_a_failed_job_is_tried_again_as_often_as_at_first(lab: Lab) -> None:
    lab.submit("fails", 2, 10.0, status=3, retries=1)
    lab.run(60)
    assert lab.status()["fails"] == "failed"
    lab.run(1000, turn_s=100.0)
    lab.clock.at_s += 1.0
    requeue(lab, "fails")
    assert lab.status()["fails"] == "waiting"
    view = job_view(lab.controller, lab.controller.state.jobs["fails"], lab.clock.at_s)
    assert view.waited_s < 60.0 and view.finished_s is None
    assert view.reason == "the next round decides"
    lab.run(60)
    job = lab.controller.state.jobs["fails"]
    assert (job.status, len(job.attempts)) == ("failed", 4)
    rebuilt = State()
    for entry in lab.controller.journal.entries():
        rebuilt.apply(entry.at_s, entry.event)
    assert rebuilt.jobs["fails"].finished_s == job.finished_s and not rebuilt.open


def test_a_time_limit_begins_anew_and_work_goes_on(lab: Lab) -> None:
    lab.submit("long", 2, 60.0, limit_s=40.0)
    lab.run(60)
    assert lab.status()["long"] == "timeout"
    requeue(lab, "long")
    lab.run(60)
    assert lab.status()["long"] == "completed"


def test_completed_and_cancelled_jobs_run_again(lab: Lab) -> None:
    lab.submit("done", 2, 10.0)
    lab.submit("gone", 2, 10.0)
    lab.controller.record(Cancelled(job="gone", by="me"))
    lab.run(30)
    assert lab.status() == {"done": "completed", "gone": "cancelled"}
    for name in ("done", "gone"):
        requeue(lab, name)
    lab.crash()
    lab.run(30)
    assert lab.status() == {"done": "completed", "gone": "completed"}
    assert len(lab.controller.state.jobs["done"].attempts) == 2
