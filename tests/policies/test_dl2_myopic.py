"""DL2's reward by hand, and its exact maximum by brute force."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Elastic, Instance, Job, Node, Profile
from optsched.plugins.registry import policy
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.dl2_myopic import TIE, Dl2Myopic
from optsched_solvers.policies.parts.gang_counts import by_type
from optsched_solvers.policies.parts.gpu_pool import GpuPool
from tests.clusters import one_node
from tests.policies.verified import plan_of, times, where


def test_the_slot_is_the_published_one() -> None:
    assert Dl2Myopic(Dl2Myopic.Options()).interval_s == 1200.0
    assert policy("dl2-myopic", options={"interval": "300s"}).interval_s == 300.0  # of the test bed


def test_the_reward_is_epochs_run_by_all_epochs() -> None:
    # Speed 1.8 of 2 workers for 1200 s is 2160 of 7200: 0.3; with one worker 1/6. A job of 600 has
    # no more to run.
    jobs = (
        Job(
            id="long",
            duration_s=7200.0,
            gpus=Elastic(min=1, max=2),
            profile=Profile(gpus={1: 1.0, 2: 1.8}),
        ),
        Job(id="short", duration_s=600.0),
        Job(id="slow", duration_s=2400.0, profile=Profile(startup_s=300.0)),
    )
    world = VirtualWorld(Instance(cluster=one_node(gpus=4), jobs=jobs))
    world.advance()
    rule = Dl2Myopic(Dl2Myopic.Options())

    def rewards(name: str) -> list[float]:
        counts = by_type(world.options(name))[0]
        return [rule.reward(world, name, counts, step) for step in range(len(counts.options))]

    assert rewards("long") == pytest.approx([1200 / 7200, 0.3], abs=2 * TIE)
    assert rewards("short") == pytest.approx([1.0], abs=2 * TIE)
    assert rewards("slow") == pytest.approx(
        [900 / 2400], abs=2 * TIE
    )  # the rest of the slot is its start-up


@given(data=st.data())
@settings(max_examples=40)
def test_the_allocation_is_the_best_there_is(data: st.DataObject) -> None:
    types = data.draw(st.sampled_from([("a",), ("a", "b")]))
    nodes = tuple(Node(name=f"n{t}", gpu_type=t, gpus=data.draw(st.integers(1, 5))) for t in types)
    jobs = []
    for i in range(data.draw(st.integers(1, 4))):
        most = data.draw(st.integers(1, 3))
        rate = data.draw(st.sampled_from([{}, {"a": 1.0, "b": 0.4}, {"a": 0.5, "b": 1.0}]))
        jobs.append(
            Job(
                id=f"j{i}",
                duration_s=data.draw(st.sampled_from([500.0, 2000.0, 9000.0])),
                gpus=data.draw(st.sampled_from([most, Elastic(min=1, max=most)])),
                profile=Profile(rate=rate),
            )
        )
    jobs = [
        job
        for job in jobs
        if (job.gpus if isinstance(job.gpus, int) else 1) <= max(one.gpus for one in nodes)
    ]
    world = VirtualWorld(Instance(cluster=Cluster(nodes=nodes), jobs=tuple(jobs)))
    world.advance()
    rule = Dl2Myopic(Dl2Myopic.Options())
    names = [job.id for job in jobs]
    given_ = rule.allocate(world, names, GpuPool(world))

    def value(job: Job, gpu_type: str, gpus: int) -> float:
        scale = gpus / job.gpus.max if isinstance(job.gpus, Elastic) else 1.0
        return min(1200.0 * scale * job.profile.rate.get(gpu_type, 1.0), job.work_s) / job.work_s

    def choices(job: Job) -> list[tuple[str, int] | None]:
        sizes = (
            range(job.gpus.min, job.gpus.max + 1) if isinstance(job.gpus, Elastic) else [job.gpus]
        )
        return [None, *((t, size) for t in types for size in sizes)]

    def total(chosen: tuple[tuple[str, int] | None, ...]) -> float:
        for node in nodes:
            if sum(one[1] for one in chosen if one and one[0] == node.gpu_type) > node.gpus:
                return -1.0
        return sum(value(job, *one) for job, one in zip(jobs, chosen, strict=True) if one)

    best = max((total(chosen) for chosen in product(*map(choices, jobs))), default=0.0)
    modes = {name: grant[0].mode for name, grant in given_.items()}
    ours = total(
        tuple(
            (str(modes[name].gpu_type), modes[name].gpus) if name in modes else None
            for name in names
        )
    )
    assert ours == pytest.approx(best, abs=1e-5)


def test_short_jobs_first_and_gpus_where_they_add_most() -> None:
    # Four GPUs: the short job earns 1 with 2 of them, the others 1200/9000 and 1200/8000: one of
    # them waits.
    jobs = [
        Job(id=name, gpus=2, duration_s=work)
        for name, work in (("x", 9000.0), ("y", 8000.0), ("z", 600.0))
    ]
    found = plan_of("dl2-myopic", *jobs, nodes=(Node(name="n", gpus=4),))
    assert times(found["z"]) == [(0, 600)]
    assert (
        times(found["y"])[0][0] == 0 and times(found["x"])[0][0] == 1200
    )  # 1200/8000 beats 1200/9000


def test_an_elastic_job_grows_when_there_is_room() -> None:
    grow = Job(id="grow", duration_s=4000.0, gpus=Elastic(min=1, max=4))
    found = plan_of(
        "dl2-myopic", grow, Job(id="two", gpus=2, duration_s=900.0), nodes=(Node(name="n", gpus=4),)
    )
    assert where(found["grow"]) == [{"n": 2}, {"n": 4}]
