"""FGD: the measure of fragmentation and the choice of nodes by hand, and the direction of the
published claim."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from optsched import Cluster, Instance, Job, Node, Profile, Sharing
from optsched.physics.catalogue import Catalogue
from optsched.physics.unschedulable import why_never
from optsched.plugins.registry import policy
from optsched.simulate.virtual import VirtualWorld
from optsched.traces.readers import openb
from optsched_solvers.policies.fgd import Idle, Task, fragmentation, typical
from tests.data import DATA, needs_data
from tests.policies.verified import plan_of, times, where

ANY = -1
WHOLE, PART, CPUS = Task(1, 1.0, 4, 0.0, ANY), Task(1, 0.3, 1, 0.0, ANY), Task(0, 1.0, 2, 0.0, ANY)
MIX = ((WHOLE, 0.5), (PART, 0.3), (CPUS, 0.2))


def test_what_a_task_cannot_use() -> None:
    idle = Idle((0.2, 0.5, 1.0), 8, math.inf)
    # The whole GPU leaves 0.2 and 0.5 unused, the part 0.2; one without GPUs uses nothing of the
    # 1.7.
    assert fragmentation(idle, 0, ((WHOLE, 1.0),)) == pytest.approx(0.7)
    assert fragmentation(idle, 0, ((PART, 1.0),)) == pytest.approx(0.2)
    assert fragmentation(idle, 0, ((CPUS, 1.0),)) == pytest.approx(1.7)
    assert fragmentation(idle, 0, MIX) == pytest.approx(0.5 * 0.7 + 0.3 * 0.2 + 0.2 * 1.7)


def test_a_node_that_cannot_run_a_task_is_all_fragment() -> None:
    few_cores = Idle((0.2, 0.5, 1.0), 3, math.inf)
    assert fragmentation(few_cores, 0, ((WHOLE, 1.0),)) == pytest.approx(1.7)
    two = WHOLE._replace(gpus=2)
    assert fragmentation(Idle((0.5, 1.0), 8, math.inf), 0, ((two, 1.0),)) == pytest.approx(1.5)
    assert (
        fragmentation(Idle((1.0, 1.0), 8, math.inf), 0, ((WHOLE._replace(memory_gib=9.0), 1.0),))
        == 0
    )
    assert fragmentation(Idle((1.0, 1.0), 8, 4.0), 0, ((WHOLE._replace(memory_gib=9.0), 1.0),)) == 2
    other_type = WHOLE._replace(nodes=0b10)
    assert fragmentation(Idle((1.0, 1.0), 8, math.inf), 0, ((other_type, 1.0),)) == 2
    assert fragmentation(Idle((1.0, 1.0), 8, math.inf), 1, ((other_type, 1.0),)) == 0


def test_running_a_task_leaves_the_rest() -> None:
    idle = Idle((0.5, 1.0, 1.0), 8, 10.0)
    assert idle.less(WHOLE) == Idle((0.5, 1.0), 4, 10.0)
    assert idle.less(PART._replace(part=0.25)) == Idle((0.5, 0.75, 1.0), 7, 10.0)
    assert idle.less(PART._replace(part=0.25), 0.5) == Idle((0.25, 1.0, 1.0), 7, 10.0)
    assert idle.less(CPUS) == Idle((0.5, 1.0, 1.0), 6, 10.0)


def test_typical_tasks_are_the_most_popular() -> None:
    counts = Counter({WHOLE: 60, PART: 35, CPUS: 5})
    assert typical(counts, 0.95) == ((WHOLE, 60 / 95), (PART, 35 / 95))
    assert typical(counts, 0.9) == (
        (WHOLE, 60 / 95),
        (PART, 35 / 95),
    )  # up to the first with which it is reached
    assert typical(counts, 0.6) == ((WHOLE, 1.0),)
    assert typical(Counter(), 0.95) == ()


def gang(
    name: str,
    gpus: int,
    cores: int,
    submit_s: float = 0.0,
    work_s: float = 100.0,
    **profile: object,
) -> Job:
    return Job(
        id=name,
        gpus=gpus,
        duration_s=work_s,
        submit_s=submit_s,
        profile=Profile(cpus_per_gpu={cores: 1.0}, **profile),
    )  # type: ignore[arg-type]


def test_a_job_goes_where_it_takes_least_from_others() -> None:
    # Best fit would put the single GPU on b, which has fewer GPUs. Three of four typical jobs ask
    # for 2 GPUs: b would leave one GPU that they cannot use, + 1 x 3/4 - 0; on a, three would be
    # left, of which two can be used: the measure counts nothing of what a job that fits leaves, so
    # that a grows by 0.
    nodes = (Node(name="a", gpus=4, cpus=64), Node(name="b", gpus=2, cpus=64))
    jobs = (gang("s", 1, 1), *(gang(f"g{i}", 2, 1, submit_s=1.0) for i in range(3)))
    found = plan_of("fgd", *jobs, nodes=nodes, options={"tasks": "all"})
    assert where(found["s"]) == [{"a": 1}]
    assert where(plan_of("sjf", *jobs, nodes=nodes)["s"]) == [{"b": 1}]


def test_cores_are_not_taken_from_idle_gpus() -> None:
    # h fills the GPUs of a. c fits both nodes: on b it would leave 4 cores, too few for the typical
    # job with 8.
    nodes = tuple(Node(name=name, gpus=2, cpus=20) for name in "ab")
    on_cpus = Job(id="c", gpus=0, cpus=16, duration_s=50.0, submit_s=1.0)
    jobs = (gang("h", 2, 1), on_cpus, *(gang(f"g{i}", 1, 8, submit_s=2.0) for i in range(2)))
    found = plan_of("fgd", *jobs, nodes=nodes, options={"tasks": "all"})
    assert where(found["h"]) == [{"a": 2}]
    assert [*where(found["c"])[0]] == ["a"]
    assert [times(found[f"g{i}"]) for i in range(2)] == [[(2, 102)], [(2, 102)]]


def part(name: str, duty: float, submit_s: float = 0.0) -> Job:
    return Job(
        id=name, duration_s=100.0, submit_s=submit_s, profile=Profile(sharing=Sharing(duty=duty))
    )


def test_parts_of_a_gpu_are_joined_where_both_fit() -> None:
    node = (Node(name="a", gpus=2),)
    found = plan_of(
        "fgd",
        part("p", 0.6),
        part("q", 0.4, 1.0),
        Job(id="w", duration_s=100.0, submit_s=2.0),
        nodes=node,
    )
    assert times(found["q"]) == [(1, 100), (100, 101)] and times(found["w"]) == [
        (2, 102)
    ]  # alone once p is done
    assert {segment.mode.share_with for segment in found["q"].segments} >= {"p"}
    apart = plan_of(
        "fgd",
        part("p", 0.6),
        part("q", 0.5, 1.0),
        Job(id="w", duration_s=100.0, submit_s=2.0),
        nodes=node,
    )
    assert all(segment.mode.share_with is None for segment in apart["q"].segments)
    assert times(apart["w"]) == [(100, 200)]


def test_whoever_is_left_alone_may_be_joined_again() -> None:
    long = replace(part("p", 0.5), duration_s=300.0)
    found = plan_of(
        "fgd", long, part("q", 0.5), part("r", 0.5, 150.0), nodes=(Node(name="a", gpus=1),)
    )
    assert times(found["r"]) == [(150, 250)]


def asked_and_served(instance: Instance, name: str) -> float:
    """GPUs that the running jobs ask for after the first decision, parts counted as such."""
    world = VirtualWorld(instance)
    world.advance()
    policy(name).decide(world)
    served = 0.0
    for job_id in world.running:
        sharing = world.job(job_id).profile.sharing
        gpus = sum(slot.gpus for slot in world.hold(job_id).placement)
        served += (
            sharing.duty if gpus == 1 and sharing is not None and sharing.duty is not None else gpus
        )
    return served


@needs_data("alibaba_openb")
def test_more_of_the_demand_is_served_on_a_full_cluster() -> None:
    every = openb.read(DATA / "alibaba_openb" / "openb_pod_list_default.csv.gz").instance
    with_gpus = [node for node in every.cluster.nodes if node.gpus]
    ours = theirs = 0.0
    for seed in (3, 4):
        draw = random.Random(seed)
        cluster = Cluster(nodes=tuple(draw.sample(with_gpus, 60)))
        jobs: list[Job] = []
        left = 1.3 * cluster.total_gpus
        while left > 0:
            job = replace(draw.choice(every.jobs), id=f"j{len(jobs)}", submit_s=0.0, priority=0)
            if why_never(Catalogue.of(cluster), job) is None:
                jobs.append(job)
                left -= job.gpus if isinstance(job.gpus, int) else 0
        instance = Instance(cluster=cluster, jobs=tuple(jobs))
        ours, theirs = (
            ours + asked_and_served(instance, "fgd"),
            theirs + asked_and_served(instance, "wspt"),
        )
    assert ours > theirs
