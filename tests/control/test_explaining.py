"""Why a live job is where it is: what is said, and that the numbers in it hold."""

from dataclasses import replace
from pathlib import Path

import pytest

from optsched import Profile
from optsched.control.api.views import job_view
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import Held
from optsched.control.learned import NEVER_S
from optsched.control.settings import TenantSettings
from optsched.control.what_if.future import outlook
from optsched.control.what_if.simulated import Change
from optsched.control.what_if.snapshot import snapshot
from optsched.errors import InputError
from optsched.model.instance import Instance
from optsched.model.job import Elastic
from optsched.model.profile import Locality
from optsched.round.decide import decide

from . import test_controller
from .courses import what_if
from .test_controller import SETTINGS, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def said(lab: Lab, name: str, *, names: bool = False) -> str:
    return "\n".join(explain_job(snapshot(lab.controller), name, names=names).sentences)


def facts(lab: Lab, name: str) -> dict:  # type: ignore[type-arg]
    return explain_job(snapshot(lab.controller), name).facts


def test_a_running_job_says_since_when_how_far_and_what_a_preemption_costs(lab: Lab) -> None:
    lab.submit("a", 4, 100.0, profile=Profile(checkpoint_s=3.0, restore_s=5.0, startup_s=2.0))
    lab.run(22)
    text = said(lab, "a")
    node = lab.controller.state.jobs["a"].attempts[0].placement[0].node
    # 22 s minus 2 s of start-up: 20 of 100 s are done; 3 + 2 + 5 s would a preemption cost
    assert (
        f"a has been running for 22 s on {node} (4 GPUs); 20% done, expected to end in 1 min 20 s."
        in text
    )
    assert "that would cost 10 s (3 s to save, 2 s to start up again, 5 s to restore)" in text
    assert facts(lab, "a")["remaining_s"] == pytest.approx(80.0)


def test_who_may_not_be_preempted_says_so(lab: Lab) -> None:
    lab.submit("a", 4, 100.0, job={"preemptible": False})
    lab.run(3)
    assert "It cannot be preempted: it was submitted as not preemptible." in said(lab, "a")


def test_a_waiting_job_says_what_is_free_what_it_would_cost_and_when_there_is_room(
    lab: Lab,
) -> None:
    lab.submit("x", 3, 100.0, profile=Profile(checkpoint_s=30.0, restore_s=40.0))
    lab.submit("y", 3, 200.0, profile=Profile(checkpoint_s=30.0, restore_s=40.0))
    lab.run(10)
    lab.submit("gang", 4, 1000.0)
    lab.run(2)
    assert {
        slot.node for name in "xy" for slot in lab.controller.state.jobs[name].attempts[0].placement
    } == {"n0", "n1"}
    lab.controller.decide()
    found = facts(lab, "gang")
    assert found["free"] == {"gpus": 2, "most_on_one_node": 1, "of": 8, "needs": 4}
    # x ends first, after 100 s of which 12 have passed; then its node has all four
    assert found["room_by_itself_s"] == pytest.approx(88.0)
    text = said(lab, "gang")
    assert "only 2 of the 8 a GPUs it could use are free" in text
    assert "would have to be preempted for it, which loses" in text and "of pauses" in text
    assert "becomes free for it in about 1 min 28 s" in text


def test_scattered_gpus_are_told_from_too_few(lab: Lab) -> None:
    for name in ("x", "y"):  # too large for one node together, so that one GPU is left on each
        lab.submit(name, 3, 500.0, job={"preemptible": False})
    lab.run(2)
    near = Profile(locality=Locality(node=1.0, rack=0.0, cluster=0.0))
    lab.submit("together", 2, 50.0, profile=near)
    lab.submit("more", 3, 50.0, profile=near)
    lab.run(2)
    text = said(lab, "together")
    assert (
        "It needs 2 GPUs on one node; 2 of the 8 a GPUs are free, but scattered over 2 nodes, at "
        "most 1 on one." in text
    )
    assert "6 GPUs are held by 2 jobs that may not be preempted." in text
    assert "With 1 GPU instead of 2 there would be room on one node now." in text
    assert "It needs 3 GPUs, and only 2 of the 8 a GPUs it could use are free." in said(lab, "more")


def test_the_weight_it_says_would_do_does(lab: Lab) -> None:
    lab.submit("runs", 8, 600.0)
    lab.run(5)
    lab.submit("waits", 8, 900.0)
    lab.run(3)
    assert lab.status()["waits"] == "waiting"
    weight = facts(lab, "waits")["weight_needed"]
    instance = lab.controller.last_instance
    assert instance is not None and weight > 1

    def starts(of: Instance, heavy: float) -> bool:
        jobs = tuple(replace(job, weight=heavy) if job.id == "waits" else job for job in of.jobs)
        found = decide(replace(of, jobs=jobs), "wct", round_s=300.0, budget_s=60.0)
        return next(one for one in found.jobs if one.id == "waits").mode is not None

    assert starts(instance, weight) and not starts(instance, weight * 0.95)


def test_waiting_for_others_for_a_pause_on_hold_and_for_ever(lab: Lab) -> None:
    lab.submit("first", 1, 20.0)
    lab.submit("second", 1, 5.0, job={"after": ("first",)})
    lab.submit("fails", 1, 5.0, status=3, retries=2)
    lab.submit("held", 1, 5.0, hold=True)
    lab.submit("huge", 9, 5.0)
    lab.run(7)
    assert (
        said(lab, "second")
        == "second waits for first (running, expected to end in 13 s) to complete."
    )
    text = said(lab, "fails")
    assert (
        "pauses for another" in text and "exit status 3; it may fail 1 more time after that" in text
    )
    assert "Attempt 1 on" in text and "ran 5 s and ended with exit status 3" in text
    assert said(lab, "held").startswith("held is on hold: it was submitted on hold.")
    assert said(lab, "huge").startswith(
        "huge can never run on this cluster: it needs 9 GPUs of one type, the cluster has at "
        "most 8."
    )
    lab.run(30)
    assert said(lab, "first").startswith("first completed 20 s after it was submitted.")


def test_a_place_that_is_being_freed_and_who_frees_it(lab: Lab) -> None:
    lab.submit("long", 8, 3000.0, saves_s=20.0, profile=Profile(checkpoint_s=20.0))
    lab.run(10)
    lab.submit("short", 8, 5.0)
    lab.run(5)
    assert lab.status() == {"long": "stopping", "short": "waiting"}
    text = said(lab, "short")
    assert (
        "short has been given n0 (4 GPUs), n1 (4 GPUs) and starts there as soon as that is free."
        in text
    )
    assert "The place is being freed by long, saving now" in text
    text = said(lab, "long")
    assert (
        "was asked 5 s ago to save and stop" in text
        and "to make room for others; it is killed in 55 s" in text
    )
    lab.run(40)
    assert "was asked to stop to make room for others and saved in 20 s" in said(lab, "long")


def test_a_job_that_never_saves_begins_anew_and_what_is_lost_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        test_controller, "SETTINGS", SETTINGS.model_copy(update={"preempt_unsaved": True})
    )
    lab = Lab(tmp_path)
    for name, profile in (
        ("never", Profile(checkpoint_every_s=NEVER_S)),
        ("often", Profile(checkpoint_every_s=60.0)),
    ):
        lab.submit(name, 4, 3000.0, saves_s=-1.0, profile=profile)
    lab.run(100)
    lab.submit("urgent", 8, 5.0, job={"weight": 1e6})
    lab.run(5)
    assert lab.status() == {"never": "stopping", "often": "stopping", "urgent": "waiting"}
    anew = "starts from the beginning, as it is not known to save: the 1 min 45 s it has worked are lost."  # noqa: E501
    assert anew in said(lab, "never")
    assert "goes on from its last checkpoint: 45 s of its work are lost" in said(lab, "often")


def test_other_users_are_counted_and_named_only_to_administrators(lab: Lab) -> None:
    for name, user in (("secret", "ann"), ("hidden", "ann"), ("own", "bob")):
        lab.submit(name, 2 if name == "own" else 3, 4000.0, job={"user": user})
    lab.run(10)
    lab.submit("asked", 8, 9000.0, job={"user": "bob"})
    lab.run(3)
    lab.submit("quicker", 8, 8000.0, job={"user": "cid"})
    lab.run(2)
    text = said(lab, "asked")
    assert "secret" not in text and "hidden" not in text and "quicker" not in text
    assert (
        "2 jobs of other users" in text and "own" in text and "behind 1 job of other users" in text
    )
    assert "secret" in said(lab, "asked", names=True) and "quicker" in said(
        lab, "asked", names=True
    )
    whole = str(explain_job(snapshot(lab.controller), "asked").facts)
    assert "secret" not in whole and "hidden" not in whole and "quicker" not in whole


def test_lost_attempts_unknown_jobs_and_a_node_that_went(lab: Lab) -> None:
    lab.submit("a", 4, 500.0)
    lab.run(5)
    lab.executor.silent = True
    lab.run(60)
    assert said(lab, "a").startswith("a: its state is unknown, because the network is down.")
    with pytest.raises(InputError, match="'b' is not known here"):
        explain_job(snapshot(lab.controller), "b")


def test_a_scene_does_not_change_when_the_controller_goes_on(lab: Lab) -> None:
    lab.submit("a", 4, 10.0)
    lab.submit("b", 8, 10.0)
    lab.run(5)
    then = snapshot(lab.controller)
    before = [explain_job(then, name).sentences for name in ("a", "b")]
    lab.controller.record(Held(job="b", by="me"))
    lab.run(40)
    assert [explain_job(then, name).sentences for name in ("a", "b")] == before
    assert then.state.jobs["a"].finished is None and lab.status()["a"] == "completed"


def test_an_answer_is_there_at_every_moment_of_a_history(lab: Lab) -> None:
    for i in range(6):
        lab.submit(
            f"j{i}",
            1 + i,
            10.0 + 7 * i,
            status=3 if i == 2 else 0,
            retries=1,
            saves_s=-1.0 if i == 4 else 2.0,
        )
    for _ in range(20):
        lab.run(6)
        now = snapshot(lab.controller)
        for name, job in now.state.jobs.items():
            found = explain_job(now, name)
            assert found.sentences and name in found.sentences[0] and found.status == job.status
        outlook(now)


def test_who_keeps_apart_says_from_whom_and_who_needs_another_near_whom(lab: Lab) -> None:
    apart = {"labels": ("db",), "anti_affinity": {"db": "node"}}
    for name in ("x", "y", "z"):
        lab.submit(name, 1, 100.0, job=apart)
    lab.submit("near", 1, 100.0, job={"affinity": {"web": "node"}})
    lab.run(10)
    state = lab.controller.state
    places = [state.jobs[name].attempts[0].placement[0].node for name in "xy"]
    assert sorted(places) == ["n0", "n1"] and not state.jobs["z"].attempts
    text = said(lab, "z")
    assert "Jobs with label db, with which it shares no node, are wherever it could run" in text
    text = said(lab, "near")
    assert "No node where it could run has a job with label web, which it needs beside it" in text
    lab.submit("other", 1, 100.0, job={"labels": ("db",)})
    assert "Jobs that keep apart from label db, which it has, are wherever" in said(lab, "other")
    lab.submit("web", 1, 100.0, job={"labels": ("web",)})
    lab.run(200)
    assert all(state.jobs[name].attempts for name in ("z", "near"))


def test_a_quota_that_is_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = (
        TenantSettings(name="vision", parent="group", gpu_quota=4),
        TenantSettings(name="speech", parent="group"),
        TenantSettings(name="group", gpu_quota=4),
    )
    monkeypatch.setattr(
        test_controller, "SETTINGS", SETTINGS.model_copy(update={"tenants": tenants})
    )
    lab = Lab(tmp_path)
    lab.submit("a", 3, 500.0, job={"tenant": "vision", "preemptible": False})
    lab.run(3)
    lab.submit("b", 2, 5.0, job={"tenant": "vision"})
    lab.run(3)
    lab.submit("c", 2, 5.0, job={"tenant": "speech"})
    lab.run(3)
    assert lab.status() == {"a": "running", "b": "waiting", "c": "waiting"}
    assert (
        "Tenant group, with all below it, may hold 4 GPUs and holds 3, which leaves too few for "
        "the 2 it needs." in said(lab, "c")
    )
    assert (
        "Its tenant vision may hold 4 GPUs and holds 3, which leaves too few for the 2 it needs."
        in said(lab, "b")
    )


def test_jobs_of_all_shapes_are_explained_and_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        test_controller, "SETTINGS", SETTINGS.model_copy(update={"resources": {"licence": 1.0}})
    )
    lab = Lab(tmp_path)
    for name in ("cpu-1", "cpu-2", "cpu-3"):
        lab.submit(name, 0, 60.0, job={"cpus": 8})
    lab.submit("elastic", Elastic(min=2, max=8), 80.0)  # type: ignore[arg-type]
    lab.submit("licensed", 1, 40.0, job={"resources": {"licence": 1.0}})
    lab.submit("licensed-too", 1, 90.0, job={"resources": {"licence": 1.0}})
    lab.submit("large", 8, 500.0)
    assert said(lab, "large") == "large waits; the controller has not seen its nodes yet."
    for _ in range(12):
        lab.run(10)
        now = snapshot(lab.controller)
        for name in now.state.jobs:
            assert explain_job(now, name).sentences
        found = what_if(outlook(now), Change(), time_limit_s=60.0)
        assert set(found.before.end_s) == set(now.state.open)


def told(lab: Lab, name: str) -> str | None:
    """What the queue says."""
    return job_view(lab.controller, lab.controller.state.jobs[name], lab.clock.at_s).reason


def test_the_queue_and_the_explanation_give_the_same_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = (
        TenantSettings(name="vision", gpu_quota=2, borrow_gpus=2),
        TenantSettings(name="speech", gpu_quota=1),
    )
    more = {"tenants": tenants, "resources": {"licence": 3.0}}
    monkeypatch.setattr(test_controller, "SETTINGS", SETTINGS.model_copy(update=more))
    lab = Lab(tmp_path)
    firm = {"preemptible": False}
    lab.submit("a", 2, 500.0, job={"tenant": "vision", "resources": {"licence": 2.0}, **firm})
    lab.submit("b", 1, 500.0, job={"tenant": "speech", **firm})
    lab.run(3)
    lab.submit("quota", 1, 5.0, job={"tenant": "speech"})
    lab.submit("pool", 1, 5.0, job={"tenant": "vision"})
    lab.submit("licensed", 1, 5.0, job={"resources": {"licence": 2.0}})
    lab.submit("huge", 9, 5.0)
    lab.submit("wide", 8, 5.0)
    lab.run(3)
    causes = {
        "quota": "its tenant speech may hold 1 GPU and holds 1, which leaves too few for the 1 "
        "it needs",
        "pool": "all tenants with a quota may hold 3 GPUs together and hold 3, which leaves too "
        "few for the 1 it needs",
        "licensed": "it needs 2 of licence, of which 2 of 3 are in use",
        "huge": "it can never run on this cluster: it needs 9 GPUs of one type, the cluster has "
        "at most 8",
    }
    for name, cause in causes.items():
        assert lab.status()[name] == "waiting" and told(lab, name) == cause
        assert cause[3:] in said(lab, name)
    assert told(lab, "wide") == "the last round gave its place to others"
    lab.executor.drained = {"n1"}
    lab.run(2)
    assert told(lab, "wide") == "it could only run on nodes that take no jobs now (n1: drained)"
    assert "It could only run on nodes that take no jobs now (n1: drained)." in said(lab, "wide")
    assert told(lab, "licensed") == causes["licensed"]
    lab.executor.drained = {"n0", "n1"}
    lab.run(2)
    closed = "n0: drained, n1: drained"
    assert told(lab, "licensed") == f"it could only run on nodes that take no jobs now ({closed})"


def test_jobs_of_a_higher_priority_go_first(lab: Lab) -> None:
    lab.submit("low", 4, 100.0)
    lab.submit("low2", 4, 100.0)
    lab.run(10)
    lab.submit("high", 4, 1e6, job={"priority": 1})
    lab.run(5)
    lab.submit("heavy", 8, 10.0, job={"weight": 1e6})
    lab.run(5)
    jobs = lab.controller.state.jobs
    assert jobs["high"].live is not None and jobs["heavy"].live is None
    view = job_view(lab.controller, jobs["heavy"], lab.clock.at_s)
    assert view.reason == "jobs of a higher priority go first"
    assert "1 job of a higher priority has what it could use" in said(lab, "heavy")
    assert "With a weight of about" not in said(lab, "heavy")
