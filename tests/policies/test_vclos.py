"""vClos: the choice of racks against enumeration, its stages by hand, and that no job is ever
slowed by another."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Profile
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched_solvers.policies.vclos import fewest_racks
from tests.policies.congested import congested, mean_jct_s, run
from tests.policies.verified import where
from tests.simulate.random_instances import instances

SLOW = settings(max_examples=60)


@given(st.lists(st.integers(0, 9), max_size=7), st.integers(1, 30))
def test_the_choice_of_racks_is_optimal(free: list[int], gpus: int) -> None:
    subsets = [
        racks
        for size in range(1, len(free) + 1)
        for racks in combinations(range(len(free)), size)
        if sum(free[r] for r in racks) >= gpus and all(free[r] for r in racks)
    ]
    found = fewest_racks(free, gpus)
    if found is None:
        assert not subsets
    else:
        best = min((len(racks), sum(free[r] for r in racks)) for racks in subsets)
        assert (len(found), sum(free[r] for r in found)) == best and len(set(found)) == len(found)


def cluster(sizes: list[tuple[int, str]], uplink_gbps: float = 10.0) -> Cluster:
    nodes = tuple(Node(name=f"n{i}", gpus=gpus, rack=rack) for i, (gpus, rack) in enumerate(sizes))
    racks = dict.fromkeys(rack for _, rack in sizes)
    return Cluster(
        nodes=nodes, rack_uplink_gbps=dict.fromkeys(racks, uplink_gbps), uplinks="shared"
    )


def gang(name: str, gpus: int, duration_s: float = 100.0, gbps: float = 10.0) -> Job:
    return Job(id=name, gpus=gpus, duration_s=duration_s, profile=Profile(network_gbps=gbps))


def test_one_node_then_one_rack_then_the_fewest_racks_with_least_left_over() -> None:
    sizes = [(4, "r0"), (2, "r1"), (2, "r1"), (3, "r2"), (3, "r3"), (2, "r3")]
    jobs = tuple(
        replace(job, submit_s=-float(3 - i))
        for i, job in enumerate((gang("node", 4), gang("rack", 4), gang("over", 7, gbps=5.0)))
    )
    plan = {
        entry.id: entry
        for entry in run(Instance(cluster=cluster(sizes), jobs=jobs), policy("vclos")).jobs
    }
    assert where(plan["node"]) == [{"n0": 4}] and where(plan["rack"]) == [{"n1": 2, "n2": 2}]
    assert where(plan["over"]) == [{"n3": 3, "n4": 3, "n5": 1}]


def test_a_gang_waits_for_uplinks_of_its_own() -> None:
    """Three racks of two GPUs, gangs of three: whichever racks they take, they meet on an uplink
    that holds one."""
    jobs = (gang("first", 3), gang("second", 3), gang("small", 2, 10.0))
    instance = Instance(cluster=cluster([(2, "r0"), (2, "r1"), (2, "r2")]), jobs=jobs)
    plan = {entry.id: entry.completion_s for entry in run(instance, policy("vclos")).jobs}
    assert plan == pytest.approx({"first": 100.0, "second": 200.0, "small": 10.0})
    light = replace(instance, jobs=(gang("first", 3, gbps=5.0), gang("second", 3, gbps=5.0)))
    assert [entry.completion_s for entry in run(light, policy("vclos")).jobs] == pytest.approx(
        [100.0, 100.0]
    )


@given(instances(held=False))
@SLOW
def test_nobody_is_ever_slowed_down_on_an_uplink(instance: Instance) -> None:
    assume(instance.cluster.rack_uplink_gbps)
    nodes = tuple(replace(node, memory_gbps=None) for node in instance.cluster.nodes)
    shared = replace(instance, cluster=replace(instance.cluster, nodes=nodes, uplinks="shared"))
    simulation = Simulation(shared, policy("vclos"))
    world = simulation.world

    def alone() -> bool:
        assert all(world.slowdown(job_id) <= 1 + 1e-6 for job_id in world.running)
        return False

    simulation.run(until=alone)
    assert all(world.slowdown(job_id) <= 1 + 1e-6 for job_id in world.running)


def test_mean_completion_under_heavy_contention_against_first_come_first_served() -> None:
    """The direction of the published claim, on each of five workloads."""
    for seed in range(1, 6):
        instance = congested(seed)
        vclos, fifo = (
            mean_jct_s(instance, run(instance, policy(name))) for name in ("vclos", "fifo")
        )
        assert vclos < fifo
