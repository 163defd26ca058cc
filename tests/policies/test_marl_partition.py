"""One scheduler a rack: what the regression learns, who gets a job, and what it is worth."""

import random

import pytest

from optsched import Cluster, Instance, Job, Mode, Node, Profile, Running, Slot
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched_solvers.policies.marl_partition import (
    FEATURES,
    LEAST_SEEN,
    InterferenceModel,
    MarlPartition,
    features,
)
from tests.policies.congested import congested, mean_jct_s, run
from tests.policies.verified import where

LAW = (1.0, 0.1, 0.7, 0.0, 1.3, 0.02, 0.05, 0.0)
"""A slow-down that is linear in the features."""


def place(rng: random.Random) -> tuple[float, ...]:
    uplink, memory = rng.uniform(0, 3), rng.uniform(0, 3)
    return (
        1.0,
        uplink,
        max(0.0, uplink - 1),
        memory,
        max(0.0, memory - 1),
        float(rng.randint(0, 3)),
        float(rng.randint(0, 2)),
        rng.random(),
    )


def law(where_: tuple[float, ...]) -> float:
    return sum(weight * value for weight, value in zip(LAW, where_, strict=True))


def taught(count: int) -> InterferenceModel:
    rng, model = random.Random(1), InterferenceModel(history=1000)
    for _ in range(count):
        at = place(rng)
        model.observe(at, law(at))
    model.fit()
    return model


def test_a_linear_law_is_learned_and_nothing_is_said_before_enough_was_seen() -> None:
    assert len(LAW) == len(FEATURES)
    rng = random.Random(2)
    model, green = taught(100), taught(LEAST_SEEN - 1)
    for _ in range(50):
        at = place(rng)
        assert model.predict(at) == pytest.approx(max(1.0, law(at)))
        assert green.predict(at) == 1.0


def test_only_the_last_observations_count() -> None:
    model = InterferenceModel(history=50)
    rng = random.Random(3)
    for k in range(100):
        at = place(rng)
        model.observe(at, law(at) + (5.0 if k < 50 else 0.0))
    model.fit()
    at = place(rng)
    assert model.predict(at) == pytest.approx(max(1.0, law(at))) and model.observations == 100


NODES = (
    Node(name="a", gpus=4, rack="r0", memory_gbps=10.0),
    Node(name="b", gpus=8, rack="r1", memory_gbps=10.0),
)
HEAVY = Profile(memory_gbps=9.0)


def crowded() -> Instance:
    """Memory of `a` is nearly taken, and it has the fewest GPUs left."""
    running = Running(
        job="old", mode=Mode(gpus=1), placement=(Slot(node="a", gpus=1),), remaining_s=50.0
    )
    jobs = (
        Job(id="old", duration_s=100.0, profile=HEAVY),
        Job(id="new", duration_s=100.0, profile=HEAVY),
    )
    return Instance(cluster=Cluster(nodes=NODES), jobs=jobs, running=(running,))


@pytest.mark.parametrize(("model", "node"), [(taught(100), "b"), (InterferenceModel(10), "a")])
def test_a_job_goes_where_least_slow_down_is_predicted(model: InterferenceModel, node: str) -> None:
    rule = MarlPartition(MarlPartition.Options())
    rule._model = model
    simulation = Simulation(crowded(), rule)
    simulation.run()
    plan = {entry.id: entry for entry in simulation.record().plan().jobs}
    assert where(plan["new"]) == [{node: 1}], "untaught, it goes where the fewest GPUs are left"


def test_features_by_hand() -> None:
    simulation = Simulation(crowded(), policy("fifo"))
    world = simulation.world
    world.advance()
    there = features(world, "new", Mode(gpus=1), (Slot(node="a", gpus=1),), holds=False)
    assert there == pytest.approx((1.0, 0.0, 0.0, 1.8, 0.8, 0.0, 0.0, 1 / 4))
    held = features(world, "old", Mode(gpus=1), (Slot(node="a", gpus=1),), holds=True)
    assert held == pytest.approx((1.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0))


def test_a_gang_larger_than_every_part_goes_over_several() -> None:
    rule = MarlPartition(MarlPartition.Options())
    instance = Instance(
        cluster=Cluster(nodes=NODES),
        jobs=(Job(id="wide", gpus=10, duration_s=10.0), Job(id="one", gpus=2, duration_s=10.0)),
    )
    run(instance, rule)
    facts = rule.facts()
    assert (facts["partitions"], facts["over_partitions"], facts["forwarded"]) == (2, 1, 1)


def test_mean_completion_against_first_come_first_served_and_what_was_learned() -> None:
    """The direction of the published claim, and predictions that are better than none at all."""
    totals, errors = {"marl-partition": 0.0, "fifo": 0.0}, []
    for seed in range(1, 6):
        instance = congested(seed)
        for name in totals:
            rule = policy(name)
            totals[name] += mean_jct_s(instance, run(instance, rule))
            if isinstance(rule, MarlPartition):
                errors.append(rule.facts()["prediction_error"])
    assert totals["marl-partition"] < totals["fifo"]
    assert max(errors) < 0.5
