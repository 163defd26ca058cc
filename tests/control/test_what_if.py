"""What would be otherwise: against sums by hand, against what then happens, and that nothing is
touched."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optsched import Job, Profile
from optsched.cli.explain import command as explain_command
from optsched.cli.what_if import command as what_if_command
from optsched.control.beside import NoForecastError
from optsched.control.journal.events import Cancelled, Held
from optsched.control.what_if import process
from optsched.control.what_if.future import Outlook, outlook
from optsched.control.what_if.process import foretell
from optsched.control.what_if.simulated import Answer, Change, changed_instance
from optsched.control.what_if.snapshot import snapshot
from optsched.control.what_if.words import told
from optsched.duration import human
from optsched.errors import InputError

from .api.live import Live
from .courses import what_if
from .test_controller import Lab

FREE = Profile()
"""No overheads."""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def ahead(lab: Lab) -> Outlook:
    return outlook(snapshot(lab.controller))


def asked(lab: Lab, **change: Any) -> Answer:
    return what_if(ahead(lab), Change(**change), time_limit_s=120.0)


def means(answer: Answer) -> tuple[float | None, float | None]:
    assert answer.after is not None
    return answer.before.mean_jct_s, answer.after.mean_jct_s


def firm(lab: Lab) -> None:
    """`a` has all 8 GPUs for 100 s, 10 of which have passed, and stays; `b` and `c` of 50 and 20 s
    want them, too."""
    lab.submit("a", 8, 100.0, profile=FREE, job={"preemptible": False})
    lab.run(10)
    lab.submit("b", 8, 50.0, profile=FREE)
    lab.submit("c", 8, 20.0, profile=FREE)
    lab.controller.observe()


def test_when_a_job_starts_and_ends(lab: Lab) -> None:
    firm(lab)
    found = asked(lab, job="b")
    assert found.after is None
    assert (found.before.start_s["b"], found.before.end_s["b"]) == (
        pytest.approx(110.0),
        pytest.approx(160.0),
    )
    assert found.before.end_s["c"] == pytest.approx(110.0)
    words = told(found, 1010.0).sentences
    assert words == ("b is expected to start in 1 min 50 s, and to end in 2 min 40 s.",)


def test_more_gpus(lab: Lab) -> None:
    firm(lab)
    found = asked(lab, gpus=8, job="b")
    # as things are: a ends at 90, c at 110, b at 160; with 8 GPUs more c at 20, b at 70, a at 90;
    # all from now
    assert means(found) == (
        pytest.approx((100 + 110 + 160) / 3),
        pytest.approx((100 + 20 + 70) / 3),
    )
    assert found.after is not None and found.after.gpus == 16 and found.before.gpus == 8
    assert found.before.gpu_use == pytest.approx(1.0)
    assert found.after.gpu_use == pytest.approx((8 * 90 + 8 * 70) / (16 * 90))
    rows = {row["what"]: (row["before"], row["after"]) for row in told(found, 0.0).rows}
    assert rows["b starts"] == ("in 1 min 50 s", "in 20 s") and rows["GPUs"] == ("8", "16")


def test_a_job_less_and_a_job_more(lab: Lab) -> None:
    firm(lab)
    found = asked(lab, without="a")
    assert found.after is not None and "a" not in found.after.end_s
    assert found.after.end_s == {"c": pytest.approx(20.0), "b": pytest.approx(70.0)}
    assert found.jobs == 2 and means(found) == (
        pytest.approx((110 + 160) / 2),
        pytest.approx((20 + 70) / 2),
    )
    found = asked(lab, submit=Job(id="x", gpus=8, duration_s=10.0))
    assert found.change.job == "what-if" and found.after is not None
    assert found.after.start_s["what-if"] == pytest.approx(90.0)
    assert found.after.end_s["b"] == pytest.approx(170.0) and found.before.end_s[
        "b"
    ] == pytest.approx(160.0)
    assert found.jobs == 3, "the mean is over jobs that are there"


def test_no_preemption(lab: Lab) -> None:
    lab.submit("long", 8, 1000.0, profile=Profile(checkpoint_s=2.0, restore_s=3.0))
    lab.run(10)
    lab.submit("short", 8, 20.0, profile=FREE)
    lab.controller.observe()
    found = asked(lab, no_preemption=True, job="short")
    assert found.before.preemptions == 1 and found.before.start_s["short"] == pytest.approx(2.0)
    assert found.before.end_s["long"] == pytest.approx(2 + 20 + 3 + 990)
    assert found.after is not None and found.after.preemptions == 0
    assert found.after.start_s["short"] == pytest.approx(990.0) and found.after.end_s[
        "long"
    ] == pytest.approx(990.0)


def test_a_node_goes_down(lab: Lab) -> None:
    lab.submit("a", 4, 100.0, profile=FREE)
    lab.submit("b", 4, 100.0, profile=FREE)
    lab.submit("wide", 8, 50.0, profile=FREE, job={"weight": 1e-3})
    lab.run(10)
    node = lab.controller.state.jobs["a"].attempts[0].placement[0].node
    found = asked(lab, down=node, job="a")
    assert found.before.end_s == {
        "a": pytest.approx(90.0),
        "b": pytest.approx(90.0),
        "wide": pytest.approx(140.0),
    }
    # a has never saved, and begins anew when b is done, or b makes way; the node that is left does
    # both in 190 s
    assert found.after is not None and max(found.after.end_s.values()) == pytest.approx(190.0)
    assert found.after.never == {"wide": "it needs 8 GPUs of one type, the cluster has at most 4"}
    assert "These could never run: wide." in told(found, 0.0).sentences


def test_a_job_that_can_never_run_would_with_more(lab: Lab) -> None:
    lab.submit("huge", 9, 10.0, profile=FREE)
    lab.submit("then", 1, 5.0, profile=FREE, job={"after": ("huge",)})
    lab.run(3)
    found = asked(lab, gpus=1, job="then")
    assert set(found.before.never) == {"huge", "then"}
    assert found.after is not None and found.after.end_s == {
        "huge": pytest.approx(10.0),
        "then": pytest.approx(15.0),
    }


def test_it_comes_as_foretold(lab: Lab) -> None:
    """Jobs that each need the whole cluster: the controller's turns are a second long, so each may
    be late by some."""
    for name, seconds in (("a", 120.0), ("b", 30.0), ("c", 75.0), ("d", 50.0)):
        lab.submit(name, 8, seconds)
        lab.run(4)
    now_s = lab.clock.at_s
    found = asked(lab)
    lab.run(400)
    for name, job in lab.controller.state.jobs.items():
        assert job.finished_s is not None
        assert job.finished_s - now_s == pytest.approx(found.before.end_s[name], abs=12.0), name
    order = sorted(found.before.end_s, key=lambda name: found.before.end_s[name])
    assert order == sorted(
        order, key=lambda name: lab.controller.state.jobs[name].finished_s or 0.0
    )


def test_nothing_is_touched(lab: Lab) -> None:
    firm(lab)
    last, jobs = lab.controller.journal.last, str(lab.controller.state.jobs)
    for change in ({"gpus": 8}, {"down": "n0"}, {"without": "b"}, {"no_preemption": True}):
        asked(lab, **change)
    assert (lab.controller.journal.last, str(lab.controller.state.jobs)) == (last, jobs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"job": "zz"}, "job 'zz' neither waits nor runs"),
        ({"job": "held"}, "job held: it is on hold"),
        (
            {"job": "b", "gpus": 8, "gpu_type": "h100"},
            "no node has GPUs of type 'h100'; there are: a",
        ),
        ({"gpu_type": "a"}, "a GPU type goes with a number of GPUs"),
        ({"without": "zz"}, "job 'zz' neither waits nor runs, so all is as if it were not there"),
        ({"down": "zz"}, "node 'zz' is not there"),
    ],
)
def test_what_makes_no_sense_is_said(lab: Lab, change: dict[str, Any], message: str) -> None:
    firm(lab)
    lab.submit("held", 1, 5.0, hold=True)
    with pytest.raises(InputError, match=message):
        asked(lab, **change)


def test_the_present_is_sound_at_every_moment_of_a_history(lab: Lab) -> None:
    for i in range(7):
        lab.submit(f"j{i}", 1 + i, 10.0 + 7 * i, status=3 if i == 2 else 0, retries=2, saves_s=6.0)
    lab.submit("last", 1, 5.0, job={"after": ("j2",)})
    for turn in range(60):
        lab.run(2)
        if turn == 10:
            lab.executor.drained = {"n1"}
        if turn == 16:
            lab.executor.drained = set()
        if turn == 20:
            lab.controller.record(Held(job="j5", by="me"), Cancelled(job="j6", by="me"))
        if turn == 24:
            lab.executor.silent = True
        if turn == 44:
            lab.executor.silent = False
        found = ahead(lab)
        changed_instance(found.instance, Change())  # raises where it is no sound instance
        present = {*found.submit_s, *found.left_out}
        assert present == set(lab.controller.state.open)
        if turn in (12, 20, 30, 50) and found.instance.jobs:
            course = what_if(found, Change(), time_limit_s=60.0).before
            assert set(course.end_s) | set(course.never) == set(found.submit_s)


def test_in_a_process_of_its_own_and_when_time_is_up(lab: Lab) -> None:
    firm(lab)
    view = ahead(lab)
    here = told(what_if(view, Change(gpus=8), time_limit_s=120.0), view.instance.now_s)
    there = foretell(view, Change(gpus=8), objective="wct", time_limit_s=120.0)
    assert there == here
    with pytest.raises(InputError, match="node 'zz' is not there"):
        foretell(view, Change(down="zz"), objective="wct")
    with pytest.raises(InputError, match="duration"):
        foretell(view, Change(submit=Job(id="x", gpus=1, duration_s=-1.0)), objective="wct")
    cut = what_if(view, Change(gpus=8), time_limit_s=1e-6)
    assert "the time was up: only the present was looked at" in cut.notes and means(cut) == (
        None,
        None,
    )
    assert cut.before.start_s == {"a": pytest.approx(0.0)} and not cut.before.complete


def many(lab: Lab, jobs: int) -> None:
    """So many jobs, of 1 to 8 of the 8 GPUs."""
    for i in range(jobs):
        lab.submit(f"j{i}", (1, 2, 4, 8)[i % 4], 50.0 + 37.0 * (i % 11), profile=FREE)
    lab.run(2)


def test_both_courses_at_once_say_what_they_say_one_after_the_other(lab: Lab) -> None:
    many(lab, 12)
    view, job = ahead(lab), Job(id="x", gpus=4, duration_s=60.0)
    for change in (Change(gpus=8, without="j1", submit=job), Change(down="n0", job="j7")):
        here = told(what_if(view, change, time_limit_s=120.0), view.instance.now_s)
        there = foretell(view, change, objective="wct", time_limit_s=120.0)
        assert repr(there) == repr(here)


def test_a_process_that_hangs_or_dies_ends_with_its_answer(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    firm(lab)
    view = ahead(lab)
    whole = foretell(view, Change(gpus=8), objective="wct")
    hanging = process._idle[-1][0].call(60.0, os.getpid)
    os.kill(hanging, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(process, "START_S", 0.3)
        with pytest.raises(NoForecastError, match="no answer within"):
            foretell(view, Change(gpus=8), objective="wct", time_limit_s=0.1)
    dying = process._idle[-1][1].call(60.0, os.getpid)
    os.kill(dying, signal.SIGKILL)
    assert foretell(view, Change(gpus=8), objective="wct") == whole


class Passing:
    """A clock by which each look takes a second."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def monotonic(self) -> float:
        self.at_s += 1.0
        return self.at_s


def test_what_was_seen_is_said_where_time_is_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    many(lab, 40)
    view = ahead(lab)
    whole = what_if(view, Change(gpus=8), time_limit_s=120.0)
    monkeypatch.setattr("optsched.control.what_if.simulated.time", Passing())
    cut = what_if(view, Change(gpus=8, job="j3"), time_limit_s=40.0)
    assert whole.after is not None and cut.after is not None and not cut.before.complete
    reached_s = cut.before.reached_s
    assert reached_s == cut.after.reached_s > 100
    for part, full in ((cut.before, whole.before), (cut.after, whole.after)):
        assert part.end_s == {
            name: end_s for name, end_s in full.end_s.items() if end_s <= reached_s
        }
        assert part.start_s == {
            name: start_s for name, start_s in full.start_s.items() if start_s <= reached_s
        }
        assert part.jobs == 40 and part.gpu_use is not None and 0.5 < part.gpu_use <= 1 + 1e-9
    assert cut.jobs == len(set(cut.before.end_s) & set(cut.after.end_s)) > 0
    said = told(cut, view.instance.now_s)
    assert all("-" not in (row["before"], row["after"]) for row in said.rows)
    rows = {row["what"]: (row["before"], row["after"]) for row in said.rows}
    assert rows["j3 starts"][0] == f"not within {human(reached_s)}"
    assert rows[f"jobs completed within {human(reached_s)}"] == (
        f"{len(cut.before.end_s)}",
        f"{len(cut.after.end_s)}",
    )
    assert f"only the next {human(reached_s)} was looked at" in said.notes[0]
    assert said.before["starts"] == {
        name: view.instance.now_s + start_s
        for name, start_s in cut.before.start_s.items()
        if start_s > 0
    }
    first = next(iter(said.after["starts"]))
    assert said.sentences[-1].startswith(f"First to start then: {first} in ")
    hidden = told(cut, 0.0, frozenset())
    assert f"{first} " not in " ".join(hidden.sentences) and not hidden.after["starts"]
    monkeypatch.setattr("optsched.control.what_if.simulated.time", Passing())
    alone = told(what_if(view, Change(job="j3"), time_limit_s=20.0), view.instance.now_s).sentences
    assert alone[0].startswith("j3 does not start within") and "still wait" in alone[1]


def test_many_jobs_are_seen_roughly(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    many(lab, 120)
    view = ahead(lab)
    rough = what_if(view, Change(), time_limit_s=120.0)
    monkeypatch.setattr("optsched.control.what_if.simulated.FEW_JOBS", 1000)
    exact = what_if(view, Change(), time_limit_s=120.0)
    assert rough.before.complete and exact.before.complete and rough.before != exact.before
    # docs/live.md says so: which of two equal jobs goes first decides by some percent
    assert rough.before.mean_jct_s == pytest.approx(exact.before.mean_jct_s, rel=0.05)
    assert any("the rougher" in note for note in rough.notes) and exact.notes == ()
    monkeypatch.undo()
    tiny = what_if(view, Change(submit=Job(id="x", gpus=1, duration_s=1.0)), time_limit_s=120.0)
    mean_s = tiny.before.mean_jct_s
    assert tiny.rough and tiny.after is not None and mean_s is not None

    def sentence(longer: float) -> str:
        assert tiny.after is not None and mean_s is not None
        after = replace(tiny.after, mean_jct_s=longer * mean_s)
        return told(replace(tiny, after=after), 0.0).sentences[1]

    about = "at about the same time on average: less than 1% cannot be told"
    assert about in sentence(1.009) and about in sentence(0.991)
    assert "later on average" in sentence(1.02) and "sooner on average" in sentence(0.98)
    assert [row["before"] for row in told(tiny, 0.0).rows[:2]] == ["-", "-"]


def test_over_the_api_and_on_the_command_line(tmp_path: Path) -> None:
    live = Live(tmp_path)
    try:
        live.submit(600.0, name="runs", gpus=8, min_nodes=2, preemptible=False)
        live.wait("runs", "running")
        live.submit(5.0, name="waits", gpus=8, min_nodes=2)
        live.wait("waits", "waiting")
        status, found = live.ask("GET", "/v1/jobs/waits/explain")
        assert status == 200 and found["status"] == "waiting"
        assert any("needs 8 GPUs, and none of the 8 a GPUs" in one for one in found["sentences"])
        assert live.ask("GET", "/v1/jobs/nobody/explain")[0] == 404
        status, found = live.ask(
            "POST", "/v1/what-if", {"gpus": 8, "job": "waits", "time_limit_s": 30}
        )
        assert status == 200 and found["before"]["gpus"] == 8 and found["after"]["gpus"] == 16
        assert found["after"]["end_s"] < found["before"]["end_s"]
        for body, expected in (
            ({"gpus": -1}, 422),
            ({"gpu": 8}, 422),
            ({"without": "nobody"}, 404),
            ({"time_limit_s": 1e9}, 422),
            ({"submit": {"gpus": 1, "cpus": 2, "duration_s": 5.0}}, 422),
        ):
            assert live.ask("POST", "/v1/what-if", body)[0] == expected, body
        environment = {"OPTSCHED_URL": f"unix:{live.path}"}
        run = CliRunner().invoke(explain_command, ["waits", "runs"], env=environment)
        assert (
            run.exit_code == 0
            and "waits has been waiting for" in run.output
            and "runs has been running for" in run.output
        )
        run = CliRunner().invoke(
            what_if_command, ["--submit", "4:60", "--json", "--time-limit", "30s"], env=environment
        )
        assert run.exit_code == 0
        assert json.loads(run.output)["asked"]["submit"]["gpus"] == 4
        for words in (
            [],
            ["--submit", "4"],
            ["when", "a", "b"],
            ["--type", "a"],
            ["--node", "n0", "up"],
        ):
            run = CliRunner().invoke(what_if_command, words, env=environment)
            assert isinstance(run.exception, InputError), words
    finally:
        live.close()


def test_other_users_jobs_are_not_named(lab: Lab) -> None:
    lab.submit("secret", 8, 10.0, job={"user": "ann"})
    lab.submit("mine", 1, 10.0, job={"user": "bob"})
    lab.run(2)
    answer = what_if(ahead(lab), Change(down="n0"), time_limit_s=60.0)
    assert "secret" in str(told(answer, 0.0)) and "secret" not in str(
        told(answer, 0.0, frozenset({"mine"}))
    )
