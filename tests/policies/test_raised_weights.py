"""Gangs that need a large part of the cluster, and jobs that take longer than most, weigh more in
the rounds of `optsched`."""

import pytest

from optsched import Cluster, Instance, Job, Node, generate, simulate
from optsched.driver.snapshot import snapshot
from optsched.estimates import Estimates
from optsched.estimates.history import History
from optsched.model.job import Elastic
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.parts.raised_weights import (
    FEW,
    GANG,
    LATE,
    LATE_UNSURE,
    RaisedWeights,
)

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


def of_ages(
    *ages_s: float, few: int = FEW, estimates: Estimates | None = None
) -> tuple[RaisedWeights, VirtualWorld]:
    """Return a world in which `few` jobs of 10 s have waited for 90 s, and one of 10 s for each of
    these."""
    jobs = [Job(id=f"usual{i}", duration_s=10.0, submit_s=1e6 - 90) for i in range(few)]
    jobs += [
        Job(id=f"aged{age_s:g}", duration_s=10.0, submit_s=1e6 - age_s, weight=2.0)
        for age_s in ages_s
    ]
    instance = Instance(cluster=Cluster(nodes=NODES[:1]), jobs=tuple(jobs), now_s=1e6)
    world = VirtualWorld(instance, estimates)
    assert world.advance()
    return RaisedWeights(), world


def weights_of(
    weights: RaisedWeights, world: VirtualWorld, *, late: bool = True
) -> dict[str, float]:
    found = weights.raised(world, snapshot(world).instance, late=late).jobs
    return {job.id: job.weight for job in found if job.weight != 1.0}


def test_a_job_that_takes_longer_than_most_weighs_more_up_to_a_limit() -> None:
    weights, world = of_ages(100.0, 9990.0)
    # most take 100 s with the 10 s that they run; 1.1 times as long counts 1.1 squared, in tenths
    assert weights_of(weights, world) == {"aged100": 2.4, "aged9990": 2.0 * LATE}
    assert weights_of(weights, world, late=False) == {"aged100": 2.0, "aged9990": 2.0}


def test_of_few_jobs_none_is_late() -> None:
    weights, world = of_ages(9990.0, few=FEW - 2)
    assert weights_of(weights, world) == {"aged9990": 2.0}


def test_where_run_times_are_not_known_what_has_passed_counts_and_counts_more() -> None:
    weights, world = of_ages(99.0, 9990.0, estimates=History())
    # most have waited for 90 s: what is believed of the rest, ten minutes each, is no matter
    assert weights_of(weights, world) == {"aged99": 2.4, "aged9990": 2.0 * LATE_UNSURE}


def test_those_that_have_ended_count_as_long_as_they_took() -> None:
    jobs = [Job(id=f"long{i}", duration_s=1000.0) for i in range(8)]
    jobs += [Job(id=f"later{i}", duration_s=10.0, submit_s=900.0) for i in range(FEW)]
    jobs += [Job(id="aged", duration_s=10.0, submit_s=500.0)]
    world = VirtualWorld(Instance(cluster=Cluster(nodes=NODES[:1]), jobs=tuple(jobs)))
    weights = RaisedWeights()
    assert world.advance()
    for i in range(8):
        option, placement = world.fit(f"long{i}") or pytest.fail("it fits")
        world.start(f"long{i}", option, placement)
    while world.now_s < 1000.0:
        assert world.advance()
    assert weights_of(weights, world) == {"aged": LATE}  # no end was told of yet
    weights.note_ended(world)
    assert weights_of(weights, world) == {}


@pytest.mark.parametrize("estimates", ["oracle", "history"])
def test_tails_are_shorter_for_it(estimates: str) -> None:
    jobs = generate("even", jobs=150, gpus=16, gangs="1,2,4", run_times="5m-1h", load=1.1, seed=1)

    def p99_s(late: str) -> float:
        ran = simulate(jobs, estimates=estimates, options={"late": late})
        p99_s: float = ran.metrics["jct_s"]["p99"]
        return p99_s

    assert p99_s("yes") < 0.95 * p99_s("no")
