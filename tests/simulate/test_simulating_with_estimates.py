"""Policies under estimates: no peeking, the same again, sound plans."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Instance
from optsched.estimates import learned
from optsched.estimates.parse import parse
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation, StalledError
from tests.policies.heavy import POLICIES

from .believing import ALL, HERE, Heard, made, simulated, workload
from .random_instances import instances
from .test_incidents import SIMPLE, check, disturbed


@pytest.fixture
def trained_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "FIRST_TRAINING", 30)


# --------------------------------------------------------------------------------------------- of
# the future


@pytest.mark.parametrize("kind", [one for one in ALL if one != "noisy:1"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("trained_early")
def test_estimates_do_not_depend_on_what_comes_later(kind: str, seed: int) -> None:
    instance = workload(seed, gpus=32)
    before = Heard(made(kind))
    record = simulated(instance, before)
    until_s = float(np.median(record.end_s))
    late = {instance.jobs[j].id for j in record.job[record.end_s > until_s].tolist()}
    changed = replace(
        instance,
        jobs=tuple(
            replace(one, duration_s=one.work_s * 3 + 10) if one.id in late else one
            for one in instance.jobs
        ),
    )
    after = Heard(made(kind))
    simulated(changed, after)
    known = [answer for answer in before.answers if answer[0] <= until_s]
    assert len(known) > 50 and known == [answer for answer in after.answers if answer[0] <= until_s]
    if kind != "none":
        assert len({work_s for _, _, work_s in known}) > 20
        assert before.answers != after.answers  # they do depend on what came before


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("kind", ["none", "history"])
def test_policies_know_no_more_than_the_estimates(name: str, kind: str) -> None:
    instance = workload(7, jobs=24, gpus=5)
    how = {"round_s": 60.0} if name.startswith("gavel-") else {}

    def rows(of: Instance, until_s: float) -> tuple[list[Any], set[str]]:
        """What has happened until then, to a microsecond, and who is not done."""
        simulation = Simulation(of, policy(name), estimates=made(kind), **how)
        simulation.run()
        record = simulation.record()
        found = [
            (of.jobs[j].id, round(start_s, 6), round(end_s, 6))
            for j, start_s, end_s in zip(
                record.job.tolist(), record.start_s.tolist(), record.end_s.tolist(), strict=True
            )
        ]
        known = [row if row[2] <= until_s else row[:2] for row in found if row[1] <= until_s]
        return sorted(known), {one for one, _, end_s in found if end_s > until_s}

    until_s = 0.6 * max(one.submit_s for one in instance.jobs)
    known, late = rows(instance, until_s)
    assert 4 < len(late) < len(instance.jobs)
    changed = replace(
        instance,
        jobs=tuple(
            replace(one, duration_s=one.work_s * 3 + 10) if one.id in late else one
            for one in instance.jobs
        ),
    )
    assert rows(changed, until_s)[0] == known


# ------------------------------------------------------------------------------------- the same,
# and sound


COLUMNS = ("job", "start_s", "end_s", "gpus", "overhead_s", "work_s", "lost_s", "ending", "partner")


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.usefixtures("trained_early")
def test_the_same_again_and_after_an_interruption(kind: str) -> None:
    instance = workload(3)
    whole = simulated(instance, made(kind), "srtf")
    part = Simulation(instance, policy("srtf"), estimates=made(kind))
    assert not part.run(until=lambda: part.done >= 60)
    again = Simulation.restored(part.save())
    assert again.run()
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(again.record(), column), getattr(whole, column))
    assert again.record().plan() == whole.plan() != simulated(instance, None, "srtf").plan()


@given(
    instance=disturbed(instances()),
    name=st.sampled_from(SIMPLE),
    kind=st.sampled_from((*HERE, "noisy:3")),
    round_s=st.sampled_from([None, None, 7.3]),
)
@settings(max_examples=60)
def test_plans_are_sound_whatever_is_believed(
    instance: Instance, name: str, kind: str, round_s: float | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned, "FIRST_TRAINING", 3)
        simulation = Simulation(instance, policy(name), round_s=round_s, estimates=parse(kind))
        try:
            simulation.run()
        except StalledError:
            assert instance.cluster.budgets
            return
    check(instance, simulation.record())


@given(instance=disturbed(instances()), kind=st.sampled_from(HERE))
@settings(max_examples=10)
def test_rounds_too(instance: Instance, kind: str) -> None:
    simulation = Simulation(instance, policy("optsched"), estimates=parse(kind))
    try:
        simulation.run()
    except StalledError:
        assert instance.cluster.budgets
        return
    check(instance, simulation.record())
