"""Rounds for which the budget is too short: few waiting jobs are looked at, none is preempted, and
that is said."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import optsched.round.decide as deciding
import optsched.round.pose as posing
from benchmarks.families import with_sharing
from optsched import Instance, Job, Mode, Profile, Running, Sharing, Slot
from optsched.objectives import parse
from optsched.physics import placed_rate
from optsched.picture.facts import percent, quantity
from optsched.round.build import build
from optsched.round.deadline import NEVER, Deadline, OutOfTimeError
from optsched.round.decide import decide
from optsched.round.files import dump_round, load_round
from optsched.round.model import Kind
from optsched.round.plan import UNPROVED
from optsched.round.sharing import MOST_HOSTS
from optsched.round.verify import verify_round
from optsched.traces.generate.synth import generate
from tests.clusters import one_node


def too_slow(monkeypatch: pytest.MonkeyPatch, *, even_for_few: bool = False) -> None:
    """Posing within a deadline takes too long."""

    def slow(
        instance: Instance, deadline: Deadline = NEVER, around: Sequence[Any] = (), **others: Any
    ) -> Any:
        if deadline is not NEVER and (even_for_few or not around):
            raise OutOfTimeError
        return build(instance, around=around, **others)

    monkeypatch.setattr(deciding, "build", slow)


def busy() -> Instance:
    return generate(jobs=100, gpus=128, seed=1, like="mixed", running=0.5)


def test_few_waiting_jobs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    too_slow(monkeypatch)
    monkeypatch.setattr(posing, "FEW", 10)
    instance = busy()
    found = decide(instance, budget_s=60.0)
    waiting = len(instance.jobs) - len(instance.running)
    assert found.fallback == (
        f"60 s are too short for posing this round: running jobs go on, and 10 of {waiting} "
        "waiting jobs were looked at"
    )
    assert not verify_round(instance, found.jobs)
    assert {entry.id for entry in found.jobs} == {job.id for job in instance.jobs}
    decisions = Counter(entry.decision for entry in found.jobs)
    assert decisions["continue"] == len(instance.running) and 0 < decisions["start"] <= 10
    assert (
        found.bound == UNPROVED and found.bound_source == "nothing" and found.status == "feasible"
    )
    assert load_round(dump_round(found)).fallback == found.fallback


def test_nothing_is_said_of_how_good_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of the few is none of all."""
    monkeypatch.setattr(posing, "FEW", 0)
    instance = busy()
    whole = decide(instance, budget_s=60.0)
    too_slow(monkeypatch)
    found = decide(instance, budget_s=60.0)
    assert {entry.decision for entry in found.jobs} == {"continue", "wait"}
    assert found.bound > whole.value > found.value
    assert "e+308" in quantity(found.bound, "") and percent(found.gap) == "inf %"


def test_what_runs_goes_on_where_there_is_no_time_for_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    too_slow(monkeypatch, even_for_few=True)
    instance = busy()
    found = decide(instance, budget_s=60.0)
    assert found.fallback == (
        "60 s are too short for posing this round: running jobs go on, and nothing starts"
    )
    assert not verify_round(instance, found.jobs)
    decisions = Counter(entry.decision for entry in found.jobs)
    assert decisions == {"continue": len(instance.running), "wait": 100 - len(instance.running)}
    assert (found.value, found.bound, found.status) == (0.0, UNPROVED, "feasible")
    assert load_round(dump_round(found)).fallback == found.fallback


def test_few_waiting_jobs_are_posed_whatever_time_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    too_slow(monkeypatch)
    monkeypatch.setattr(posing, "FEW", 100)
    found = decide(busy(), budget_s=1e-6)
    assert found.fallback is None and found.bound < UNPROVED


def test_posing_stops_at_its_deadline() -> None:
    with pytest.raises(OutOfTimeError):
        build(busy(), parse("wct"), 300.0, deadline=Deadline(0.0))


@pytest.mark.parametrize(
    ("gib", "taken"), [(32.0, [None]), (28.0, [12.0]), (21.0, [5.0]), (20.0, [])]
)
def test_a_guest_takes_the_gpu_memory_that_its_host_leaves(
    gib: float, taken: list[float | None]
) -> None:
    shape = Profile(
        sharing=Sharing(duty=0.4), gpu_memory_gib=16.0, gpu_memory_rates={5.0: 0.5, 12.0: 0.75}
    )
    instance = Instance(
        cluster=one_node(gpus=1, gpu_memory_gib=gib),
        jobs=tuple(Job(id=name, duration_s=900.0, profile=shape) for name in ("host", "guest")),
        running=(
            Running(
                job="host",
                mode=Mode(gpus=1),
                placement=(Slot(node="n", gpus=1),),
                remaining_s=900.0,
            ),
        ),
    )
    beside = [
        one
        for one in build(instance, parse("wct"), 300.0).patterns.holds
        if one.kind == Kind.BESIDE
    ]
    assert [one.mode.gpu_memory_gib for one in beside] == taken
    assert [one.rate for one in beside] == [{None: 1.0, 12.0: 0.75, 5.0: 0.5}[own] for own in taken]


def test_jobs_that_are_alike_have_the_rates_of_their_own_pair() -> None:
    """Rates are looked up by kind: each is that of the very jobs, on the very GPUs."""
    instance = with_sharing(300, 400)
    model = build(instance, parse("wct"), 300.0)
    hosts: dict[int, list[int]] = {}
    for j, one in zip(model.held.job, model.patterns.holds, strict=True):
        if one.kind != Kind.BESIDE:
            continue
        guest, host, entry = (model.jobs[j], model.jobs[one.partner], model.running[one.partner])
        assert entry is not None and [slot.node for slot in one.placement] == [
            slot.node for slot in entry.placement
        ]
        assert one.rate == placed_rate(
            instance, guest, replace(one.mode, share_with=host.id), one.placement
        )
        theirs = replace(entry.mode, share_with=guest.id)
        assert one.partner_rate == placed_rate(instance, host, theirs, entry.placement)
        hosts.setdefault(j, []).append(one.partner)
    assert hosts
    assert all(len(set(own)) == len(own) <= MOST_HOSTS for own in hosts.values())
