"""Xion: the swap rule and its gang form against arithmetic and brute force, and what it gains over
SRTF and FIFO."""

import weakref
from dataclasses import replace
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Locality, Mode, Node, Profile, Running, Slot
from optsched.driver.outlook import Outlook
from optsched.files import check_instance
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched.simulate.virtual import VirtualWorld
from optsched.traces.generate.synth import generate
from optsched_solvers.policies.xion import Later, Victim, Xion, cheapest
from tests.clusters import equal_nodes, one_node
from tests.policies.verified import plan_of, times

ONE = (Node(name="n0", gpus=1),)
WORK, COST = st.integers(1, 60).map(float), st.integers(0, 12).map(float)


def total(instance: Instance, name: str) -> float:
    """Sum of completion times, to the hair's breadth by which a plan tells a new start."""
    return sum(round(entry.completion_s, 3) for entry in simulate(instance, policy(name)).jobs)


def held(job: str, node: str, gpus: int, left_s: float) -> Running:
    return Running(
        job=job,
        mode=Mode(gpus=gpus),
        placement=(Slot(node=node, gpus=gpus),),
        started_s=-10.0,
        remaining_s=left_s,
    )


@given(left_s=WORK, work_s=WORK, pause_s=COST, load_w_s=COST, startup_s=COST, restore_s=COST)
@settings(max_examples=150)
def test_a_single_victim_is_preempted_exactly_where_it_pays(
    left_s: float,
    work_s: float,
    pause_s: float,
    load_w_s: float,
    startup_s: float,
    restore_s: float,
) -> None:
    load_r_s = startup_s + restore_s
    assume(left_s - work_s != 2 * pause_s + load_w_s + load_r_s)
    instance = Instance(
        cluster=Cluster(nodes=ONE),
        jobs=(
            Job(
                id="r",
                submit_s=-10.0,
                duration_s=left_s + 10,
                profile=Profile(checkpoint_s=pause_s, startup_s=startup_s, restore_s=restore_s),
            ),
            Job(id="w", duration_s=work_s, profile=Profile(startup_s=load_w_s)),
        ),
        running=(held("r", "n0", 1, left_s),),
    )
    stays = left_s + (left_s + load_w_s + work_s)
    done_w_s = pause_s + load_w_s + work_s
    swaps = done_w_s + (done_w_s + load_r_s + left_s)
    assert total(instance, "xion") == pytest.approx(min(stays, swaps), abs=0.01)
    preempted = [
        entry.id for entry in simulate(instance, policy("xion")).jobs if entry.decision == "preempt"
    ]
    assert bool(preempted) == (left_s - work_s > 2 * pause_s + load_w_s + load_r_s)


@given(lefts_s=st.lists(WORK, min_size=2, max_size=4), work_s=WORK, pause_s=COST, load_s=COST)
@settings(max_examples=100)
def test_a_gang_of_victims_pays_for_all_of_them(
    lefts_s: list[float], work_s: float, pause_s: float, load_s: float
) -> None:
    # The waiting job needs the GPUs of all: without a preemption it begins when the last has ended.
    victims = range(len(lefts_s))
    profile = Profile(checkpoint_s=pause_s, restore_s=load_s)
    instance = Instance(
        cluster=one_node("n0", gpus=len(lefts_s)),
        jobs=(
            *(
                Job(id=f"r{i}", submit_s=-10.0, duration_s=lefts_s[i] + 10, profile=profile)
                for i in victims
            ),
            Job(id="w", gpus=len(lefts_s), duration_s=work_s),
        ),
        running=tuple(held(f"r{i}", "n0", 1, lefts_s[i]) for i in victims),
    )
    gains_s = max(lefts_s) - pause_s
    loses_s = len(lefts_s) * (pause_s + work_s + load_s)
    each = all(left_s - work_s > 2 * pause_s + load_s for left_s in lefts_s)
    plan = {entry.id: entry for entry in simulate(instance, policy("xion")).jobs}
    together = all(plan[f"r{i}"].decision == "preempt" for i in victims)
    assert together == (each and (gains_s > loses_s or pause_s + load_s == 0))
    if together and gains_s > loses_s:
        stays = sum(lefts_s) + max(lefts_s) + work_s
        assert total(instance, "xion") == pytest.approx(stays - gains_s + loses_s, abs=0.01)
        assert total(instance, "xion") < stays


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([1, 1, 2]), COST, COST), min_size=1, max_size=7
    ),
    gpus=st.integers(1, 6),
    spread=st.booleans(),
    finish_s=WORK,
)
@settings(
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], max_examples=30
)
def test_the_victims_are_the_cheapest_of_all_subsets(
    jobs: list[tuple[int, int, float, float]], gpus: int, spread: bool, finish_s: float
) -> None:
    free = {i: 4 - sum(size for node, size, _, _ in jobs if node == i) for i in range(3)}
    assume(min(free.values()) >= 0)
    rate = 1.0 if spread else 0.0
    instance = Instance(
        cluster=Cluster(nodes=equal_nodes(3, gpus=4)),
        jobs=(
            *(
                Job(id=f"r{i}", submit_s=-10.0, gpus=job[1], duration_s=99.0)
                for i, job in enumerate(jobs)
            ),
            Job(
                id="w",
                gpus=gpus,
                duration_s=5.0,
                profile=Profile(locality=Locality(rack=rate, cluster=rate)),
            ),
        ),
        running=tuple(held(f"r{i}", f"n{job[0]}", job[1], 50.0) for i, job in enumerate(jobs)),
    )
    assume(spread or gpus <= 4)
    check_instance(instance)

    def fits(gone: tuple[int, ...]) -> bool:
        after = [free[i] + sum(jobs[k][1] for k in gone if jobs[k][0] == i) for i in range(3)]
        return (sum(after) if spread else max(after)) >= gpus

    def cost(gone: tuple[int, ...]) -> float:
        pause_s = max(jobs[k][2] for k in gone)
        return pause_s + sum(pause_s + finish_s + jobs[k][3] for k in gone)

    assume(not fits(()))
    subsets = [
        gone for count in range(1, len(jobs) + 1) for gone in combinations(range(len(jobs)), count)
    ]
    best = min((cost(gone) for gone in subsets if fits(gone)), default=None)
    world = VirtualWorld(instance)
    world.advance()
    victims = [Victim(f"r{i}", job[2], job[3], True) for i, job in enumerate(jobs)]
    found = cheapest(world, "w", Outlook(world), victims, finish_s)
    assert (found is None) == (best is None)
    if found is not None:
        gone = tuple(int(name[1:]) for name in found)
        assert fits(gone) and cost(gone) == pytest.approx(best)


@given(
    jobs=st.lists(
        st.tuples(WORK, st.integers(0, 80).map(float), st.sampled_from([1, 1, 2, 4])),
        max_size=12,
        min_size=1,
    ),
    nodes=st.integers(1, 3),
)
@settings(max_examples=80)
def test_without_overheads_it_makes_the_plan_of_srtf(
    jobs: list[tuple[float, float, int]], nodes: int
) -> None:
    instance = Instance(
        cluster=Cluster(nodes=equal_nodes(nodes, gpus=4)),
        jobs=tuple(
            Job(id=f"j{i}", gpus=g, duration_s=p, submit_s=r) for i, (p, r, g) in enumerate(jobs)
        ),
    )
    assert simulate(instance, policy("xion")) == simulate(instance, policy("srtf"))


def test_a_lower_priority_gives_way_whatever_it_costs() -> None:
    costly = Profile(checkpoint_s=100.0, restore_s=100.0)
    urgent = Job(id="w", duration_s=5.0, submit_s=1.0, priority=1)
    found = plan_of("xion", Job(id="r", duration_s=50.0, profile=costly), urgent, nodes=ONE)
    assert times(found["w"]) == [(101, 106)]
    found = plan_of(
        "xion", Job(id="r", duration_s=50.0, profile=costly), replace(urgent, priority=0), nodes=ONE
    )
    assert times(found["w"]) == [(50, 55)]


def test_work_since_the_last_checkpoint_counts_as_a_cost() -> None:
    # At 95 the last checkpoint is 35 s old: R - W = 105 - 80 = 25 < 35, but at 61, 1 s old, 139 -
    # 80 = 59 > 1.
    r = Job(id="r", duration_s=200.0, profile=Profile(checkpoint_every_s=60.0))
    late, early = (Job(id="w", duration_s=80.0, submit_s=at_s) for at_s in (95.0, 61.0))
    assert times(plan_of("xion", r, late, nodes=ONE)["w"]) == [(200, 280)]
    assert times(plan_of("xion", r, early, nodes=ONE)["w"]) == [(61, 141)]


def mean_jct_s(name: str, cost_s: float, seeds: tuple[int, ...]) -> float:
    """Over gangs of one to eight GPUs that keep 32 GPUs busy, each pausing for `cost_s` and loading
    for as long."""
    means = []
    for seed in seeds:
        made = generate(jobs=150, gpus=32, seed=seed, arrivals="poisson", load=1.1, overheads=False)
        submit_s = {job.id: job.submit_s for job in made.jobs}
        instance = replace(
            made,
            jobs=tuple(
                replace(job, profile=replace(job.profile, checkpoint_s=cost_s, restore_s=cost_s))
                for job in made.jobs
            ),
        )
        plan = simulate(instance, policy(name))
        means.append(fmean(entry.completion_s - submit_s[entry.id] for entry in plan.jobs))
    return fmean(means)


@pytest.mark.parametrize(
    ("cost_s", "seeds"),
    [(600.0, 3), *(pytest.param(cost_s, 10, marks=pytest.mark.slow) for cost_s in (60.0, 300.0))],
)
def test_it_beats_srtf_and_fifo_where_checkpoints_cost_minutes(cost_s: float, seeds: int) -> None:
    xion_s, srtf_s, fifo_s = (
        mean_jct_s(name, cost_s, tuple(range(1, seeds + 1))) for name in ("xion", "srtf", "fifo")
    )
    assert xion_s < srtf_s and xion_s < fifo_s


def test_what_has_left_by_a_time_is_back_at_an_earlier_one() -> None:
    jobs = tuple(Job(id=f"{end_s}", gpus=2, duration_s=end_s) for end_s in (10, 20, 30))
    cluster = one_node(gpus=8)
    world = VirtualWorld(Instance(cluster=cluster, jobs=jobs))
    world.advance()
    for job in jobs:
        fit = world.fit(job.id)
        assert fit is not None
        world.start(job.id, *fit)
    ends = sorted((world.expected_release_s(job.id), job.id) for job in jobs)
    later = Later((0, 0, 0), ends, Outlook(world))
    free = [later.at(time_s).room.pool_gpus[0] for time_s in (25, 5, 35, 20)]
    assert free == [6, 2, 8, 6]
    assert later.sooner_than(19.0) is None
    sooner = later.sooner_than(25.0)
    assert sooner is not None and sooner.room.pool_gpus[0] == 6


@pytest.mark.parametrize(("runs_s", "free"), [(5, [4, 8, 1]), (15, [3, 8, 1])])
def test_one_that_starts_leaves_with_the_others(runs_s: int, free: list[int]) -> None:
    """Two GPUs are held until 10 s, four until 30 s, one from now on."""
    jobs = tuple(
        Job(id=name, gpus=gpus, duration_s=runs_s)
        for name, gpus, runs_s in (("a", 2, 10), ("b", 4, 30), ("new", 1, runs_s))
    )
    world = VirtualWorld(Instance(cluster=one_node(gpus=8), jobs=jobs))
    world.advance()
    for name in ("a", "b"):
        world.start(name, world.fastest(name), world.free.layout.alone(0, world.job(name).gpus, 0))
    ends = sorted((world.expected_release_s(name), name) for name in world.running)
    later = Later((0, 0, 0), ends, Outlook(world))
    assert later.at(12).room.pool_gpus[0] == 4
    option, place = world.fastest("new"), world.free.layout.alone(0, 1, 0)
    world.start("new", option, place)
    later.begins((float(runs_s), "new"), world.need("new", option), place)
    assert [later.at(time_s).room.pool_gpus[0] for time_s in (12, 40, 1)] == free


def test_a_rule_that_is_done_is_freed_at_once():
    """One that waits for the garbage collector keeps the queues of each decision that tried it."""
    rule = Xion()
    done = weakref.ref(rule)
    del rule
    assert done() is None
