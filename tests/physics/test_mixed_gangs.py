"""Gangs on GPUs of several types: how fast they are, what the verifier says of them, what they use,
what bounds say."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from optsched import (
    Cluster,
    Elastic,
    Instance,
    Job,
    JobPlan,
    Locality,
    Mode,
    Node,
    Plan,
    Profile,
    Running,
    Segment,
    Slot,
)
from optsched.bounds import all_bounds, lower_bounds
from optsched.driver.snapshot import snapshot
from optsched.engine.plan_class import outside_class
from optsched.files import dump_instance, load_instance
from optsched.files.faults import find_faults
from optsched.objectives import parse, values
from optsched.physics import mixed_type_rate, placed_rate
from optsched.plugins.registry import policy
from optsched.simulate.metrics.measure import measure
from optsched.simulate.metrics.summary import summary
from optsched.simulate.metrics.table import columns
from optsched.simulate.run import Simulation, simulate
from optsched.verify import verify
from tests.simulate.mixing_policy import Mixing
from tests.simulate.random_instances import instances
from tests.verified import checked

WCT = parse("wct")

NODES = (
    Node(name="f0", gpu_type="fast", gpus=2, rack="r0", gpu_price_per_h=4.0),
    Node(name="s0", gpu_type="slow", gpus=4, rack="r0", gpu_price_per_h=1.0),
    Node(name="f1", gpu_type="fast", gpus=2, rack="r1", gpu_price_per_h=4.0),
)
RATES = {"fast": 1.0, "slow": 0.4}


def one_job(
    mixing: str = "bottleneck", end_s: float = 250.0, **fields: object
) -> tuple[Instance, Plan]:
    """3 GPUs, two fast and one slow, for 100 s of work at the rate 0.4."""
    profile = Profile(rate=RATES, power_w={"fast": 300.0, "slow": 100.0}, mixing=mixing)  # type: ignore[arg-type]
    job = Job(id="j", gpus=3, duration_s=100.0, profile=replace(profile, **fields))  # type: ignore[arg-type]
    placement = (Slot(node="f0", gpus=2), Slot(node="s0", gpus=1))
    segment = Segment(start_s=0.0, end_s=end_s, mode=Mode(gpus=3), placement=placement)
    plan = Plan(jobs=(JobPlan(id="j", decision="start", segments=(segment,)),))
    return Instance(cluster=Cluster(nodes=NODES), jobs=(job,)), plan


@pytest.mark.parametrize(
    ("mixing", "end_s"), [("bottleneck", 100 / 0.4), ("sum", 100 / ((2 * 1.0 + 1 * 0.4) / 3))]
)
def test_the_rate_is_that_of_the_rule(mixing: str, end_s: float) -> None:
    instance, plan = one_job(mixing, end_s)
    checked(instance, plan)
    for wrong_s, rule in ((end_s * 0.99, "work"), (end_s * 1.01, "work")):
        broken = one_job(mixing, wrong_s)[1]
        assert [one.rule for one in verify(instance, broken, WCT).violations] == [rule]


def test_a_type_without_a_rate_stops_the_gang() -> None:
    assert mixed_type_rate(Profile(rate={"fast": 1.0}), {"fast": 2, "slow": 1}) == 0
    assert mixed_type_rate(Profile(rate={"fast": 1.0}, mixing="sum"), {"fast": 2, "slow": 1}) == 0
    assert mixed_type_rate(Profile(), {"fast": 2, "slow": 1}) == 1


def test_the_other_tables_count_as_ever() -> None:
    instance, plan = one_job(locality=Locality(rack=0.5))
    job, segment = instance.jobs[0], plan.jobs[0].segments[0]
    assert placed_rate(instance, job, segment.mode, segment.placement) == pytest.approx(0.4 * 0.5)
    elastic = replace(job, gpus=Elastic(min=1, max=6), profile=Profile(rate=RATES))
    assert placed_rate(instance, elastic, segment.mode, segment.placement) == pytest.approx(
        0.4 * 3 / 6
    )


def test_a_mode_for_one_type_stays_on_it() -> None:
    instance, plan = one_job()
    segment = plan.jobs[0].segments[0]
    named = replace(plan.jobs[0], segments=(replace(segment, mode=Mode(gpus=3, gpu_type="fast")),))
    assert {one.rule for one in verify(instance, Plan(jobs=(named,)), WCT).violations} == {
        "gpu type"
    }


def test_a_power_cap_counts_each_gpu_by_its_type() -> None:
    instance, plan = one_job()
    capped = replace(instance, cluster=replace(instance.cluster, resources={"power_w": 700.0}))
    segment = plan.jobs[0].segments[0]
    for watts, sound in ((700.0, True), (900.0, False)):
        mode = replace(segment.mode, resources={"power_w": watts})
        changed = Plan(jobs=(replace(plan.jobs[0], segments=(replace(segment, mode=mode),)),))
        assert verify(capped, changed, WCT).ok is sound


def test_it_costs_what_its_gpus_cost() -> None:
    instance, plan = one_job()
    energy, cost = values(parse("energy,cost"), instance, plan)
    assert energy == pytest.approx((2 * 300 + 100) * 250 / 3.6e6)
    assert cost == pytest.approx((2 * 4.0 + 1.0) * 250 / 3600)


def running() -> Instance:
    """The gang at work on both types with 40 s of work to do, and a job that waits for two fast
    GPUs."""
    instance, plan = one_job()
    segment = plan.jobs[0].segments[0]
    entry = Running(
        job="j", mode=segment.mode, placement=segment.placement, started_s=-150.0, remaining_s=40.0
    )
    other = Job(id="k", gpus=2, duration_s=10.0, profile=Profile(rate={"fast": 1.0}))
    jobs = (replace(instance.jobs[0], submit_s=-150.0), other)
    return replace(instance, jobs=jobs, running=(entry,))


def test_metrics_count_the_gpus_of_each_type() -> None:
    simulation = Simulation(running(), policy("fifo"))
    simulation.run()
    found = measure(simulation.record())
    total = summary(found)
    assert total["makespan_s"] == 100  # 40 s at the rate 0.4; k runs on f1 for 10 s
    assert total["use"]["gpus_by_type"] == {
        "fast": pytest.approx((2 * 100 + 2 * 10) / 400),
        "slow": pytest.approx(100 / 400),
    }
    energy = total["energy_kwh"]
    assert energy["by_type"] == {
        "fast": pytest.approx(2 * 300 * 100 / 3.6e6),
        "slow": pytest.approx(100 * 100 / 3.6e6),
    }
    assert energy["total"] == pytest.approx(
        values(parse("energy"), running(), simulation.record().plan())[0]
    )
    assert columns(found)["gpu_type"] == ["fast+slow", "fast"]


def test_files_keep_the_rule() -> None:
    instance = running()
    for mixing in ("bottleneck", "sum"):
        job = replace(instance.jobs[0], profile=replace(instance.jobs[0].profile, mixing=mixing))  # type: ignore[arg-type]
        changed = replace(instance, jobs=(job, instance.jobs[1]))
        again = load_instance(dump_instance(changed))
        assert again == changed
        assert again.jobs[0].profile.mixing == mixing
    capped = replace(instance, cluster=replace(instance.cluster, resources={"power_w": 2000.0}))
    held = replace(
        capped.running[0], mode=replace(capped.running[0].mode, resources={"power_w": 700.0})
    )
    capped = replace(capped, running=(held,))
    assert not find_faults(capped)
    assert '"power_w": 700' not in dump_instance(capped)
    assert load_instance(dump_instance(capped)) == capped


def test_a_gang_on_several_types_is_outside_the_plan_class_unless_it_runs() -> None:
    instance, plan = one_job()
    assert "several types" in (outside_class(instance, plan) or "")
    now = running()
    assert outside_class(now, simulate(now, policy("fifo"))) is None


def test_bounds_know_gangs_that_fit_on_a_mix_alone_or_there_faster() -> None:
    """Five GPUs: no type has as many, so that the gang needs a mix; the medium type alone is slower
    than the mix."""
    nodes = tuple(
        Node(name=name, gpu_type=name, gpus=gpus) for name, gpus in (("a", 3), ("b", 2), ("c", 5))
    )
    job = Job(
        id="j", gpus=5, duration_s=100.0, profile=Profile(rate={"a": 1.0, "b": 0.8, "c": 0.1})
    )
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(job,))
    assert lower_bounds(instance, parse("makespan"))[0].value == pytest.approx(125.0)  # 100 / 0.8
    every = all_bounds(instance, parse("makespan"))
    found = {one.preemptive: one.value for one in every if one.source == "each job alone"}
    assert found == {True: pytest.approx(125.0), False: pytest.approx(1000.0)}


def test_a_power_cap_that_one_type_alone_exceeds_leaves_the_mix() -> None:
    """Two of `fast` would draw 800 W, one of each 500 W: GPUs of `fast` still count."""
    nodes = (Node(name="f", gpu_type="fast", gpus=1), Node(name="s", gpu_type="slow", gpus=1))
    job = Job(
        id="j", gpus=2, duration_s=600.0, profile=Profile(power_w={"fast": 400.0, "slow": 100.0})
    )
    instance = Instance(cluster=Cluster(nodes=nodes, resources={"power_w": 600.0}), jobs=(job,))
    segment = Segment(
        start_s=0.0,
        end_s=600.0,
        mode=Mode(gpus=2, resources={"power_w": 500.0}),
        placement=(Slot(node="f", gpus=1), Slot(node="s", gpus=1)),
    )
    plan = Plan(jobs=(JobPlan(id="j", decision="start", segments=(segment,)),))
    checked(instance, plan)
    for name in ("wct", "makespan"):
        [bound] = lower_bounds(instance, parse(name))
        assert bound.value == pytest.approx(600.0), bound.source


def test_a_sum_of_types_may_cost_less_than_any_of_them() -> None:
    """Two GPUs, 100 s of start-up and 100 s of work. On a: 200 s at 2 x 5; on b, ten times as fast:
    110 s at 2 x 100 / 11; on one of each at the rate 5.5: 100 + 100 / 5.5 s at 5 + 100 / 11."""
    nodes = (
        Node(name="a", gpu_type="a", gpus=2, gpu_price_per_h=5.0),
        Node(name="b", gpu_type="b", gpus=2, gpu_price_per_h=100 / 11),
    )
    profile = Profile(rate={"a": 1.0, "b": 10.0}, startup_s=100.0, mixing="sum")
    instance = Instance(
        cluster=Cluster(nodes=nodes), jobs=(Job(id="j", gpus=2, duration_s=100.0, profile=profile),)
    )
    segment = Segment(
        start_s=0.0,
        end_s=100 + 100 / 5.5,
        mode=Mode(gpus=2),
        placement=(Slot(node="a", gpus=1), Slot(node="b", gpus=1)),
    )
    plan = Plan(jobs=(JobPlan(id="j", decision="start", segments=(segment,)),))
    worth = checked(instance, plan, "cost")
    assert worth[0] == pytest.approx((5 + 100 / 11) * (100 + 100 / 5.5) / 3600)
    assert worth[0] < 0.9 * 2 * 5 * 200 / 3600
    assert lower_bounds(instance, parse("cost"))[0].value <= worth[0]


def wider(instance: Instance) -> Instance:
    """With GPUs of a second type beside those that are in every instance."""
    more = Node(name="more", gpu_type="b", gpus=4, rack="r0", gpu_price_per_h=0.3)
    return replace(
        instance, cluster=replace(instance.cluster, nodes=(*instance.cluster.nodes, more))
    )


@st.composite
def gangs(draw: Any) -> Instance:
    """A few gangs, two or three types of GPUs with few of each."""
    nodes = tuple(
        Node(
            name=f"n{i}",
            gpu_type="abc"[i % 3],
            gpus=draw(st.integers(1, 3)),
            rack=f"r{i % 2}",
            gpu_price_per_h=draw(st.sampled_from([0.5, 1.0, 3.0])),
            cpus=draw(st.sampled_from([None, None, 6])),
        )
        for i in range(draw(st.integers(2, 5)))
    )
    rate = st.sampled_from([0.1, 0.5, 1.0, 2.0])
    jobs = []
    for i in range(draw(st.integers(1, 4))):
        profile = Profile(
            rate={"a": draw(rate), "b": draw(rate), "c": draw(rate)},
            gpus=draw(st.sampled_from([{}, {1: 0.5, 2: 0.9, 4: 1.2}])),
            cpus_per_gpu=draw(st.sampled_from([{}, {1: 0.5, 3: 1.0}])),
            locality=draw(st.sampled_from([None, Locality(rack=0.7, cluster=0.3)])),
            power_w={"a": 300.0, "b": 100.0, "c": 500.0},
            mixing=draw(st.sampled_from(["bottleneck", "sum"])),
            startup_s=draw(st.sampled_from([0.0, 5.0])),
            checkpoint_s=draw(st.sampled_from([0.0, 2.0])),
        )
        size: int | Elastic = draw(st.integers(2, 4))
        if draw(st.booleans()):
            size = Elastic(min=draw(st.integers(1, 2)), max=draw(st.integers(2, 6)))
        jobs.append(
            Job(
                id=f"j{i}",
                gpus=size,
                duration_s=draw(st.sampled_from([3.0, 20.0])),
                profile=profile,
                submit_s=draw(st.sampled_from([0.0, 4.0])),
            )
        )
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=tuple(jobs))
    assume(not find_faults(instance))
    return instance


@settings(max_examples=60)
@given(
    instance=st.one_of(gangs(), instances().map(wider)),
    seed=st.integers(0, 10**6),
    sums=st.booleans(),
)
def test_plans_are_sound_and_no_bound_is_above_them(
    instance: Instance, seed: int, sums: bool
) -> None:
    instance = summing(instance) if sums else instance
    mixing = Mixing(seed)
    plan = simulate(instance, mixing)
    event(f"mixed gangs: {min(mixing.mixed, 2)}")
    for goal in ("wct", "makespan", "energy", "cost", "maxmin", "ftf"):
        worth = checked(instance, plan, goal)
        [bound] = lower_bounds(instance, parse(goal))
        slack = 1e-4 * len(instance.jobs) * 3 + 1e-6 * abs(worth[0])
        assert bound.value <= worth[0] + slack, (goal, bound)


@settings(max_examples=40)
@given(
    instance=st.one_of(gangs(), instances().map(wider)),
    seed=st.integers(0, 10**6),
    sums=st.booleans(),
    name=st.sampled_from(
        [
            "fifo",
            "backfill",
            "srtf",
            "tiresias",
            "optimus",
            "gavel-max-min",
            "optsched",
            "hadar",
            "hadare",
        ]
    ),
)
def test_every_policy_lives_with_running_gangs_on_several_types(
    instance: Instance, seed: int, sums: bool, name: str
) -> None:
    now = present(summing(instance) if sums else instance, seed)
    if now is None:
        return
    assert not find_faults(now)
    plan = simulate(now, policy(name))
    for goal in ("wct", "energy", "cost"):
        worth = checked(now, plan, goal)
        [bound] = lower_bounds(now, parse(goal))
        slack = 1e-4 * len(now.jobs) * 3 + 1e-6 * abs(worth[0])
        assert bound.value <= worth[0] + slack, (goal, bound)


def summing(instance: Instance) -> Instance:
    return replace(
        instance,
        jobs=tuple(
            replace(job, profile=replace(job.profile, mixing="sum")) for job in instance.jobs
        ),
    )


def present(instance: Instance, seed: int) -> Instance | None:
    """The instance as it stands at the first instant at which a gang runs on several types."""
    simulation = Simulation(instance, Mixing(seed))

    def mixed() -> bool:
        node = instance.cluster.node
        return any(
            len({node[slot.node].gpu_type for slot in simulation.world.hold(job_id).placement}) > 1
            for job_id in simulation.world.running
        )

    if simulation.run(until=mixed):
        return None
    event("some run on several types")
    found = snapshot(simulation.world)
    return None if simulation.world.saving else found.instance
