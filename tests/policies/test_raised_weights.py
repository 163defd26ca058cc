"""Gangs that need a large part of the cluster weigh more in the rounds of `optsched`."""

import pytest

from optsched import Cluster, Instance, Job, Node
from optsched.driver.snapshot import snapshot
from optsched.model.job import Elastic
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.parts.raised_weights import GANG, RaisedWeights

NODES = tuple(
    Node(name=f"{kind}{i}", gpu_type=kind, gpus=8)
    for kind, count in (("a", 4), ("b", 2))
    for i in range(count)
)


def raised(*jobs: Job) -> dict[str, float]:
    world = VirtualWorld(Instance(cluster=Cluster(nodes=NODES), jobs=jobs))
    world.advance()
    weights, now = RaisedWeights(), snapshot(world).instance
    found = weights.raised(world, now)
    assert weights.raised(world, now).jobs == found.jobs  # a job's factor is the same in all rounds
    assert [job.id for job in found.jobs] == [job.id for job in now.jobs]
    return {job.id: job.weight for job in found.jobs}


def test_the_factor_is_the_least_share_of_the_gpus_of_one_type() -> None:
    found = raised(
        Job(id="single", duration_s=9.0, weight=3.0),
        Job(id="cpu", duration_s=9.0, gpus=0, cpus=0),
        Job(id="half-of-a", duration_s=9.0, gpus=16),
        Job(id="all-of-a", duration_s=9.0, gpus=32, weight=2.0),
        Job(id="elastic", duration_s=9.0, gpus=Elastic(min=4, max=16)),
    )
    # 32 GPUs of a, 16 of b: 16 GPUs are half of a or all of b
    assert found == pytest.approx(
        {
            "single": 3.0,
            "cpu": 1.0,
            "half-of-a": 1 + GANG / 2,
            "all-of-a": 2 * (1 + GANG),
            "elastic": 1 + GANG * 4 / 32,
        }
    )
