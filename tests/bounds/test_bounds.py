"""Bounds against exhaustive search, against random preemptive plans and policies, and where they
are tight."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from optsched.bounds import Bound, all_bounds, best_bounds, lower_bounds
from optsched.errors import InputError, OptschedError
from optsched.model.cluster import Cluster, Node, Tenant
from optsched.model.instance import Instance, Running, Slot
from optsched.model.job import Elastic, Job, Mode
from optsched.model.plan import Plan
from optsched.model.profile import Clock, Locality, Profile, Sharing
from optsched.objectives import TERMS, parse, values
from optsched.plugins import registry
from optsched.verify import verify
from tests.clusters import one_node
from tests.oracles import brute_force, edd, mcnaughton, preemptive, smith, srpt, tiny
from tests.oracles.tiny import single_gpu
from tests.verified import checked

GOALS = (*TERMS, "tail:0.5", "deadline,wct", "0.5*wct+2*cost")
SMALL = settings(max_examples=150)
MANY = settings(max_examples=500)


def value_of(instance: Instance, goal: str) -> float:
    return lower_bounds(instance, parse(goal))[0].value


def allowed(value: float, jobs: int) -> float:
    """`value` and what the verifier forgives: 1e-5 s a job, whatever its weight here (at most
    3)."""
    return value + 1e-4 * jobs + 1e-9 * abs(value)


def check_optimum(instance: Instance, goal: str) -> None:
    objective = parse(goal)
    found = brute_force.optimum(instance, objective)
    assert found is not None
    optimum, plan = found
    assert checked(instance, plan, objective) == pytest.approx(optimum)
    for one in all_bounds(instance, objective):
        if (
            one.level == 0
        ):  # the optimum of a later level is one among the plans that are best in the first
            assert one.value <= allowed(optimum[0], len(instance.jobs)), (one, plan)
    preemptive_best = lower_bounds(instance, objective)
    for low, best in zip(preemptive_best, best_bounds(instance, objective), strict=True):
        assert low.preemptive and low.value <= best.value
    event(f"tight: {preemptive_best[0].value >= optimum[0] - 1e-6 * abs(optimum[0])}")


@SMALL
@given(tiny.instances(most_jobs=4, uplinks=True), st.sampled_from(GOALS))
def test_never_above_the_optimum(instance: Instance, goal: str) -> None:
    check_optimum(instance, goal)


@pytest.mark.slow
@MANY
@given(tiny.instances(most_jobs=6, most_running=3, uplinks=True), st.sampled_from(GOALS))
def test_never_above_the_optimum_of_six_jobs(instance: Instance, goal: str) -> None:
    check_optimum(instance, goal)


def check_preemptive(instance: Instance, seed: int, share: bool, draws: int) -> None:
    goals = [parse(goal) for goal in TERMS]
    bounds = [lower_bounds(instance, goal)[0] for goal in goals]
    random = Random(seed)
    for _ in range(draws):
        plan = preemptive.random_plan(instance, goals[0], random, share)
        if plan is None or not verify(instance, plan, goals[0]).ok:
            continue
        event(
            "shared"
            if any(s.mode.share_with for job in plan.jobs for s in job.segments)
            else "not shared"
        )
        event("pieces" if any(len(job.segments) > 1 for job in plan.jobs) else "one piece")
        for goal, bound in zip(goals, bounds, strict=True):
            value = values(goal, instance, plan)[0]
            assert bound.value <= allowed(value, len(instance.jobs)), (goal.name, plan)


@settings(SMALL, max_examples=60)
@given(
    tiny.instances(most_jobs=3, most_nodes=2, uplinks=True), st.integers(0, 10**6), st.booleans()
)
def test_never_above_a_preemptive_plan(instance: Instance, seed: int, share: bool) -> None:
    check_preemptive(instance, seed, share, 10)


@pytest.mark.slow
@MANY
@given(
    tiny.instances(most_jobs=4, most_nodes=2, uplinks=True), st.integers(0, 10**6), st.booleans()
)
def test_never_above_many_preemptive_plans(instance: Instance, seed: int, share: bool) -> None:
    check_preemptive(instance, seed, share, 40)


def all_share(instance: Instance, duty: float | None, measured: float) -> Instance:
    sharing = Sharing(duty=duty, partners={} if duty else {"p": measured})
    jobs = tuple(
        replace(job, after=(), profile=replace(job.profile, gpu_memory_gib=0.0, sharing=sharing))
        for job in instance.jobs
    )
    return replace(instance, jobs=jobs, running=(), suspended=())


@settings(SMALL, max_examples=60)
@given(
    tiny.instances(most_jobs=3, most_nodes=1),
    st.integers(0, 10**6),
    st.sampled_from((None, 0.3, 0.6)),
    st.sampled_from((0.5, 1.0, 1.3)),
)
def test_never_above_a_plan_that_shares_gpus(
    instance: Instance, seed: int, duty: float | None, measured: float
) -> None:
    check_preemptive(all_share(instance, duty, measured), seed, True, 10)


@settings(SMALL, max_examples=40)
@given(tiny.instances(most_jobs=5, uplinks=True))
def test_never_above_a_policy(instance: Instance) -> None:
    simulate = pytest.importorskip("optsched.simulate.run").simulate
    bounds = [(parse(goal), lower_bounds(instance, parse(goal))[0]) for goal in TERMS]
    for name in registry.names("policies"):
        try:
            plan: Plan = simulate(instance, registry.policy(name))
        except OptschedError:  # a policy may leave jobs waiting for ever, or not be installed
            continue
        checked(instance, plan, bounds[0][0], replay=True)
        for goal, bound in bounds:
            value = values(goal, instance, plan)[0]
            assert bound.value <= allowed(value, len(instance.jobs)), (name, goal.name)


@given(tiny.lengths, st.data())
def test_wct_is_smiths_rule_on_one_gpu(processing: list[float], data: st.DataObject) -> None:
    weights = [float(data.draw(st.integers(0, 5))) for _ in processing]
    assert value_of(single_gpu(processing, weights=weights), "wct") == pytest.approx(
        smith.weighted_completion(processing, weights)
    )


@given(tiny.lengths, st.data())
def test_wct_is_srpt_on_one_gpu_with_equal_weights(
    processing: list[float], data: st.DataObject
) -> None:
    releases = [float(data.draw(st.integers(0, 30))) for _ in processing]
    assert value_of(single_gpu(processing, releases), "wct") >= (
        srpt.total_completion(processing, releases) - sum(releases) - 1e-9
    )


@given(tiny.lengths, st.floats(1, 10))
def test_squares_touch_well_also_in_proportion_to_run_times(
    processing: list[float], stretch: float
) -> None:
    """On one GPU, where the sum of all slopes x completions is least by Smith's rule."""
    touch = [stretch * run_s for run_s in processing]
    slopes = [2 * at for at in touch]
    tangents = smith.weighted_completion(processing, slopes) - sum(at**2 for at in touch)
    squares = value_of(single_gpu(processing), "flow2")
    assert squares >= tangents - 2e-3 * squares


@given(tiny.lengths, st.integers(1, 4))
def test_makespan_is_mcnaughtons_on_one_node(processing: list[float], gpus: int) -> None:
    assert value_of(single_gpu(processing, gpus=gpus), "makespan") == pytest.approx(
        mcnaughton.makespan(processing, gpus)
    )


@given(tiny.lengths, st.data())
def test_lateness_is_jacksons_rule_on_one_gpu(processing: list[float], data: st.DataObject) -> None:
    due = [float(data.draw(st.integers(0, 40))) for _ in processing]
    assert value_of(single_gpu(processing, due=due), "lateness") == pytest.approx(
        edd.largest_lateness(processing, due)
    )


@given(
    tiny.instances(most_jobs=4, most_running=0),
    st.sampled_from(("wct", "makespan", "tardiness", "cost")),
)
def test_counts_from_any_epoch(instance: Instance, goal: str) -> None:
    epoch = 1.7e9
    jobs = tuple(
        replace(
            job,
            submit_s=job.submit_s + epoch,
            deadline_s=None if job.deadline_s is None else job.deadline_s + epoch,
        )
        for job in instance.jobs
    )
    later = replace(instance, now_s=instance.now_s + epoch, jobs=jobs)
    assert value_of(later, goal) == pytest.approx(value_of(instance, goal), abs=1e-5)


def test_critical_path_with_release_dates() -> None:
    jobs = (
        Job(id="a", duration_s=3),
        Job(id="b", duration_s=4, submit_s=10, after=("a",)),
        Job(id="c", duration_s=5, after=("b",)),
    )
    instance = Instance(cluster=one_node(gpus=8), jobs=jobs)
    found = all_bounds(instance, parse("makespan"))
    assert Bound(level=0, value=19.0, source="critical path", preemptive=True) in found
    assert max(one.value for one in found) == 19


def test_area_starts_after_heads_and_ends_before_tails() -> None:
    """Two GPUs, four jobs of 4 s that wait for a job of 3 s and are followed by one of 2 s."""
    middle = tuple(Job(id=f"m{k}", duration_s=4, after=("first",)) for k in range(4))
    jobs = (
        Job(id="first", duration_s=3),
        *middle,
        Job(id="last", duration_s=2, after=tuple(job.id for job in middle)),
    )
    instance = Instance(cluster=one_node(gpus=2), jobs=jobs)
    assert value_of(instance, "makespan") == 3 + 4 * 4 / 2 + 2


def test_each_class_of_jobs_has_its_own_gpus() -> None:
    """Four large jobs fit only the one big GPU, whatever stands idle beside it."""
    nodes = (Node(name="big", gpu_type="a", gpus=1), Node(name="small", gpu_type="b", gpus=7))
    only = Profile(rate={"a": 1.0})
    instance = Instance(
        cluster=Cluster(nodes=nodes),
        jobs=(
            *(Job(id=f"l{k}", duration_s=10, profile=only) for k in range(4)),
            Job(id="s", duration_s=1, profile=Profile(rate={"a": 1.0, "b": 1.0})),
        ),
    )
    assert value_of(instance, "makespan") == 40
    assert value_of(instance, "wct") == 10 + 20 + 30 + 40 + 1


def test_slow_gpus_count_by_their_speed() -> None:
    """Eight jobs of 10 s on one fast GPU and two of half its speed: two GPUs' worth."""
    nodes = (Node(name="fast", gpu_type="a", gpus=1), Node(name="slow", gpu_type="b", gpus=2))
    both = Profile(rate={"a": 1.0, "b": 0.5})
    jobs = tuple(Job(id=f"j{k}", duration_s=10, profile=both) for k in range(8))
    assert value_of(Instance(cluster=Cluster(nodes=nodes), jobs=jobs), "makespan") == pytest.approx(
        40
    )


def test_large_gangs_run_one_after_the_other() -> None:
    jobs = tuple(Job(id=f"j{k}", gpus=5, duration_s=10) for k in range(3))
    instance = Instance(cluster=one_node(gpus=8), jobs=jobs)
    assert value_of(instance, "makespan") == 30
    assert value_of(instance, "wct") == 60


@pytest.mark.parametrize(
    "what", ["licence", "quota", "cores", "power", "loans", "of all below", "loans within"]
)
def test_whatever_is_scarce(what: str) -> None:
    """Six jobs of 10 s, two at a time for want of licences, of quota, of cores, of power, of idle
    quotas, or of the quota of a tenant further up."""
    node = Node(name="n", gpu_type="a", gpus=8, cpus=2 if what == "cores" else None)
    jobs = tuple(
        Job(
            id=f"j{k}",
            duration_s=10,
            tenant="t",
            gpus=int(what != "cores"),
            cpus=int(what == "cores"),
            resources={"licence": 1.0} if what == "licence" else {},
            profile=Profile(power_w={"a": 350.0}),
        )
        for k in range(6)
    )
    cluster = Cluster(
        nodes=(node,), resources={"licence": 2.0, **({"power_w": 700.0} if what == "power" else {})}
    )
    tenants = {
        "quota": (Tenant(name="t", gpu_quota=2),),
        "loans": (Tenant(name="t", gpu_quota=1, borrow_gpus=4), Tenant(name="u", gpu_quota=1)),
        "of all below": (
            Tenant(name="t", parent="group"),
            Tenant(name="group", parent="all", gpu_quota=5),
            Tenant(name="all", gpu_quota=2),
        ),
        "loans within": (
            Tenant(name="t", parent="all", gpu_quota=1, borrow_gpus=4),
            Tenant(name="all", gpu_quota=2),
        ),
    }
    instance = Instance(cluster=cluster, tenants=tenants.get(what, (Tenant(name="t"),)), jobs=jobs)
    assert value_of(instance, "makespan") == 30
    assert value_of(instance, "wct") == 2 * (10 + 20 + 30)


def test_a_running_job_pays_to_move() -> None:
    """It goes on at half speed (20 s), or saves 2 s, restores 3 s and runs 10 s on the faster
    GPU."""
    nodes = (Node(name="fast", gpu_type="a", gpus=1), Node(name="slow", gpu_type="b", gpus=1))
    profile = Profile(rate={"a": 1.0, "b": 0.5}, checkpoint_s=2, restore_s=3)
    job = Job(id="j", duration_s=30, profile=profile)
    running = Running(
        job="j",
        mode=Mode(gpu_type="b", gpus=1),
        placement=(Slot(node="slow", gpus=1),),
        started_s=-40,
        remaining_s=10,
    )
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(job,), running=(running,))
    assert value_of(instance, "makespan") == 15
    stuck = replace(instance, jobs=(replace(job, preemptible=False),))
    assert value_of(stuck, "makespan") == 20


def test_lost_work_counts_in_the_plan_class_only() -> None:
    """Preempted now it repeats 6 s; a preemptive schedule could wait for the next checkpoint."""
    nodes = (Node(name="fast", gpu_type="a", gpus=1), Node(name="slow", gpu_type="b", gpus=1))
    profile = Profile(rate={"a": 1.0, "b": 0.1}, checkpoint_every_s=10)
    job = Job(id="j", duration_s=30, profile=profile)
    running = Running(
        job="j",
        mode=Mode(gpu_type="b", gpus=1),
        placement=(Slot(node="slow", gpus=1),),
        started_s=-6,
        remaining_s=10,
    )
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(job,), running=(running,))
    assert lower_bounds(instance, parse("makespan"))[0].value == pytest.approx(10)
    best = best_bounds(instance, parse("makespan"))[0]
    assert best.value == pytest.approx(10.6)
    assert not best.preemptive


def test_counts_and_cores_between_the_measured_ones_start_no_job() -> None:
    """Three GPUs and two cores each are there, but no job may be started on so many."""
    elastic = Job(id="e", duration_s=12, gpus=Elastic(min=1, max=8))
    instance = Instance(cluster=one_node(gpus=3), jobs=(elastic,))
    assert value_of(instance, "makespan") == pytest.approx(12 * 8 / 2)
    hungry = Job(id="h", duration_s=12, gpus=2, profile=Profile(cpus_per_gpu={1: 0.4, 4: 1.0}))
    instance = Instance(cluster=one_node(gpus=2, cpus=5), jobs=(hungry,))
    assert value_of(instance, "makespan") == pytest.approx(12 / 0.4)


def test_a_gang_that_cannot_sit_on_one_node_is_slower() -> None:
    profile = Profile(locality=Locality(node=1.0, rack=0.8, cluster=0.5))
    job = Job(id="j", gpus=4, duration_s=8, profile=profile)
    nodes = tuple(Node(name=f"n{k}", gpus=2, rack=f"r{k // 2}") for k in range(4))
    assert value_of(
        Instance(cluster=Cluster(nodes=nodes), jobs=(job,)), "makespan"
    ) == pytest.approx(10)
    apart = tuple(replace(node, rack=None) for node in nodes)
    assert value_of(
        Instance(cluster=Cluster(nodes=apart), jobs=(job,)), "makespan"
    ) == pytest.approx(16)


def test_energy_and_cost_take_the_cheapest_type() -> None:
    nodes = (
        Node(name="a", gpu_type="a", gpus=2, gpu_price_per_h=4.0),
        Node(name="b", gpu_type="b", gpus=2),
    )
    profile = Profile(rate={"a": 1.0, "b": 0.5}, power_w={"a": 400.0, "b": 300.0})
    job = Job(id="j", gpus=2, duration_s=3600, profile=profile)
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(job,))
    assert value_of(instance, "energy") == pytest.approx(0.8)
    assert value_of(instance, "cost") == pytest.approx(4.0)
    assert value_of(instance, "0.5*energy+cost") == pytest.approx(4.4)


CLOCKS = {900: Clock(rate=0.8, power=0.5), 1200: Clock(rate=1.25, power=2.0)}


def test_every_clock_is_a_way_to_run() -> None:
    job = Job(id="j", gpus=2, duration_s=3600, profile=Profile(power_w={"a": 400.0}, clocks=CLOCKS))
    node = Node(name="a", gpu_type="a", gpus=2)
    instance = Instance(cluster=Cluster(nodes=(node,)), jobs=(job,))
    assert value_of(instance, "energy") == pytest.approx(0.8 / 0.8 * 0.5)
    assert value_of(instance, "makespan") == pytest.approx(3600 / 1.25)
    capped = replace(instance, cluster=Cluster(nodes=(node,), resources={"power_w": 1500.0}))
    assert value_of(capped, "makespan") == pytest.approx(3600), "the faster clock would draw 1600 W"


def test_every_amount_of_memory_is_a_way_to_run() -> None:
    profile = Profile(
        memory_gib_per_gpu=16.0,
        memory_rates={4.0: 0.5, 8.0: 0.8},
        gpu_memory_gib=20.0,
        gpu_memory_rates={12.0: 0.75},
    )
    job = Job(id="j", gpus=2, duration_s=600, profile=profile)

    def makespan(gib: float, gpu_gib: float | None) -> float:
        node = Node(name="n", gpus=2, memory_gib=gib, gpu_memory_gib=gpu_gib)
        return value_of(Instance(cluster=Cluster(nodes=(node,)), jobs=(job,)), "makespan")

    assert [makespan(*own) for own in ((32, 24), (31, 24), (16, None), (15, 24), (40, 12))] == [
        pytest.approx(600 / rate) for rate in (1.0, 0.8, 0.8, 0.5, 0.75)
    ]


def test_the_power_cap_bounds_the_energy_of_all_jobs_together() -> None:
    """Ten jobs take at least 10 x 1000 s x 200 W at the slow clock, and 1000 W are there."""
    profile = Profile(power_w={"a": 400.0}, clocks={900: Clock(rate=0.8, power=0.5)})
    jobs = tuple(Job(id=f"j{k}", duration_s=800, profile=profile) for k in range(10))
    cluster = Cluster(nodes=(Node(name="a", gpu_type="a", gpus=10),), resources={"power_w": 1000.0})
    assert value_of(Instance(cluster=cluster, jobs=jobs), "makespan") == pytest.approx(
        2000, rel=1e-5
    )
    elastic = tuple(replace(job, gpus=Elastic(min=1, max=4)) for job in jobs)
    assert value_of(Instance(cluster=cluster, jobs=elastic), "makespan") == pytest.approx(
        8000, rel=1e-5
    )


def test_one_bound_for_each_level() -> None:
    found = lower_bounds(single_gpu([3.0, 4.0], due=[1.0, 9.0]), parse("deadline,wct"))
    assert [(one.level, one.value) for one in found] == [(0, 1.0), (1, 10.0)]


def test_no_jobs() -> None:
    assert [one.value for one in lower_bounds(Instance(), parse("wct,makespan,cost"))] == [
        0.0,
        0.0,
        0.0,
    ]


def test_a_job_that_fits_nowhere() -> None:
    cluster = one_node(gpus=1)
    instance = Instance(cluster=cluster, jobs=(Job(id="big", gpus=2, duration_s=1),))
    with pytest.raises(InputError, match="job big fits nowhere"):
        lower_bounds(instance, parse("makespan"))
