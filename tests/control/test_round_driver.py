"""A policy that fails on live nodes ends nothing and hides nothing: rounds are decided instead."""

from collections.abc import Callable
from pathlib import Path

import pytest

from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import Noted
from optsched.control.learned import NEVER_S
from optsched.control.round_driver import PAUSE_S, NamedPolicy, RoundDriver
from optsched.control.settings import read_settings
from optsched.control.what_if.future import outlook
from optsched.control.what_if.simulated import Change
from optsched.control.what_if.snapshot import snapshot
from optsched.driver.world import World
from optsched.errors import InputError
from optsched.model.profile import Profile

from .courses import what_if
from .test_controller import Lab


class Rule:
    """Starts what fits, after `also`."""

    name = title = "rule"

    def __init__(self, also: Callable[[World], None]) -> None:
        self.also, self.decisions = also, 0

    def decide(self, world: World) -> None:
        self.decisions += 1
        self.also(world)
        for job_id in [*world.waiting]:
            if (fits := world.fit(job_id)) is not None:
                world.start(job_id, *fits)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def driven(lab: Lab, monkeypatch: pytest.MonkeyPatch, also: Callable[[World], None]) -> Rule:
    """Have the rule drive the lab."""
    rule = Rule(also)
    driver = RoundDriver(NamedPolicy("fifo", {}), "wct", limit_s=0.2)
    monkeypatch.setattr(driver, "_make", lambda: rule)
    driver.policy = rule
    lab.controller.policy = driver
    lab.controller.bug = lambda what, error: None
    return rule


def notes(lab: Lab) -> list[str]:
    return [
        entry.event.text
        for entry in lab.controller.journal.entries()
        if isinstance(entry.event, Noted)
    ]


def raises(world: World) -> None:
    raise ZeroDivisionError("by nothing")


def loops(world: World) -> None:
    while True:
        pass


def starts_nobody(world: World) -> None:
    world.start("nobody", world.options(next(iter(world.waiting)))[0], ())


def exits(world: World) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("also", "said"),
    [
        (raises, "ZeroDivisionError: by nothing"),
        (loops, "PolicyOvertimeError: it did not decide within 0.2 s"),
        (starts_nobody, "job nobody cannot start"),
        (exits, "it raised SystemExit"),
    ],
)
def test_rounds_are_decided_in_the_place_of_a_policy_that_fails(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, also: Callable[[World], None], said: str
) -> None:
    rule = driven(lab, monkeypatch, also)
    lab.submit("a", 4, 20.0)
    lab.run(30)
    assert lab.status() == {"a": "completed"} and rule.decisions == 1
    assert len(notes(lab)) == 1 and said in notes(lab)[0]
    rule.also = lambda world: None
    lab.clock.at_s += PAUSE_S
    lab.submit("b", 4, 20.0)
    lab.run(30)
    assert lab.status() == {"a": "completed", "b": "completed"} and rule.decisions > 1
    assert lab.controller.last_round is not None
    assert lab.controller.last_round.solver == "policy fifo"


def test_who_would_lose_all_it_did_is_not_preempted_whatever_a_policy_says(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evicts(world: World) -> None:
        for job_id in [*world.running]:
            world.preempt(job_id)

    driven(lab, monkeypatch, evicts)
    lab.submit("a", 8, 50.0, profile=Profile(checkpoint_every_s=NEVER_S))
    lab.run(5)
    lab.submit("b", 8, 5.0, job={"weight": 1000.0})
    lab.run(80)
    assert "job a may not be preempted" in notes(lab)[0]
    assert lab.controller.state.jobs["a"].preemptions == 0
    assert set(lab.status().values()) == {"completed"}


def test_a_crash_and_a_node_that_goes_are_survived(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven(lab, monkeypatch, lambda world: None)
    for i in range(6):
        lab.submit(f"j{i}", 2, 15.0, retries=3)
    lab.run(5)
    lab.crash()
    driven(lab, monkeypatch, lambda world: None)
    lab.run(5)
    lab.executor.down.add("n1")
    lab.run(10)
    lab.executor.down.clear()
    lab.run(200)
    assert set(lab.status().values()) == {"completed"}
    assert not [note for note in notes(lab) if "failed" in note]


def test_policies_are_named_in_cluster_toml(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    text = 'format = "optsched-cluster/1"\nnodes = [{name = "n0", gpus = 1, emulate = true}]\n'
    path.write_text(f'{text}policy = "tiresias"\n')
    assert read_settings(path).policy == "tiresias"
    path.write_text(f'policy = "tiresia"\n{text}')
    with pytest.raises(InputError, match="'tiresia' is unknown"):
        read_settings(path)
    path.write_text(f'policy = "fifo"\n{text}[policy_options]\nspeed = 3\n')
    with pytest.raises(InputError, match="speed"):
        read_settings(path)
    path.write_text(f"{text}[policy_options]\nspeed = 3\n")
    with pytest.raises(InputError, match="there is no policy for them"):
        read_settings(path)


def test_what_if_simulates_the_policy(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.controller.policy = RoundDriver(NamedPolicy("fifo", {}), "wct")
    lab.submit("first", 8, 100.0, job={"preemptible": False})
    lab.run(2)
    lab.submit("long", 8, 500.0)
    lab.clock.at_s += 1.0
    lab.submit("short", 8, 10.0)
    lab.controller.observe()
    now = snapshot(lab.controller)
    assert now.policy.name == "fifo"
    course = what_if(outlook(now), Change(), policy=now.policy, time_limit_s=60.0).before
    assert course.end_s["long"] < course.end_s["short"]
    course = what_if(outlook(now), Change(), time_limit_s=60.0).before
    assert course.end_s["short"] < course.end_s["long"]


def test_who_waits_is_told_that_a_policy_decides(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.controller.policy = RoundDriver(NamedPolicy("fifo", {}), "wct")
    lab.submit("first", 8, 100.0)
    lab.run(2)
    lab.submit("second", 8, 10.0)
    lab.run(2)
    sentences = explain_job(snapshot(lab.controller), "second").sentences
    assert "Policy fifo says who starts." in sentences
    assert "about" in sentences[-1]


def test_a_job_that_can_never_run_is_not_shown_to_a_policy(lab: Lab) -> None:
    lab.controller.policy = RoundDriver(NamedPolicy("srtf", {}), "wct")
    lab.submit("huge", 9, 10.0)
    lab.submit("a", 8, 10.0)
    lab.run(5)
    lab.submit("b", 2, 3.0)
    lab.run(60)
    assert lab.status() == {"huge": "waiting", "a": "completed", "b": "completed"}
    assert not notes(lab)


def test_what_does_not_go_with_what_was_known_begins_anew(lab: Lab) -> None:
    lab.controller.policy = driver = RoundDriver(NamedPolicy("fifo", {}), "wct")
    lab.submit("a", 4, 100.0)
    lab.run(5)
    assert driver._world is not None
    before, driver._world._state["a"].run = driver._world, None
    lab.submit("b", 4, 10.0)
    lab.run(30)
    assert driver._world is not before and lab.status() == {"a": "running", "b": "completed"}
    assert not notes(lab)


def test_who_moves_waits_for_its_place_when_it_has_saved(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another round may be decided before who is there has saved, too."""

    def also(world: World) -> None:
        assert {*world.claims} <= {*world.waiting, *world.running, *world.saving}
        if rule.decisions == 3:
            place = world.hold("stays").placement
            world.preempt("stays")
            world.preempt("moves")
            world.claim("moves", world.options("moves")[0], place)
        world.start_claimed()

    lab.submit("stays", 4, 300.0, saves_s=9.0, profile=Profile(checkpoint_s=9.0, restore_s=1.0))
    lab.submit("moves", 4, 300.0)
    rule = driven(lab, monkeypatch, also)
    for i in range(12):
        lab.submit(f"more-{i}", 8, 1.0)
        lab.run(2)
    stays, moves = (lab.controller.state.jobs[name] for name in ("stays", "moves"))
    assert notes(lab) == []
    assert [attempt.killed for attempt in moves.attempts] == [None, None]
    assert moves.attempts[1].placement == stays.attempts[0].placement
