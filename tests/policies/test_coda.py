"""CODA-style: the core search, the arrays and the memory bandwidth by hand, and the direction of
the published claim."""

import random
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import pytest

from optsched import Cluster, Instance, Job, JobPlan, Node, Profile
from optsched.driver.world import World
from optsched.model.cluster import Window
from optsched.model.job import Mode
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation, simulate
from optsched_solvers.policies.parts.core_search import CoreSearch
from tests.clusters import equal_nodes, one_node
from tests.policies.verified import plan_of, times, where

CURVE = {1: 0.3, 2: 0.6, 4: 0.9, 6: 0.91, 8: 0.92}


def cores(
    search: CoreSearch, category: str, gpus: int, rates: Mapping[int, float], first: float
) -> int:
    """What a search finds that sees the rate of each count that it tries."""
    group = category, gpus
    climb = search.begin(rates, search.first(group, rates, first))
    while climb.goes_on:
        search.shown(climb, rates[climb.count])
    return search.end(group, climb)


def test_the_search_climbs_while_it_gains_and_remembers() -> None:
    search = CoreSearch(0.05)
    assert cores(search, "vision", 1, CURVE, first=1) == 4  # 1 -> 2 -> 4; 6 is 1 % better
    assert search.steps == 4
    assert cores(search, "vision", 1, CURVE, first=1) == 4  # begun at 4: looks at 6 and at 2
    assert search.steps == 7
    assert (
        cores(search, "vision", 4, CURVE, first=8) == 4
    )  # another gang size has another history: 8 -> 6 -> 4
    assert cores(search, "speech", 1, {2: 1.0, 4: 1.0}, first=3) == 2


def test_the_search_stops_at_a_plateau_although_a_step_beyond_is_better() -> None:
    assert cores(CoreSearch(0.05), "x", 1, {1: 0.5, 2: 0.5, 4: 1.0}, first=1) == 1


def gang(
    name: str, gpus: int, submit_s: float = 0.0, work_s: float = 100.0, **profile: object
) -> Job:
    return Job(id=name, gpus=gpus, duration_s=work_s, submit_s=submit_s, profile=Profile(**profile))  # type: ignore[arg-type]


def on_cpus(
    name: str, cpus: int, submit_s: float = 0.0, work_s: float = 100.0, gbps: float = 0.0
) -> Job:
    return Job(
        id=name,
        gpus=0,
        cpus=cpus,
        duration_s=work_s,
        submit_s=submit_s,
        profile=Profile(memory_gbps=gbps),
    )


def test_a_job_gets_the_cores_that_were_found() -> None:
    found = plan_of(
        "coda-style",
        gang("a", 2, cpus_per_gpu=CURVE),
        nodes=(Node(name="n0", gpus=4, cpus=32),),
        options={"gain": "0.05", "search": "profile"},
    )
    assert [slot.cpus for slot in found["a"].segments[0].placement] == [8]


def held(found: JobPlan) -> list[tuple[float, int]]:
    """From when on a job holds how many cores for each GPU."""
    return [(stay.start_s, stay.mode.cpus_per_gpu) for stay in found.segments]


def test_a_job_runs_each_count_that_is_tried_and_goes_back_to_the_best() -> None:
    """From its share, 2, up to 4, which is better, to 6, which is not, and back: each for the trial
    once it has set up, each change for a checkpoint."""
    job = gang("a", 1, work_s=1000.0, cpus_per_gpu=CURVE, checkpoint_s=5.0, startup_s=10.0)
    nodes = (Node(name="n0", gpus=4, cpus=8),)
    how = {"gain": "0.05", "trial": "30s"}
    found = plan_of("coda-style", job, nodes=nodes, options=how)
    assert held(found["a"]) == [(0, 2), (45, 4), (90, 6), (135, 4)]
    later = replace(job, id="b", submit_s=5000.0)
    both = plan_of("coda-style", job, later, nodes=nodes, options=how)
    assert held(both["b"]) == [(5000, 4), (5045, 6), (5090, 2), (5135, 4)]  # up, down, back
    off = plan_of("coda-style", job, nodes=nodes, options={"search": "off"})
    assert held(off["a"]) == [(0, 2)]


def test_cores_that_change_in_place_cost_nothing() -> None:
    """The same search, each trial for 30 s and from one to the next without a pause, even of a job
    that may not be preempted."""
    job = gang("a", 1, work_s=1000.0, cpus_per_gpu=CURVE, checkpoint_s=5.0, startup_s=10.0)
    job = replace(job, cores_in_place=True, preemptible=False)
    how = {"gain": "0.05", "trial": "30s"}
    found = plan_of("coda-style", job, nodes=(Node(name="n0", gpus=4, cpus=8),), options=how)
    assert held(found["a"]) == [(0, 2), (40, 4), (70, 6), (100, 4)]
    done = 30 * (0.6 + 0.9 + 0.91)
    assert found["a"].completion_s == pytest.approx(100 + (1000 - done) / 0.9)


def test_cores_in_place_are_taken_back_from_cpu_jobs() -> None:
    """As below with new starts, but for the job's own."""
    job = replace(gang("a", 1, work_s=1000.0, cpus_per_gpu=CURVE), cores_in_place=True)
    jobs = (job, on_cpus("p", 1, work_s=2000.0), on_cpus("q", 1, submit_s=70.0, work_s=500.0))
    found = plan_of("coda-style", *jobs, nodes=(Node(name="n0", gpus=1, cpus=3),))
    assert held(found["a"]) == [(0, 2), (60, 1), (120, 2)]
    assert times(found["q"])[0] == (70, 120) and len(times(found["p"])) == 1


def test_a_count_that_is_not_free_is_not_tried_and_one_that_was_found_is_taken_back() -> None:
    """Beside the first job there are no 4 cores to try. It goes down to 1, and CPU-only jobs that
    took what it left give way when it goes back."""
    job = gang("a", 1, work_s=1000.0, cpus_per_gpu=CURVE)
    jobs = (job, on_cpus("p", 1, work_s=2000.0), on_cpus("q", 1, submit_s=70.0, work_s=500.0))
    found = plan_of("coda-style", *jobs, nodes=(Node(name="n0", gpus=1, cpus=3),))
    cores = [count for _, count in held(found["a"])]
    assert cores == [2, 1, 2]
    assert held(found["a"])[2][0] == pytest.approx(120) == pytest.approx(times(found["q"])[0][1])
    assert times(found["q"])[0][0] == 70 and len(times(found["p"])) == 1


def test_where_nothing_may_be_started_anew_nothing_is_searched() -> None:
    job = replace(gang("a", 1, cpus_per_gpu=CURVE), preemptible=False)
    found = plan_of("coda-style", job, nodes=(Node(name="n0", gpus=1, cpus=4),))
    assert held(found["a"]) == [(0, 4)]


def test_cores_of_idle_gpus_are_lent_and_taken_back() -> None:
    nodes = (Node(name="n0", gpus=4, cpus=16), Node(name="c0", cpus=8))
    jobs = (
        on_cpus("p", 8),
        on_cpus("q", 8),
        on_cpus("r", 8),
        gang("g", 4, submit_s=40.0, cpus_per_gpu={2: 1.0}),
    )
    found = plan_of("coda-style", *jobs, nodes=nodes)
    assert [*where(found["p"])[0]] == ["c0"]  # the node without GPUs first
    assert times(found["g"]) == [(40, 140)]
    assert times(found["q"]) == [(0, 100)]  # one is enough, the last that came
    assert times(found["r"]) == [(0, 40), (100, 160)]


def test_a_gpu_job_waits_for_cores_that_are_being_saved_and_nobody_else_takes_them() -> None:
    node = (Node(name="n0", gpus=2, cpus=8),)
    lent = replace(on_cpus("p", 8), profile=Profile(checkpoint_s=10.0))
    jobs = (
        lent,
        gang("g", 2, submit_s=40.0, cpus_per_gpu={4: 1.0}),
        on_cpus("q", 4, submit_s=45.0),
    )
    found = plan_of("coda-style", *jobs, nodes=node)
    assert times(found["g"]) == [(50, 150)]
    assert times(found["q"])[0][0] >= 150


def test_small_gangs_keep_to_their_array_while_a_wide_one_waits() -> None:
    # Half of the GPUs are set aside: n1. s1 fills n0. w needs both nodes and waits; s2 would fit
    # n1, and does once w runs.
    nodes = equal_nodes(2, gpus=4)
    jobs = (gang("s1", 3), gang("w", 8, submit_s=1.0), gang("s2", 2, submit_s=2.0))
    found = plan_of("coda-style", *jobs, nodes=nodes, options={"wide": "0.5"})
    assert times(found["w"]) == [(100, 200)] and times(found["s2"]) == [(200, 300)]
    without = plan_of("coda-style", jobs[0], jobs[2], nodes=nodes, options={"wide": "0.5"})
    assert times(without["s2"]) == [(2, 102)] and [*where(without["s2"])[0]] == [
        "n1"
    ]  # nobody wide waits


def test_wide_gangs_go_to_the_nodes_set_aside_for_them() -> None:
    nodes = equal_nodes(2, gpus=4)
    found = plan_of("coda-style", gang("w", 4), gang("s", 1), nodes=nodes, options={"wide": "0.5"})
    assert [*where(found["w"])[0]] == ["n1"] and [*where(found["s"])[0]] == ["n0"]


def test_cpu_jobs_are_not_put_where_the_bandwidth_is_used_up() -> None:
    nodes = (
        Node(name="n0", gpus=1, cpus=32, memory_gbps=100.0),
        Node(name="n1", gpus=1, cpus=32, memory_gbps=100.0),
    )
    g = gang("g", 1, memory_gbps=60.0, cpus_per_gpu={2: 1.0})
    jobs = (g, *(on_cpus(name, 2, gbps=50.0) for name in "pqr"))
    found = plan_of("coda-style", *jobs, nodes=nodes)
    assert [*where(found["g"])[0]] == ["n0"]
    assert [[*where(found[name])[0]] for name in "pq"] == [["n1"], ["n1"]]
    assert times(found["r"]) == [(100, 200)]  # 150 on n1 or 110 on n0 would be too much
    half = plan_of("coda-style", *jobs[:3], nodes=nodes, options={"bandwidth": "0.5"})
    assert times(half["q"]) == [(100, 200)]


def test_cpu_jobs_are_taken_away_where_they_slow_a_gpu_job_down() -> None:
    node = (Node(name="n0", gpus=1, cpus=32, memory_gbps=100.0),)
    jobs = (
        on_cpus("p", 2, gbps=40.0),
        on_cpus("q", 2, gbps=40.0),
        gang("g", 1, submit_s=10.0, memory_gbps=60.0),
    )
    found = plan_of("coda-style", *jobs, nodes=node)
    assert times(found["p"]) == [(0, 100)]
    assert times(found["q"])[0] == (0, 10)
    assert times(found["g"]) == [(10, 110)]  # at full speed: 40 + 60 is what there is


def cuttable(name: str, gbps: float, *cpus: int) -> Job:
    """A job on CPUs of 100 s on the first of its core counts, the longer the fewer it has."""
    modes = tuple(Mode(cpus=count, duration_s=100.0 * cpus[0] / count) for count in cpus)
    return Job(id=name, modes=modes, profile=Profile(memory_gbps=gbps))


def test_cpu_jobs_are_slowed_down_before_they_are_taken_away() -> None:
    """80 + 60 of 100: half of the cores bring 40, until the GPU job is done."""
    node = (Node(name="n0", gpus=1, cpus=32, memory_gbps=100.0),)
    late = gang("g", 1, submit_s=10.0, memory_gbps=60.0)
    found = plan_of("coda-style", cuttable("c", 80.0, 8, 4, 2), late, nodes=node)
    assert times(found["g"]) == [(10, 110)]
    segments = found["c"].segments
    assert [segment.mode.cpus for segment in segments] == [8, 4, 8]
    assert times(found["c"]) == [(0, 10), (10, 110), (110, 150)]


def test_cpu_jobs_leave_where_slowing_down_is_not_enough() -> None:
    node = (Node(name="n0", gpus=1, cpus=32, memory_gbps=100.0),)
    late = gang("g", 1, submit_s=10.0, memory_gbps=90.0)
    found = plan_of(
        "coda-style", cuttable("c", 80.0, 8, 4), on_cpus("p", 2, gbps=10.0), late, nodes=node
    )
    assert times(found["g"]) == [(10, 110)]
    assert times(found["c"])[0] == (0, 10) and times(found["c"])[1][0] == 110
    assert times(found["p"]) == [(0, 100)], "what is left is enough for it"


def test_a_cpu_job_starts_as_fast_as_the_bandwidth_allows() -> None:
    node = (Node(name="n0", gpus=1, cpus=32, memory_gbps=100.0),)
    found = plan_of(
        "coda-style", gang("g", 1, memory_gbps=60.0), cuttable("c", 80.0, 8, 4), nodes=node
    )
    assert times(found["g"]) == [(0, 100)]
    assert [segment.mode.cpus for segment in found["c"].segments] == [4, 8]
    assert times(found["c"]) == [(0, 100), (100, 150)]


def test_a_job_that_runs_on_no_node_is_not_given_its_cores_back() -> None:
    """It runs slowly without any node, as the only GPU is in a window."""
    modes = Mode(duration_s=6.0), Mode(duration_s=3.0, gpus=1)
    cluster = Cluster(
        nodes=(Node(name="n", gpus=1),), windows=(Window(nodes=("n",), from_s=1.0, to_s=9.0),)
    )
    instance = Instance(cluster=cluster, jobs=(Job(id="j", modes=modes, submit_s=2.0),))
    plan = simulate(instance, policy("coda-style"))
    assert times(plan.jobs[0]) == [(2, 8)]


def workload(seed: int, cores: int | None = None) -> Instance:
    """GPU jobs of three kinds and CPU jobs on 32 GPUs; with `cores`, each asks for so many beside
    each GPU."""
    draw = random.Random(seed)
    vision = Profile(
        name="vision",
        cpus_per_gpu={1: 0.25, 2: 0.5, 4: 0.85, 6: 1.0},
        memory_gbps=40.0,
        memory_duty=0.5,
    )
    language = Profile(name="language", cpus_per_gpu={1: 0.97, 2: 1.0, 4: 1.0, 6: 1.0})
    speech = Profile(name="speech", cpus_per_gpu={1: 0.5, 2: 0.8, 3: 1.0, 4: 1.0, 6: 1.0})
    jobs, now_s = [], 0.0
    for i in range(150):
        now_s += draw.expovariate(1 / 60)
        if draw.random() < 0.4:
            work_s, gbps = draw.uniform(100, 1200), draw.choice([0.0, 50.0])
            jobs.append(on_cpus(f"c{i}", draw.choice([2, 4, 8]), now_s, work_s, gbps))
            continue
        profile = draw.choice([vision, language, language, speech])
        if cores is not None:
            profile = replace(profile, cpus_per_gpu={cores: profile.cpus_per_gpu[cores]})
        jobs.append(
            Job(
                id=f"g{i}",
                submit_s=now_s,
                gpus=draw.choice([1, 1, 1, 2, 4, 8]),
                profile=profile,
                duration_s=draw.uniform(300, 3000),
            )
        )
    nodes = equal_nodes(4, gpus=8, cpus=48, memory_gbps=400.0)
    return Instance(cluster=Cluster(nodes=nodes), jobs=tuple(jobs))


def measured(instance: Instance, name: str) -> tuple[float, float]:
    """GPU utilisation until the last GPU job is done (useful GPU-seconds of all), and the mean wait
    of CPU jobs in all."""
    simulation = Simulation(instance, policy(name))
    simulation.run()
    found: list[JobPlan] = list(simulation.record().plan().jobs)
    useful = sum(
        job.duration_s * job.gpus
        for job in instance.jobs
        if isinstance(job.gpus, int) and job.duration_s
    )
    end_s = max(entry.segments[-1].end_s for entry in found if instance.job[entry.id].gpus)
    waits = [
        entry.segments[-1].end_s - instance.job[entry.id].submit_s - instance.job[entry.id].work_s
        for entry in found
        if not instance.job[entry.id].gpus
    ]
    return useful / (instance.cluster.total_gpus * end_s), fmean(waits)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_utilisation_rises_without_delaying_cpu_jobs(seed: int) -> None:
    ours, waits = measured(workload(seed), "coda-style")
    for cores in (2, 4, 6):
        theirs, their_waits = measured(workload(seed, cores), "fifo")
        assert ours > theirs and waits <= their_waits


def test_facts_say_what_was_searched_and_who_gave_way() -> None:
    jobs = (on_cpus("p", 8), gang("g", 2, submit_s=40.0, cpus_per_gpu={2: 0.5, 4: 1.0}))
    rule = policy("coda-style")
    instance = Instance(cluster=one_node("n0", gpus=2, cpus=8), jobs=jobs)
    simulation = Simulation(instance, rule)
    simulation.run()
    assert rule.facts() == {  # type: ignore[attr-defined]
        "core_counts_tried_mean": 2,
        "cpu_jobs_preempted_for_room": 1,
        "cpu_jobs_preempted_for_bandwidth": 0,
        "cpu_jobs_slowed_for_bandwidth": 0,
    }
    assert isinstance(simulation.world, World)
