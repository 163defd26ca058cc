"""Network-aware: the regressor against its closed form, what it learns on small clusters, and its
top-1 accuracy."""

import math
import pickle
import random

import numpy as np
import pytest

from optsched import Cluster, Instance, Job, Locality, Node, Profile
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched_solvers.policies.netaware import FEW, DurationModel, NetAware
from tests.policies.verified import plan_of, times, where

TWO = (
    Node(name="slow", gpu_type="k80", gpus=2, cpus=8),
    Node(name="fast", gpu_type="v100", gpus=2, cpus=8),
)
UNEVEN = Profile(name="net", rate={"k80": 0.5, "v100": 1.0})


def run(instance: Instance, **options: str) -> tuple[Simulation, dict[str, float]]:
    rule = policy("netaware", options=options)
    assert isinstance(rule, NetAware)
    simulation = Simulation(instance, rule)
    simulation.run()
    return simulation, rule.facts()


def test_the_ridge_is_its_closed_form() -> None:
    draw = np.random.default_rng(5)
    x, y = draw.normal(size=(30, 4)), draw.normal(size=30)
    model = DurationModel("ridge", 4)
    for row, target in zip(x, y, strict=True):
        model.learn(row, math.exp(target))
    expected = x @ np.linalg.inv(x.T @ x + np.eye(4)) @ x.T @ y
    assert model.predict(x) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["ridge", pytest.param("forest", marks=pytest.mark.slow)])
def test_nothing_is_predicted_before_there_are_enough_samples(kind: str) -> None:
    if kind == "forest":
        pytest.importorskip("sklearn")
    model = DurationModel(kind, 2)
    for i in range(FEW):
        assert model.predict(np.ones((1, 2))) is None
        model.learn(np.array([1.0, i % 2]), math.exp(i % 2))
    found = model.predict(np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert found is not None and found[0] < found[1]


def test_it_learns_which_node_is_faster() -> None:
    jobs = [
        Job(id=f"j{i:02}", submit_s=300.0 * i, duration_s=100.0, profile=UNEVEN) for i in range(20)
    ]
    found = plan_of("netaware", *jobs, nodes=TWO)
    used = [next(iter(where(found[job.id])[0])) for job in jobs]
    assert used[:FEW] == ["slow"] * FEW  # both are empty: the first
    assert used[-5:] == ["fast"] * 5
    assert times(found["j19"]) == [(5700, 5800)]


def test_without_a_model_it_never_learns_which_node_is_faster() -> None:
    jobs = tuple(
        Job(id=f"j{i:02}", submit_s=300.0 * i, duration_s=100.0, profile=UNEVEN) for i in range(20)
    )
    _, facts = run(Instance(cluster=Cluster(nodes=TWO), jobs=jobs), model="none")
    assert facts["top1_accuracy"] == facts["top1_accuracy_least_loaded"] == 0.0


def test_before_it_has_learned_the_least_loaded_place_is_taken() -> None:
    jobs = [Job(id=name, duration_s=100.0, profile=UNEVEN) for name in "abc"]
    found = plan_of("netaware", *jobs, nodes=TWO)
    assert [next(iter(where(found[name])[0])) for name in "abc"] == ["slow", "fast", "slow"]


def test_accuracy_counts_the_placements_at_which_places_differ() -> None:
    # Three starts with both nodes free, and the least loaded, the first, is the slow one: none
    # right. One when only the fast one is free is no choice.
    jobs = [
        Job(id="a", duration_s=100.0, profile=UNEVEN),
        Job(id="b", submit_s=500.0, duration_s=100.0, profile=UNEVEN),
        Job(id="c", submit_s=1000.0, gpus=2, duration_s=100.0, profile=UNEVEN),
        Job(id="d", submit_s=1001.0, gpus=2, duration_s=100.0, profile=UNEVEN),
    ]
    _, facts = run(Instance(cluster=Cluster(nodes=TWO), jobs=tuple(jobs)))
    assert facts == {
        "placements_with_a_difference": 3,
        "top1_accuracy": 0,
        "top1_accuracy_least_loaded": 0,
        "jobs_learned_from": 4,
    }


def workload(seed: int) -> Instance:
    draw = random.Random(seed)
    kinds = [
        Profile(
            name="spark",
            memory_gbps=30.0,
            memory_duty=0.8,
            network_gbps=8.0,
            network_duty=0.7,
            locality=Locality(rack=0.95, cluster=0.9),
        ),
        Profile(name="train", rate={"a100": 1.0, "v100": 0.45, "t4": 0.25}),
        Profile(
            name="infer",
            rate={"a100": 1.0, "v100": 0.95, "t4": 0.8},
            memory_gbps=10.0,
            memory_duty=0.5,
        ),
    ]
    nodes = tuple(
        Node(
            name=f"n{i}",
            gpu_type=("a100", "v100", "t4")[i % 3],
            gpus=4,
            cpus=32,
            rack=f"r{i // 4}",
            memory_gbps=(100.0, 60.0, 40.0)[i // 4],
        )
        for i in range(12)
    )
    jobs, now_s = [], 0.0
    for i in range(400):
        now_s += draw.expovariate(1 / 150)
        jobs.append(
            Job(
                id=f"j{i}",
                submit_s=now_s,
                gpus=draw.choice([1, 1, 2, 4, 6]),
                profile=draw.choice(kinds),
                duration_s=draw.uniform(100, 1500),
            )
        )
    cluster = Cluster(
        nodes=nodes, rack_uplink_gbps={f"r{k}": 20.0 for k in range(3)}, uplinks="shared"
    )
    return Instance(cluster=cluster, jobs=tuple(jobs))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_fastest_place_is_found_more_often_than_by_load(seed: int) -> None:
    _, facts = run(workload(seed))
    assert facts["placements_with_a_difference"] > 200
    assert facts["top1_accuracy"] > facts["top1_accuracy_least_loaded"]


@pytest.mark.slow
def test_the_forest_finds_it_too_and_can_be_saved() -> None:
    pytest.importorskip("sklearn")
    simulation, facts = run(workload(1), model="forest")
    assert facts["top1_accuracy"] > facts["top1_accuracy_least_loaded"]
    again = pickle.loads(pickle.dumps(simulation.policy))
    assert again.facts() == facts
    other, _ = run(workload(1), model="forest")
    assert other.record().plan() == simulation.record().plan()
