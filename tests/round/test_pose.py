"""Rounds for which the budget is too short: fewer waiting jobs are looked at, or none, and that is said."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

import optsched.round.pose as posing
from optsched import Cluster, Instance, Job, Mode, Node, Running, Slot
from optsched.objectives import parse
from optsched.physics import placed_rate
from optsched.round.build import build
from optsched.round.deadline import Deadline, OutOfTimeError
from optsched.round.decide import decide
from optsched.round.files import dump_round, load_round
from optsched.round.model import Kind
from optsched.round.plan import UNPROVED
from optsched.round.sharing import MOST_HOSTS
from optsched.round.verify import verify_round
from optsched.traces.synth import generate

from .large_rounds import with_sharing


def too_slow(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The first so many attempts to pose a round are not ready in time."""
    left = [times]

    def slow(*arguments: Any, deadline: Deadline, **others: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0 and deadline.ends:
            raise OutOfTimeError
        return build(*arguments, deadline=deadline, **others)

    monkeypatch.setattr(posing, "build", slow)


def busy() -> Instance:
    return generate(jobs=100, gpus=128, seed=1, like="mixed", running=0.5)


def test_fewer_waiting_jobs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    too_slow(monkeypatch, 1)
    instance = busy()
    found = decide(instance, budget_s=60.0)
    waiting = len(instance.jobs) - len(instance.running)
    assert found.fallback == (
        f"60 s are too short for posing this round: only {waiting // 16} of {waiting} waiting jobs were looked at"
    )
    assert not verify_round(instance, found.jobs)
    assert {entry.id for entry in found.jobs} == {job.id for job in instance.jobs}
    assert found.value > 0 and found.bound == UNPROVED and found.bound_source == "nothing"
    assert found.status == "feasible"
    assert found.bound >= decide(instance, budget_s=60.0).value
    assert load_round(dump_round(found)).fallback == found.fallback


def test_where_nothing_can_be_posed_all_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    too_slow(monkeypatch, 2)
    instance = busy()
    found = decide(instance, budget_s=60.0)
    assert found.fallback == "60 s are too short for posing this round: running jobs go on and none starts"
    assert {entry.decision for entry in found.jobs} == {"continue", "wait"}
    assert sum(entry.decision == "continue" for entry in found.jobs) == len(instance.running)
    assert math.isinf(found.gap) and found.status == "feasible"
    assert json.loads(dump_round(found))["objective"]["gap"] is None


def test_who_must_leave_is_found_whatever_time_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    too_slow(monkeypatch, 2)
    spends = Mode(gpu_type="a", gpus=1, budgets={"money": 2.0})
    instance = Instance(
        cluster=Cluster(nodes=(Node(name="n", gpu_type="a", gpus=2),), budgets={"money": 3.0}),
        jobs=tuple(Job(id=f"j{k}", duration_s=9.0, budgets={"money": 2.0}) for k in range(2)),
        running=tuple(
            Running(job=f"j{k}", mode=spends, placement=(Slot(node="n", gpus=1),), remaining_s=9.0) for k in range(2)
        ),
    )
    found = decide(instance, budget_s=60.0)
    assert sorted(entry.decision for entry in found.jobs) == ["continue", "preempt"]


def test_posing_stops_at_its_deadline() -> None:
    with pytest.raises(OutOfTimeError):
        build(busy(), parse("wct"), 300.0, deadline=Deadline(0.0))


def test_jobs_that_are_alike_have_the_rates_of_their_own_pair() -> None:
    """Rates are looked up by kind: each is that of the very jobs, on the very GPUs."""
    instance = with_sharing(300, 400)
    model = build(instance, parse("wct"), 300.0)
    beside = [one for one in model.pinned if one.kind == Kind.BESIDE]
    hosts: dict[int, list[int]] = {}
    for one in beside:
        guest, host, entry = model.jobs[one.job], model.jobs[one.partner], model.running[one.partner]
        assert entry is not None and [slot.node for slot in one.placement] == [slot.node for slot in entry.placement]
        assert one.rate == placed_rate(instance, guest, replace(one.mode, share_with=host.id), one.placement)
        theirs = replace(entry.mode, share_with=guest.id)
        assert one.partner_rate == placed_rate(instance, host, theirs, entry.placement)
        hosts.setdefault(one.job, []).append(one.partner)
    assert hosts
    assert all(len(set(own)) == len(own) <= MOST_HOSTS for own in hosts.values())
