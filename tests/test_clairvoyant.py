"""The search that knows which jobs will come."""

import pytest

from benchmarks import clairvoyant
from benchmarks.clairvoyant import Clairvoyant, mean_jct_s, outline, row
from optsched import Instance, Job
from optsched.plugins import registry
from optsched.simulate.run import simulate
from tests.clusters import one_node


def test_a_long_job_waits_for_a_short_one_that_is_still_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clairvoyant, "FIRST_S", 0.1)
    instance = Instance(
        cluster=one_node("n0", gpus=1),
        jobs=(
            Job(id="long", gpus=1, duration_s=100, preemptible=False),
            Job(id="short", gpus=1, duration_s=10, submit_s=5),
        ),
    )
    rule = simulate(instance, registry.policy("srtf"))
    assert mean_jct_s(instance, rule) == (100 + 105) / 2
    plan = simulate(instance, Clairvoyant(instance, [outline(rule)]))
    assert mean_jct_s(instance, plan) == (115 + 10) / 2
    unknowing = simulate(instance, Clairvoyant(instance, [outline(rule)], blind=True))
    assert mean_jct_s(instance, unknowing) == (100 + 105) / 2


def test_room_is_from_the_best_rule_to_the_best_plan_of_each_seed() -> None:
    rules = {"backfill": 30.0, "srtf": 22.0, "srsf": 25.0}
    seeds = [
        {**rules, "xion": 20.0, "optsched": 19.0, "clairvoyant": 16.0, "blind": 19.0},
        {**rules, "xion": 20.0, "optsched": 17.0, "clairvoyant": 18.0, "blind": 20.0},
    ]
    assert row(seeds) == {
        "rule": "xion",
        "rule_s": 20,
        "optsched_s": 18,
        "clairvoyant_s": 17,
        "blind_s": 20,
        "known_s": 16,
        "room": 0.175,
        "taken": 0.57,
    }
