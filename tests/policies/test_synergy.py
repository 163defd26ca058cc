"""Synergy: the published allocations by hand, the program against brute force, the proportional
share as a floor."""

import itertools
import math
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, JobPlan, Node, Profile, generate
from optsched.model.job import Mode
from optsched.physics import interpolate
from optsched.physics.modes import Option
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched.simulate.virtual import VirtualWorld
from optsched.traces.readers import synergy
from optsched_solvers.policies.parts.host_share import Host, HostWays, host_shares, host_ways
from optsched_solvers.policies.synergy_opt import most_throughput
from tests.clusters import equal_nodes
from tests.data import DATA, needs_data
from tests.policies.verified import plan_of, times

FOUR = (Node(name="n0", gpus=4, cpus=12),)  # 3 cores for each GPU
HOUR = 3600.0


def job(
    name: str, cores: dict[int, float], gpus: int = 1, submit_s: float = 0.0, work_s: float = HOUR
) -> Job:
    return Job(
        id=name,
        duration_s=work_s,
        gpus=gpus,
        submit_s=submit_s,
        profile=Profile(cpus_per_gpu=cores),
    )


def cores(found: dict[str, JobPlan], name: str) -> list[int]:
    """Cores, for each segment."""
    return [sum(slot.cpus for slot in segment.placement) for segment in found[name].segments]


def first_cores(
    name: str, *jobs: Job, nodes: tuple[Node, ...] = FOUR, **options: str
) -> dict[str, int]:
    """Cores by job after the first decision, of those that run."""
    world = VirtualWorld(Instance(cluster=Cluster(nodes=nodes), jobs=jobs))
    world.advance()
    policy(name, options=options).decide(world)
    return {one: sum(slot.cpus for slot in world.hold(one).placement) for one in world.running}


def test_a_job_that_lacks_its_share_takes_it_from_one_that_has_more() -> None:
    # a takes 9 of 12 cores, b wants less than its share of 3. c finds 2 left, not even its share: a
    # is cut back to 3, and c gets its share, although 6 would be free by now.
    a, b, c = job("a", {3: 1.0, 6: 1.5, 9: 1.8}), job("b", {1: 1.0}), job("c", {3: 1.0, 6: 2.0})
    assert first_cores("synergy-tune", a, b) == {"a": 9, "b": 1}
    assert first_cores("synergy-tune", a, b, c) == {"a": 3, "b": 1, "c": 3}


def test_whoever_has_most_is_cut_back_first_and_only_as_many_as_needed() -> None:
    # a takes 5, b 7, nothing is left for c. b holds more than a, and what it has beyond its share,
    # 4, is enough.
    a, b, c = job("a", {3: 1.0, 5: 1.2}), job("b", {3: 1.0, 7: 2.0}), job("c", {3: 1.0})
    assert first_cores("synergy-tune", a, b, c) == {"a": 5, "b": 3, "c": 3}


def test_jobs_on_fewer_nodes_are_cut_back_first() -> None:
    # Shares are 4. g spans both nodes with 5 for each GPU, 15 on n0, where p takes the last core,
    # and 10 on n1, where s takes 5 more. t lacks 3 of its 4 on n1. g and s both have 5 for each
    # GPU, but s is on one node: it gives 4.
    nodes = equal_nodes(2, gpus=4, cpus=16)
    jobs = (
        job("g", {4: 0.9, 5: 1.0}, gpus=5),
        job("p", {1: 1.0}),
        job("s", {1: 0.5, 5: 1.0}),
        job("t", {4: 1.0}),
    )
    assert first_cores("synergy-tune", *jobs, nodes=nodes) == {"g": 25, "p": 1, "s": 1, "t": 4}


def test_a_running_job_gives_cores_back_at_the_next_round() -> None:
    a, c = job("a", {3: 1.0, 12: 2.0}), job("c", {3: 1.0}, submit_s=100.0)
    found = plan_of("synergy-tune", a, c, nodes=FOUR)
    assert cores(found, "a")[:2] == [12, 3] and times(found["a"])[0] == (0, 300)
    assert times(found["c"]) == [(300, 300 + HOUR)]
    # 300 s at 2 leave 3000, at 1 done at 3300, before c.
    assert [round(start_s) for start_s, _ in times(found["a"])] == [0, 300]


def test_cores_come_back_when_the_peer_is_done() -> None:
    a, c = job("a", {3: 1.0, 12: 2.0}), job("c", {3: 1.0}, submit_s=100.0, work_s=500.0)
    found = plan_of("synergy-tune", a, c, nodes=FOUR)
    assert cores(found, "a") == [12, 3, 12]  # c ends at 800, a is given its cores back at 900
    assert times(found["a"]) == [(0, 300), (300, 900), (900, 900 + (HOUR - 600 - 600) / 2)]


def test_the_proportional_share_gives_no_more_than_it() -> None:
    a, b = job("a", {3: 1.0, 6: 1.5, 9: 1.8}), job("b", {1: 0.4, 2: 0.8, 4: 1.0})
    assert first_cores("synergy-tune", a, b, share="proportional") == {"a": 3, "b": 2}


def test_jobs_that_do_not_fit_the_gpus_are_skipped_and_others_run_in_order() -> None:
    jobs = [job("a", {3: 1.0}, gpus=3), job("b", {3: 1.0}, gpus=2), job("c", {3: 1.0})]
    assert list(first_cores("synergy-tune", *jobs)) == ["a", "c"]


@pytest.mark.parametrize("order, first", [("fifo", "a"), ("srtf", "b")])
def test_the_order_says_who_has_its_best_cores(order: str, first: str) -> None:
    a, b = job("a", {3: 1.0, 9: 2.0}), job("b", {3: 1.0, 9: 2.0}, work_s=60.0)
    assert first_cores("synergy-tune", a, b, order=order)[first] == 9


def test_the_program_gives_cores_where_they_are_worth_most() -> None:
    # 12 cores, shares of 3: 3 are left over, worth 0.2 to a, 1.0 to b, 0.5 to c. With c on 1 core
    # there would be 2 more, but nobody goes below the rate of its share. Once d takes one, 2 are
    # left, which are of use to nobody.
    a, b, c = (
        job("a", {3: 1.0, 6: 1.2}),
        job("b", {3: 1.0, 6: 2.0}),
        job("c", {1: 0.9, 3: 1.0, 6: 1.5}),
    )
    assert first_cores("synergy-opt", a, b, c) == {"a": 3, "b": 6, "c": 3}
    d = job("d", {1: 1.0})
    assert first_cores("synergy-opt", a, b, c, d) == {"a": 3, "b": 3, "c": 3, "d": 1}


def test_places_are_found_where_one_by_one_they_are_not() -> None:
    # The program spends all 24 cores: 4 on p, 6 on q, 8 on r, 6 on s. By best fit p and q share n0,
    # 2 cores are left there and beside r 4 on n1, too few for s. But p and r, q and s fit.
    nodes = equal_nodes(2, gpus=4, cpus=12)
    jobs = (
        job("p", {3: 1.0, 4: 1.3}),
        job("q", {3: 1.0, 6: 3.0}),
        job("r", {3: 1.0, 4: 1.3}, gpus=2),
        job("s", {3: 1.0}, gpus=2),
    )
    assert first_cores("synergy-opt", *jobs, nodes=nodes) == {"p": 4, "q": 6, "r": 8, "s": 6}


def test_all_are_packed_anew_though_some_of_those_that_run_found_no_place() -> None:
    crowded = generate(
        "even",
        jobs=30,
        gpus=16,
        seed=5,
        gangs="1,1,1,2,4",
        run_times="10m-4h",
        heavy_tail=True,
        load=2.0,
        checkpoint_s=0.0,
        cores_per_gpu=3,
        families="resnet18,resnet50,mobilenet,shufflenet,alexnet,deepspeech2,gnmt,lstm",
    )
    simulation = Simulation(crowded, policy("synergy-opt", options={"order": "srtf"}))
    simulation.run()
    assert all(entry.segments for entry in simulation.record().plan().jobs)


CACHED = Profile(
    cpus_per_gpu={1: 0.5, 3: 1.0, 6: 2.0}, memory_gib_per_gpu=24.0, memory_rates={8.0: 1.0}
)
WITH_MEMORY = (Node(name="n0", gpus=4, cpus=12, memory_gib=32.0),)  # 3 cores and 8 GiB each


def first_memory(name: str, *jobs: Job, **options: str) -> dict[str, tuple[int, float]]:
    """Cores and memory by job after the first decision."""
    world = VirtualWorld(Instance(cluster=Cluster(nodes=WITH_MEMORY), jobs=jobs))
    world.advance()
    policy(name, options=options).decide(world)
    held = {one: world.hold(one) for one in world.running}
    return {
        one: (hold.placement[0].cpus, hold.need.memory_gib_per_gpu) for one, hold in held.items()
    }


def test_a_job_that_lacks_memory_takes_it_from_one_that_has_more() -> None:
    a, b, c, d = (
        Job(id=name, duration_s=HOUR, profile=profile)
        for name, profile in (
            ("a", CACHED),
            ("b", Profile(memory_gib_per_gpu=8.0)),
            ("c", Profile(memory_gib_per_gpu=8.0)),
            ("d", Profile(memory_gib_per_gpu=8.0)),
        )
    )
    # a has 24 of 32 GiB, b takes the last 8; c finds none, and a is cut back to its share of both.
    assert first_memory("synergy-tune", a, b) == {"a": (6, 24.0), "b": (0, 8.0)}
    cut = {"a": (3, 8.0), "b": (0, 8.0), "c": (0, 8.0)}
    assert first_memory("synergy-tune", a, b, c) == cut
    assert first_memory("synergy-tune", a, share="proportional") == {"a": (3, 8.0)}
    # The program gives a job more memory where all have their shares besides.
    assert first_memory("synergy-opt", a, b) == {"a": (6, 24.0), "b": (0, 8.0)}
    assert first_memory("synergy-opt", a, b, c, d) == {**cut, "d": (0, 8.0)}


def test_memory_goes_where_it_is_worth_most() -> None:
    more = replace(CACHED, cpus_per_gpu={3: 1.0, 6: 2.5}, memory_rates={8.0: 1.0, 16.0: 1.5})
    jobs = (
        Job(id="a", duration_s=HOUR, profile=CACHED),
        Job(id="b", duration_s=HOUR, profile=more),
    )
    # 16 GiB beyond two shares: 1.0 more for a, 1.5 more for b
    assert first_memory("synergy-opt", *jobs) == {"a": (3, 8.0), "b": (6, 24.0)}
    assert first_memory("synergy-tune", *jobs) == {"a": (6, 24.0), "b": (3, 8.0)}


LEVELS = st.dictionaries(
    st.sampled_from([1, 2, 3, 4, 6, 9, 12]),
    st.sampled_from([0.3, 0.7, 1.0, 1.2, 2.0, 2.5]),
    min_size=1,
    max_size=5,
)


def ways_of(gpus: int, curve: dict[int, float]) -> HostWays:
    options = sorted(
        (
            Option(
                mode=Mode(gpus=gpus, cpus_per_gpu=cpus), spread="node", rate=rate, needs_node=True
            )
            for cpus, rate in curve.items()
        ),
        key=lambda option: (-option.rate, option.mode.cpus_per_gpu),
    )
    return host_ways(tuple(options), 0.0, {None: Host(3.0, math.inf)})[0]


GANGS = st.tuples(st.sampled_from([1, 1, 2, 4]), LEVELS)


@given(jobs=st.lists(GANGS, min_size=1, max_size=4), cores=st.integers(3, 60))
@settings(max_examples=150)
def test_the_program_is_solved_exactly(
    jobs: list[tuple[int, dict[int, float]]], cores: int
) -> None:
    def floor(curve: dict[int, float]) -> float:
        return max([rate for cpus, rate in curve.items() if cpus <= 3] or [curve[min(curve)]])

    def value(picked: tuple[int, ...]) -> float:
        if sum(gpus * cpus for (gpus, _), cpus in zip(jobs, picked, strict=True)) > cores:
            return -math.inf
        if any(curve[cpus] < floor(curve) for (_, curve), cpus in zip(jobs, picked, strict=True)):
            return -math.inf
        return sum(
            curve[cpus] / floor(curve) for (_, curve), cpus in zip(jobs, picked, strict=True)
        )

    best = max(value(picked) for picked in itertools.product(*(curve for _, curve in jobs)))
    picked = most_throughput([ways_of(*one) for one in jobs], cores, math.inf)
    found = value(tuple(int(host.cores) for host in picked))
    if best > -math.inf:
        assert found == pytest.approx(best)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[tuple[Node, ...], tuple[Job, ...]]:
    nodes = equal_nodes(draw(st.integers(1, 3)), gpus=4, cpus=12)
    curves = LEVELS.filter(lambda curve: min(curve) <= 3)
    return nodes, tuple(
        job(
            f"j{i}",
            dict(sorted(draw(curves).items())),
            gpus=draw(st.sampled_from([1, 1, 2, 3, 4, 6])),
        )
        for i in range(draw(st.integers(1, 12)))
    )


@pytest.mark.parametrize("name", ["synergy-tune", "synergy-opt"])
@given(crowd=crowds())
@settings(max_examples=60)
def test_whoever_fits_the_gpus_runs_and_nobody_is_below_its_share(
    name: str, crowd: tuple[tuple[Node, ...], tuple[Job, ...]]
) -> None:
    nodes, jobs = crowd
    found = first_cores(name, *jobs, nodes=nodes)
    left, expected = 4 * len(nodes), []
    for one in sorted(jobs, key=lambda job: job.id):  # equal submissions: by id
        assert isinstance(one.gpus, int)
        if one.gpus <= left:
            left -= one.gpus
            expected.append(one.id)
    assert sorted(found) == sorted(expected)
    for one in jobs:
        if one.id in found:
            assert isinstance(one.gpus, int)
            curve = one.profile.cpus_per_gpu
            within = max(rate for cpus, rate in curve.items() if cpus <= 3)
            assert interpolate(curve, found[one.id] // one.gpus) >= within


def test_the_share_is_that_of_the_nodes_with_the_least() -> None:
    nodes = (
        Node(name="a", gpus=4, cpus=14, memory_gib=64.0),
        Node(name="b", gpus=2, cpus=20, memory_gib=24.0),
        Node(name="c", gpu_type="x", gpus=1),
    )
    assert host_shares(Cluster(nodes=nodes)) == {None: (3, 12.0), "x": (math.inf, math.inf)}


@needs_data("synergy")
def test_tuned_cores_shorten_the_published_trace() -> None:
    found = synergy.read(DATA / "synergy" / "static_100job_6_3_1100.0", cluster="v100=32").instance
    jct_s: dict[tuple[str, ...], float] = {}
    for name, options in (
        ("synergy-tune", {"share": "proportional"}),
        ("synergy-tune", {}),
        ("synergy-opt", {}),
    ):
        simulation = Simulation(found, policy(name, options=options))
        simulation.run()
        plan = simulation.record().plan()
        jct_s[name, *options] = fmean(
            entry.segments[-1].end_s - found.job[entry.id].submit_s for entry in plan.jobs
        )
    assert jct_s["synergy-opt",] < jct_s["synergy-tune",] < jct_s["synergy-tune", "share"]
