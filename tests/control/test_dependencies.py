"""What jobs wait for besides GPUs: how others ended, and a time to come."""

from pathlib import Path

import pytest

from optsched.control.explain.blocked import Obstacles
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import Cancelled, Released
from optsched.control.what_if.future import outlook
from optsched.control.what_if.snapshot import snapshot

from .test_controller import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("if_never", ["cancel", "hold"])
def test_each_waits_for_the_end_that_it_names(lab: Lab, ending: str, if_never: str) -> None:
    lab.submit("first", 8, 20.0, status=int(ending == "failed"))
    lab.submit("ok", 1, 5.0, job={"after": ("first",)}, if_never=if_never)
    lab.submit("any", 1, 5.0, after_any=("first",), if_never=if_never)
    lab.submit("not-ok", 1, 5.0, after_not_ok=("first",), if_never=if_never)
    lab.run(5)
    assert lab.status() == {
        "first": "running",
        "ok": "waiting",
        "any": "waiting",
        "not-ok": "waiting",
    }
    now = snapshot(lab.controller)
    how = {"ok": "complete", "any": "end", "not-ok": "fail"}
    for name, verb in how.items():
        sentences = explain_job(now, name).sentences
        assert sentences[0].endswith(f"to {verb}.") and "first (running" in sentences[0]
    assert outlook(now).left_out == {"not-ok": "it starts only if first fails"}
    if ending == "cancelled":
        lab.controller.record(Cancelled(job="first", by="me"))
    lab.crash()
    lab.run(60)
    never = "held" if if_never == "hold" else "cancelled"
    ok = ending == "completed"
    assert lab.status() == {
        "first": ending,
        "ok": "completed" if ok else never,
        "any": "completed",
        "not-ok": never if ok else "completed",
    }
    ended = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}[ending]
    job = lab.controller.state.jobs["not-ok" if ok else "ok"]
    assert (job.held or job.reason) == f"first, which it comes after, {ended}"


def test_a_held_orphan_stays_held_when_released(lab: Lab) -> None:
    lab.submit("first", 1, 5.0, status=1)
    lab.submit("ok", 1, 5.0, job={"after": ("first",)}, if_never="hold")
    lab.run(30)
    lab.controller.record(Released(job="ok", by="me"))
    lab.run(10)
    assert lab.status()["ok"] == "held"


def test_it_begins_no_earlier_and_then_at_once(lab: Lab) -> None:
    begin_s = lab.clock.at_s + 100.0
    lab.submit("later", 1, 5.0, begin_s=begin_s)
    lab.submit("behind", 1, 5.0, begin_s=begin_s + 50.0, job={"after": ("later",)})
    lab.run(3)
    job = lab.controller.state.jobs["later"]
    why = next(Obstacles(lab.controller).of(job, lab.clock.at_s)).why
    assert why.startswith("its user wants it to begin in 1 min 3")
    assert (
        "its user wants it to begin then"
        in explain_job(snapshot(lab.controller), "later").sentences[0]
    )
    foreseen = outlook(snapshot(lab.controller)).instance.job
    assert foreseen["later"].submit_s == begin_s and foreseen["behind"].after == ("later",)
    lab.controller.record(Released(job="later", by="me"))  # which hastens nothing
    lab.crash()
    lab.run(200)
    began = {name: job.attempts[0].intended_s for name, job in lab.controller.state.jobs.items()}
    assert 0.0 <= began["later"] - begin_s <= 2.0
    assert 50.0 <= began["behind"] - begin_s <= 52.0
    assert lab.controller.state.jobs["later"].waited_s < 5.0
