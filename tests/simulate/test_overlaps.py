"""Gangs that share some of their GPUs: what happens is a plan, no bound is above it, and the
verifier refuses what cannot be."""

import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import (
    Cluster,
    Instance,
    Job,
    JobPlan,
    Mode,
    Node,
    Plan,
    Profile,
    Segment,
    Sharing,
    Slot,
)
from optsched.bounds import lower_bounds, priced_bound
from optsched.driver.world import World
from optsched.model.instance import Outage
from optsched.objectives import parse
from optsched.picture.lanes import assign_lanes
from optsched.simulate.metrics.use import gpus_held
from optsched.simulate.run import Simulation
from optsched.verify import verify
from optsched.verify_bound import recomputed
from tests.clusters import equal_nodes
from tests.verified import checked

WCT = parse("wct")


class Crowded:
    """Starts jobs at random: on free GPUs, or on GPUs of others; preempts some."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.overlapped = 0

    def decide(self, world: World) -> None:
        assert world.now_s < 10_000.0, "jobs wait for ever"
        for job_id in [*world.waiting]:
            option = self._draw.choice(world.options(job_id))
            if self._draw.random() < 0.4 and (fit := world.fit(job_id)) is not None:
                world.start(job_id, *fit)
                continue
            for node in world.cluster.nodes:
                lacks = option.mode.gpus - self._draw.randint(0, world.free.gpus_on(node.name))
                some: dict[str, int] = {}
                for other in world.running:
                    gpus = min(lacks, world.own_gpus(other).get(node.name, 0))
                    if gpus > 0:
                        some[other] = self._draw.randint(1, gpus)
                        lacks -= some[other]
                if some and world.may_overlap(job_id, option, node.name, some):
                    world.start_overlapping(job_id, option, node.name, some)
                    self.overlapped += 1
                    break
        if world.waiting and not world.running and not world.saving:
            for job_id in [*world.waiting]:
                if (fit := world.fit(job_id)) is not None:
                    world.start(job_id, *fit)
        for job_id in [*world.running]:
            if self._draw.random() < 0.1 and world.may_preempt(job_id):
                world.preempt(job_id)
        if world.running or world.waiting:
            world.wake_at(world.now_s + self._draw.choice((1.0, 7.0)))


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Two nodes of up to 4 GPUs, one of which may be lost for a while; gangs that may share."""
    nodes = tuple(
        Node(name=f"n{i}", gpus=draw(st.integers(2, 4)), gpu_memory_gib=16.0) for i in range(2)
    )
    duties = st.sampled_from((0.3, 0.5, 0.8))
    jobs = tuple(
        Job(
            id=f"j{i}",
            gpus=draw(st.integers(1, 4)),
            duration_s=draw(st.sampled_from((10.0, 25.0, 40.0))),
            submit_s=draw(st.sampled_from((0.0, 0.0, 6.0))),
            profile=Profile(
                sharing=Sharing(duty=draw(duties)),
                gpu_memory_gib=draw(st.sampled_from((4.0, 9.0))),
                startup_s=draw(st.sampled_from((0.0, 2.0))),
                checkpoint_s=draw(st.sampled_from((0.0, 3.0))),
            ),
        )
        for i in range(draw(st.integers(2, 6)))
    )
    lost = (Outage(node="n0", start_s=15.0, end_s=30.0),) if draw(st.booleans()) else ()
    return Instance(cluster=Cluster(nodes=nodes), jobs=jobs, outages=lost)


@settings(max_examples=25)
@given(instances(), st.integers(0, 999))
def test_what_happens_is_a_plan_and_no_bound_is_above_it(instance: Instance, seed: int) -> None:
    run = Simulation(instance, Crowded(seed))
    run.run()
    record = run.record()
    plan = record.plan()
    for name in ("wct", "makespan"):
        objective = parse(name)
        values = checked(instance, plan, objective, replay=True)
        for bound in lower_bounds(instance, objective):
            assert bound.value <= values[0] * (1 + 1e-9) + 1e-6
    values = verify(instance, plan, WCT, replay=True).values
    _, certificate = priced_bound(instance, WCT, steps=1)
    proved, faults = recomputed(instance, certificate)
    assert values is not None and not faults
    assert proved is not None and proved <= values[0] * (1 + 1e-9) + 1e-6
    total = float(np.sum(gpus_held(record) * (record.end_s - record.start_s)))
    assert total <= instance.cluster.total_gpus * float(record.end_s.max()) + 1e-6
    lanes = assign_lanes(instance, plan)
    assert all(block.rows > 0 for block in lanes.blocks)


def sharing_job(name: str, gpus: int, duty: float = 0.4, gib: float = 6.0) -> Job:
    profile = Profile(sharing=Sharing(duty=duty), gpu_memory_gib=gib)
    return Job(id=name, gpus=gpus, duration_s=100.0, profile=profile)


NODE = Node(name="n", gpus=4, gpu_memory_gib=16.0)


def plan_of(*jobs: Job, shares: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What the verifier says of jobs that all run from 0 to 100 on one node."""
    plan = Plan(
        jobs=tuple(
            JobPlan(
                id=job.id,
                decision="start",
                segments=(
                    Segment(
                        start_s=0.0,
                        end_s=100.0,
                        mode=Mode(gpus=job.gpus, shared_gpus=shares.get(job.id, {})),  # type: ignore[arg-type]
                        placement=(Slot(node="n", gpus=job.gpus),),  # type: ignore[arg-type]
                    ),
                ),
            )
            for job in jobs
        )
    )
    report = verify(Instance(cluster=Cluster(nodes=(NODE,)), jobs=jobs), plan, WCT)
    return sorted({violation.rule for violation in report.violations})


def test_two_gangs_on_part_of_each_other() -> None:
    a, b, c = sharing_job("a", 3), sharing_job("b", 3), sharing_job("c", 1)
    assert plan_of(a, b, shares={"a": {"b": 2}, "b": {"a": 2}}) == []
    assert plan_of(a, b, shares={"a": {"b": 1}, "b": {"a": 1}}) == ["GPUs"]  # 5 of 4
    assert "sharing" in plan_of(a, b, shares={"a": {"b": 2}, "b": {"a": 3}})
    assert "sharing" in plan_of(a, b, shares={"a": {"b": 2}})
    assert "sharing" in plan_of(a, shares={"a": {"nobody": 2}})
    three = {"a": {"b": 2, "c": 1}, "b": {"a": 2}, "c": {"a": 1}}
    assert plan_of(a, b, c, shares=three) == []
    crowd = {"a": {"b": 3, "c": 1}, "b": {"a": 3}, "c": {"a": 1}}  # 4 of the 3 that it holds
    assert "sharing" in plan_of(a, b, c, shares=crowd)
    big = sharing_job("b", 3, gib=11.0)
    assert plan_of(a, big, shares={"a": {"b": 2}, "b": {"a": 2}}) == ["GPU memory"]
    slow = sharing_job("b", 3, duty=0.9)  # each at 1 / 1.3 on the GPUs that they share
    assert plan_of(a, slow, shares={"a": {"b": 2}, "b": {"a": 2}}) == ["work"]
    half = {"a": {"b": 0.5}, "b": {"a": 0.5}}
    assert plan_of(a, b, shares=half) != []


class Told:
    """Starts `a` on n0 and n1, then lets others overlap with it."""

    name = "told"

    def __init__(self, then: Callable[[World], None]) -> None:
        self.then = then

    def decide(self, world: World) -> None:
        if not world.now_s:
            [option] = world.options("a")
            slots = tuple(Slot(node=f"n{i}", gpus=2) for i in range(2))
            world.start("a", option, slots)
            self.then(world)


def test_a_spread_gang_shares_on_each_node_and_loses_one() -> None:
    """`a` on two nodes has a partner on each; when that of `c` is lost it waits, `b` goes on."""
    nodes = equal_nodes(2, gpus=2, gpu_memory_gib=16.0)
    jobs = (sharing_job("a", 4, 0.8), sharing_job("b", 1, 0.7), sharing_job("c", 2, 0.4))

    def both(world: World) -> None:
        assert world.own_gpus("a") == {"n0": 2, "n1": 2}
        world.start_overlapping("b", world.options("b")[0], "n0", {"a": 1})
        assert not world.may_overlap("c", world.options("c")[0], "n0", {"a": 2})
        world.start_overlapping("c", world.options("c")[0], "n1", {"a": 2})
        assert world.own_gpus("a") == {"n0": 1, "n1": 0}
        assert world.rate_now("a") == pytest.approx(1 / 1.5)
        assert world.rate_now("c") == pytest.approx(1 / 1.2)

    lost = (Outage(node="n1", start_s=30.0, end_s=40.0),)
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs, outages=lost)
    run = Simulation(instance, Told(both))  # type: ignore[arg-type]
    run.run(until=lambda: run.world.now_s >= 30.0)
    assert run.world.running.keys() == {"b"} and run.world.free.gpus_on("n0") == 1
    assert run.world.rate_now("b") == 1.0
    record = run.record()
    assert gpus_held(record)[record.end_s == 30.0].sum() == pytest.approx(4.0)  # each held once
