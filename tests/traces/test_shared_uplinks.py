"""Generated workloads whose gangs share the uplinks of racks."""

import pytest

from optsched import Cluster, Instance, Job, Node, Profile, generate
from optsched.model.job import Mode
from optsched.model.profile import Locality
from optsched.physics import rate
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched.traces.generate.shared_uplinks import GANG_GBPS, with_shared_uplinks
from tests.verified import checked


def test_what_a_gang_loses_when_spread_is_when_it_communicates() -> None:
    spread = Profile(locality=Locality(node=1.0, rack=0.9, cluster=0.6))
    instance = with_shared_uplinks(
        Instance(
            cluster=Cluster(
                nodes=tuple(
                    Node(name=f"n{i}", gpu_type="a", gpus=4, rack=f"r{i // 2}") for i in range(4)
                )
            ),
            jobs=(
                Job(id="gang", gpus=8, duration_s=10.0, profile=spread),
                Job(id="single", gpus=1, duration_s=10.0, profile=spread),
                Job(id="unknown", gpus=8, duration_s=10.0),
            ),
        ),
        40.0,
    )
    assert (
        instance.cluster.rack_uplink_gbps == {"r0": 40.0, "r1": 40.0}
        and instance.cluster.uplinks == "shared"
    )
    gang, single, unknown = (job.profile for job in instance.jobs)
    # At rate 0.6 a step takes 1 / 0.6 of its time in one node; 1 - 0.6 of that is communication.
    assert (gang.network_gbps, gang.network_duty) == (GANG_GBPS, pytest.approx(0.4))
    assert single.network_gbps == unknown.network_gbps == 0
    assert rate(instance.jobs[0], Mode(gpus=8), "a", "cluster") == pytest.approx(0.6)


def test_a_gang_that_never_fits_one_node_communicates_as_its_family_does() -> None:
    """Its own rate has the spreading in it, so that its profile says nothing of locality."""
    instance = generate(
        "even",
        jobs=40,
        cluster="v100=8",
        gpus_per_node=2,
        gangs="2,4",
        families="lstm,roberta-base",
        uplinks=25.0,
        seed=1,
    )
    duties = {
        (job.profile.name, job.gpus): (job.profile.locality is None, job.profile.network_duty)
        for job in instance.jobs
    }
    assert duties["lstm", 2] == (False, pytest.approx(1 - 0.23))
    assert duties["lstm", 4] == (True, pytest.approx(1 - 0.301))
    assert duties["roberta-base", 4] == (True, pytest.approx(1 - 0.96))


def test_gangs_slow_each_other_down_where_their_uplink_is_too_narrow() -> None:
    spread = Profile(locality=Locality(node=1.0, rack=0.9, cluster=0.6))
    plain = Instance(
        cluster=Cluster(
            nodes=tuple(Node(name=f"n{i}", gpu_type="a", gpus=4, rack=f"r{i}") for i in range(3))
        ),
        jobs=tuple(Job(id=f"j{i}", gpus=6, duration_s=10.0, profile=spread) for i in range(2)),
    )
    for uplink_gbps, rate_there in (
        (50.0, 0.6),
        (25.0, 0.6 / 1.4),
    ):  # both cross r1's: half as fast for 0.4 of a step
        instance = with_shared_uplinks(plain, uplink_gbps)
        plan = simulate(instance, policy("fifo"))
        checked(instance, plan)
        assert [entry.completion_s for entry in plan.jobs] == pytest.approx([10.0 / rate_there] * 2)
