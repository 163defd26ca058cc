"""Gangs that say over how many nodes they may be split."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Locality, Node, Profile, Solution
from optsched.driver.view import PolicyError
from optsched.engine import solve
from optsched.objectives import parse
from optsched.physics import node_counts
from optsched.physics.catalogue import Catalogue
from optsched.physics.unschedulable import why_never
from optsched.plugins.registry import names, policy
from optsched.simulate.run import simulate
from tests.verified import checked

from .random_instances import instances

WCT = parse("wct")
SLOWER_APART = Profile(locality=Locality(rack=0.9, cluster=0.5))
CLUSTER = Cluster(
    nodes=(
        Node(name="n0", gpu_type="a", gpus=4, rack="r0"),
        Node(name="n1", gpu_type="a", gpus=4, rack="r0"),
        Node(name="n2", gpu_type="a", gpus=4, rack="r1"),
        Node(name="n3", gpu_type="a", gpus=2, rack="r1"),
    )
)


@st.composite
def split(draw: st.DrawFn) -> Instance:
    """Jobs of one to eight GPUs, some of which say on how many nodes."""
    found = []
    for i in range(draw(st.integers(1, 8))):
        least = draw(st.integers(1, 3))
        job = Job(
            id=f"j{i}",
            gpus=draw(st.integers(1, 8)),
            duration_s=float(draw(st.integers(1, 50))),
            submit_s=float(draw(st.integers(0, 60))),
            min_nodes=least,
            max_nodes=draw(st.sampled_from([least, least + 1, least + 3])),
            profile=draw(
                st.sampled_from([Profile(), SLOWER_APART, Profile(checkpoint_s=2.0, restore_s=1.0)])
            ),
        )
        found.append(job if draw(st.booleans()) else replace(job, min_nodes=1, max_nodes=None))
    able = tuple(job for job in found if why_never(Catalogue.of(CLUSTER), job) is None)
    return Instance(cluster=CLUSTER, jobs=able)


@given(
    instance=split(), name=st.sampled_from(("optsched", "fifo", "backfill", "srsf", "srtf", "las"))
)
@settings(max_examples=100)
def test_gangs_are_split_as_they_say(instance: Instance, name: str) -> None:
    plan = simulate(instance, policy(name))
    for entry in plan.jobs:
        job = instance.job[entry.id]
        for segment in entry.segments:
            parts = [slot.gpus for slot in segment.placement]
            assert sum(parts) == job.gpus
            counts = node_counts(job, sum(parts))
            assert counts is None or (len(parts) in counts and len(set(parts)) == 1)
    checked(instance, plan)


@given(instance=split(), name=st.sampled_from(names("policies")))
@settings(max_examples=60)
def test_no_policy_splits_them_otherwise(instance: Instance, name: str) -> None:
    """One that places gangs itself and cannot is stopped; what it plans is sound."""
    try:
        plan = simulate(instance, policy(name))
    except PolicyError:
        return
    checked(instance, plan)


@given(instances())
@settings(max_examples=40)
def test_what_is_on_one_node_anyway_is_planned_as_before(instance: Instance) -> None:
    jobs = tuple(
        replace(job, max_nodes=1) if job.gpus == 1 and not job.modes else job
        for job in instance.jobs
    )
    assert simulate(replace(instance, jobs=jobs), policy("srsf")) == simulate(
        instance, policy("srsf")
    )


@pytest.mark.parametrize("solver", ["cpsat", "milp"])
def test_solvers_keep_a_gang_on_one_node_and_leave_others(solver: str) -> None:
    jobs = tuple(Job(id=f"j{i}", gpus=3, duration_s=10.0 + i, max_nodes=1) for i in range(4))
    instance = Instance(cluster=CLUSTER, jobs=jobs)
    found: Solution = solve(instance, "wct", solver=solver, time_limit_s=10.0)
    assert found.plan is not None and not found.fallback
    assert all(len(one.placement) == 1 for entry in found.plan.jobs for one in entry.segments)
    wide = replace(instance, jobs=(replace(jobs[0], gpus=6, min_nodes=2, max_nodes=2),))
    other = solve(wide, "wct", solver=solver, time_limit_s=10.0)
    assert other.fallback is not None and "is to be split equally over nodes" in other.fallback
    assert other.plan is not None
    assert [slot.gpus for slot in other.plan.jobs[0].segments[0].placement] == [3, 3]


@pytest.mark.parametrize("name", ["srsf", "qssf", "optsched"])
def test_jobs_that_differ_only_in_their_nodes_are_split_each_in_its_own_way(name: str) -> None:
    apart = Job(id="apart", gpus=2, duration_s=5.0, min_nodes=2, max_nodes=2)
    jobs = (apart, replace(apart, id="any", min_nodes=1, max_nodes=None))
    for order in (jobs, jobs[::-1]):
        plan = simulate(Instance(cluster=CLUSTER, jobs=order), policy(name))
        found = {entry.id: len(entry.segments[0].placement) for entry in plan.jobs}
        assert found == {"apart": 2, "any": 1}
