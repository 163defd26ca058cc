"""Places kept for gangs in live rounds, in virtual time: as early as in a simulation, and not on
hold."""

from dataclasses import replace
from pathlib import Path

import pytest

from optsched import Profile
from optsched.control.journal.events import Held, Released
from optsched.control.journal.state import LiveJob, State
from optsched.control.live_world import LiveWorld, reserved
from optsched.control.posing import pose
from optsched.control.present import present
from optsched.driver import reservation
from optsched.driver.reservation import GANG_PATIENCE_S, Reservation, Reservations
from optsched_solvers.policies.optsched import Optsched

from .test_controller import Lab

SHORT_S, LONG_S, TURN_S = 100.0, 400.0, 20.0


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


class Stream:
    """Jobs on one GPU that keep all eight GPUs of the lab in use, as long as it is run by this."""

    def __init__(self, lab: Lab, *, preemptible: bool = False) -> None:
        self.lab, self.preemptible, self.count = lab, preemptible, 0

    def run(self, seconds: float) -> None:
        end_s = self.lab.clock.at_s + seconds
        while self.lab.clock.at_s < end_s:
            waiting = sum(
                1
                for name, status in self.lab.status().items()
                if status == "waiting" and name[0] == "s"
            )
            for _ in range(3 - waiting):
                self.lab.submit(
                    f"s{self.count}",
                    1,
                    SHORT_S + self.count * 61.0 % (LONG_S - SHORT_S),
                    job={"preemptible": self.preemptible},
                    profile=Profile(checkpoint_s=10.0, restore_s=10.0),
                )
                self.count += 1
            self.lab.run(TURN_S, TURN_S)


def kept_place(lab: Lab) -> Reservation | None:
    policy = lab.controller.rounds.policy
    assert isinstance(policy, Optsched)
    return policy.reservations.current


def began_s(lab: Lab, name: str) -> float | None:
    job = lab.controller.state.jobs[name]
    return job.attempts[0].intended_s - job.submit_s if job.attempts else None


def begun(lab: Lab, *gangs: str, run_s: float = 500.0, preemptible: bool = False) -> Stream:
    """A full cluster, then gangs."""
    stream = Stream(lab, preemptible=preemptible)
    stream.run(300.0)
    for name in gangs:
        lab.submit(name, 8, run_s)
        lab.clock.at_s += 1.0
    return stream


@pytest.mark.parametrize(("preemptible", "patience_s"), [(False, 0.0), (True, GANG_PATIENCE_S)])
def test_a_gang_among_small_jobs_starts_when_the_longest_of_them_has_ended(
    lab: Lab, preemptible: bool, patience_s: float
) -> None:
    """Where it could preempt its way in it is patient first."""
    stream = begun(lab, "gang", preemptible=preemptible)
    stream.run(patience_s + LONG_S + 4 * TURN_S)
    wait_s = began_s(lab, "gang")
    assert wait_s is not None and patience_s <= wait_s <= patience_s + LONG_S + 2 * TURN_S
    stream.run(500.0)
    assert lab.status()["gang"] == "completed"
    assert len(lab.controller.state.jobs["gang"].attempts) == 1


def test_without_a_place_kept_for_it_it_does_not(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reservations, "entitled", lambda self, world: [])
    stream = begun(lab, "gang")
    stream.run(2 * (GANG_PATIENCE_S + LONG_S))
    assert began_s(lab, "gang") is None


def test_gangs_take_turns_in_the_order_in_which_they_were_submitted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation, "GANG_BACKLOGS", 1.0)
    stream = begun(lab, "b", "a", "c")
    backlog_s = 3 * 500.0 + 2 * LONG_S
    stream.run(GANG_PATIENCE_S + backlog_s + 3 * (LONG_S + 500.0) + 500.0)
    waits_s = [began_s(lab, name) for name in ("b", "a", "c")]
    assert None not in waits_s
    assert waits_s == sorted(waits_s)


def test_a_job_that_started_on_its_reservation_runs_to_its_end_whatever_crashes(lab: Lab) -> None:
    stream = begun(lab, "gang", run_s=1000.0)
    stream.run(LONG_S + 4 * TURN_S)
    assert reserved(lab.controller.state) == {"gang"}
    lab.crash()
    assert reserved(lab.controller.state) == {"gang"}
    for k in range(6):
        lab.submit(f"heavy{k}", 4, 20.0, job={"weight": 1000.0})
    stream.run(1000.0)
    assert lab.status()["gang"] == "completed"
    assert lab.controller.state.jobs["gang"].preemptions == 0
    assert lab.controller.state.jobs["heavy0"].attempts


def test_time_on_hold_and_before_others_complete_is_no_waiting(lab: Lab) -> None:
    stream = begun(lab, "gang")
    lab.controller.record(Held(job="gang", by="me"))
    lab.submit("after", 8, 50.0, job={"after": ("gang",)})
    stream.run(3 * GANG_PATIENCE_S)
    state = lab.controller.state
    assert state.waited_s(state.jobs["gang"], lab.clock.at_s) <= TURN_S
    assert kept_place(lab) is None
    lab.controller.record(Released(job="gang", by="me"))
    at_s = lab.clock.at_s
    stream.run(LONG_S + 6 * TURN_S)
    assert state.jobs["gang"].attempts[0].intended_s >= at_s
    assert state.waited_s(state.jobs["after"], lab.clock.at_s) == 0.0
    rebuilt = State()
    for entry in lab.controller.journal.entries():
        rebuilt.apply(entry.at_s, entry.event)
    for name, job in state.jobs.items():
        assert rebuilt.waited_s(rebuilt.jobs[name], lab.clock.at_s) == state.waited_s(
            job, lab.clock.at_s
        )


def test_a_place_on_a_node_that_goes_down_moves(lab: Lab) -> None:
    stream = Stream(lab)
    stream.run(300.0)
    lab.submit("gang", 4, 500.0, job={"weight": 0.001})
    for _ in range(10):
        stream.run(TURN_S)
        if (kept := kept_place(lab)) is not None:
            break
    assert kept is not None
    lab.executor.down.add(kept.placement[0].node)
    stream.run(2 * TURN_S)
    moved = kept_place(lab)
    if moved is not None:
        assert not {slot.node for slot in moved.placement} & lab.executor.down
    stream.run(LONG_S + 4 * TURN_S)
    attempts = lab.controller.state.jobs["gang"].attempts
    assert attempts
    assert not {slot.node for slot in attempts[0].placement} & lab.executor.down


def test_a_node_that_has_fewer_gpus_than_are_held_of_it_is_left_alone(lab: Lab) -> None:
    stream = begun(lab, "gang")
    stream.run(GANG_PATIENCE_S - 3 * TURN_S)
    lab.controller.observe()
    snapshot = lab.controller
    statuses = tuple(replace(one, node=replace(one.node, gpus=3)) for one in snapshot.statuses)
    small = LiveJob(
        replace(
            snapshot.state.jobs["gang"].submission,
            job=replace(snapshot.state.jobs["gang"].submission.job, id="pair", gpus=2),
        ),
        0.0,
        500.0,
        Profile(),
        waits_from_s=0.0,
    )
    snapshot.state.jobs["pair"] = snapshot.state.open["pair"] = small
    posed = pose(
        lambda without: present(
            snapshot.state, snapshot.cluster, (), statuses, {}, lab.clock.at_s, left_out=without
        ),
        {},
    )
    world = LiveWorld(posed.instance, snapshot.state)
    world.follow(posed.instance, posed.blocked, ())
    reservations = Reservations()
    for name in world.take_arrived():
        reservations.arrived(world, name)
    reservations.renew(world)
    assert reservations.current is None


def test_who_cannot_be_preempted_is_waited_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    stream = Stream(lab)
    stream.run(300.0)
    lab.submit("gang", 8, 500.0)
    stream.run(GANG_PATIENCE_S + LONG_S + 4 * TURN_S)
    assert began_s(lab, "gang") is not None
