"""Jobs that can never run: exactly those without any way to run on the empty cluster, and what each
lacks."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Elastic, Job, Locality, Mode, Node, Profile, Tenant
from optsched.errors import InputError
from optsched.files import dump_instance, load_instance
from optsched.model.instance import Instance
from optsched.physics import catalogue
from optsched.physics.catalogue import Catalogue
from optsched.physics.unschedulable import why_never
from optsched.round.patterns import alternatives_of
from tests.clusters import one_node
from tests.simulate.random_instances import clusters, jobs, profiles

CLUSTER = Cluster(
    nodes=(
        Node(
            name="a0",
            gpu_type="a100",
            gpus=8,
            gpu_memory_gib=80,
            cpus=96,
            memory_gib=1024,
            rack="r0",
        ),
        Node(
            name="a1",
            gpu_type="a100",
            gpus=8,
            gpu_memory_gib=40,
            cpus=64,
            memory_gib=512,
            rack="r0",
        ),
        Node(
            name="v0",
            gpu_type="v100",
            gpus=4,
            gpu_memory_gib=32,
            cpus=32,
            memory_gib=2048,
            rack="r1",
        ),
        Node(name="host", cpus=128, memory_gib=256),
    ),
    resources={"licence": 2.0},
    budgets={"money": 50.0},
    rack_uplink_gbps={"r0": 10.0, "r1": 10.0},
)
TENANTS = (
    Tenant(name="red", gpu_quota=4),
    Tenant(name="blue", gpu_quota=2, borrow_gpus=1),
    Tenant(name="free"),
    Tenant(name="team", parent="red", gpu_quota=6),
)


def job(gpus: Any = 1, tenant: str | None = None, **more: Any) -> Job:
    own = {
        name: more.pop(name)
        for name in ("cpus", "memory_gib", "resources", "budgets", "modes")
        if name in more
    }
    duration = {} if own.get("modes") else {"duration_s": 10.0}
    return Job(id="x", gpus=gpus, tenant=tenant, profile=Profile(**more), **own, **duration)


@pytest.mark.parametrize(
    ("asks", "lacks"),
    [
        (job(24), "it needs 24 GPUs of one type, the cluster has at most 16"),
        (job(Elastic(min=17, max=64)), "it needs 17 GPUs of one type, the cluster has at most 16"),
        (job(8, rate={"v100": 1.0}), "it needs 8 GPUs of v100, the cluster has at most 4"),
        (
            job(rate={"h100": 1.0, "b200": 2.0}),
            "its profile has rates for h100, b200, the cluster has a100, v100",
        ),
        (
            job(rate={"a100": 0.0, "v100": 0.0}),
            "its profile has rates for a100, v100, the cluster has a100, v100",
        ),
        (
            Job(id="x", duration_s=1.0, profile=Profile(gpus={1: 0.0})),
            "its profile gives it the rate 0 in every mode",
        ),
        (job(gpu_memory_gib=96.0), "it needs 96 GiB of GPU memory, the largest GPU has 80"),
        (
            job(gpu_memory_gib=200.0, gpu_memory_rates={90.0: 0.5, 120.0: 0.7}),
            "it needs 90 GiB of GPU memory, the largest GPU has 80",
        ),
        (
            job(memory_gib_per_gpu=4000.0, memory_rates={3000.0: 0.5}),
            "it needs 3000 GiB of memory beside each GPU, the most on one node are the 2048 of v0",
        ),
        (
            job(12, gpu_memory_gib=60.0),
            "it needs 12 GPUs with 60 GiB of GPU memory each, there are at most 8",
        ),
        (
            job(cpus_per_gpu={100: 1.0, 200: 2.0}),
            "it needs 100 cores beside each GPU, the most on one node are the 96 of a0",
        ),
        (
            job(16, cpus_per_gpu={12: 1.0}),
            "it needs 16 GPUs with 12 cores beside each, there are at most 13",
        ),
        (
            job(8, cpus_per_gpu={16: 1.0}, locality=Locality(node=1.0, rack=0.0)),
            "it needs 8 GPUs on one node with 16 cores beside each, there are at most 6",
        ),
        (
            job(memory_gib_per_gpu=4000.0),
            "it needs 4000 GiB of memory beside each GPU, the most on one node are the 2048 of v0",
        ),
        (
            job(16, memory_gib_per_gpu=100.0),
            "it needs 16 GPUs with 100 GiB of memory beside each, there are at most 13",
        ),
        (
            job(12, locality=Locality(node=1.0, rack=0.0)),
            "it makes progress on one node only and needs 12 GPUs there, the most GPUs on one "
            "node are 8",
        ),
        (
            job(gpu_memory_gib=60.0, memory_gib_per_gpu=1500.0),
            "it needs 1 GPU with 60 GiB of GPU memory and 1500 GiB of memory for each, no node "
            "has that for one GPU",
        ),
        (
            job(8, gpu_memory_gib=60.0, cpus_per_gpu={16: 1.0}),
            "it needs 8 GPUs with 60 GiB of GPU memory and 16 cores for "
            "each, there are at most 6, and at most 6 on one node, a0",
        ),
        (job(0, cpus=256), "it needs 256 cores on one node, the most are the 128 of host"),
        (
            job(0, cpus=1, memory_gib=4096.0),
            "it needs 4096 GiB of memory on one node, the most are the 2048 of v0",
        ),
        (
            job(0, cpus=100, memory_gib=1000.0),
            "no node has both the 100 cores and the 1000 GiB of memory it asks for, of "
            "those with the memory a0 has most cores, 96",
        ),
        (job(5, "red"), "it needs 5 GPUs, the quota of red is 4"),
        (job(5, "team"), "it needs 5 GPUs, the quota of red is 4"),
        (job(4, "blue"), "it needs 4 GPUs, the quota of blue is 3 with what it may borrow"),
        (job(resources={"licence": 3.0}), "it needs 3 of licence, there is 2"),
        (job(budgets={"money": 51.0}), "it needs 51 of money, there is 50"),
        (
            job(modes=(Mode(duration_s=1.0, gpus=1, gpu_type="h100"),)),
            "it asks for h100, the cluster has a100, v100",
        ),
        (
            job(
                tenant="red",
                modes=(
                    Mode(duration_s=1.0, gpus=5),
                    Mode(duration_s=9.0, gpus=1, resources={"licence": 9.0}),
                ),
            ),
            "each of its modes needs more of some resource, budget or quota than there is",
        ),
        (job(16, network_gbps=50.0), None),
        (
            replace(job(9), max_nodes=1),
            "it needs 9 GPUs on one node, one node has room for at most 8",
        ),
        (replace(job(9), min_nodes=2, max_nodes=2), "9 GPUs cannot be split equally over 2 nodes"),
        (
            replace(job(6), min_nodes=4, max_nodes=5),
            "6 GPUs cannot be split equally over 4 to 5 nodes",
        ),
        (replace(job(8), max_nodes=1), None),
        (job(4, "red"), None),
        (job(8, "free"), None),
        (job(0, cpus=128), None),
        (job(12, cpus_per_gpu={12: 1.0}), None),
    ],
)
def test_what_a_job_lacks(asks: Job, lacks: str | None) -> None:
    assert why_never(Catalogue.of(CLUSTER, TENANTS), asks) == lacks


def test_a_gang_behind_slow_uplinks() -> None:
    nodes = tuple(Node(name=f"n{i}", gpu_type="a", gpus=4, rack=f"r{i}") for i in range(2))
    cluster = Cluster(nodes=nodes, rack_uplink_gbps={"r0": 1.0, "r1": 1.0})
    assert why_never(Catalogue.of(cluster), job(8, network_gbps=5.0)) == (
        "a gang of 8 GPUs must span racks, whose uplinks are too slow for its 5 Gbit/s"
    )
    assert why_never(Catalogue.of(cluster), job(4, network_gbps=5.0)) is None


def test_a_gang_within_a_rack() -> None:
    nodes = tuple(Node(name=f"n{i}", gpu_type="a", gpus=4, rack=f"r{i // 2}") for i in range(4))
    wide = job(16, locality=Locality(node=1.0, rack=0.9, cluster=0.0))
    assert why_never(Catalogue.of(Cluster(nodes=nodes)), wide) == (
        "it makes progress in one rack only and needs 16 GPUs there, the most GPUs in one rack "
        "are 8"
    )


@pytest.mark.parametrize(
    ("cluster", "asks", "lacks"),
    [
        (Cluster(), job(), "it asks for GPUs, no node has any"),
        (Cluster(), job(0, cpus=1), "it asks for cores and memory, there is no node"),
        (one_node(cpus=4), job(), "it asks for GPUs, no node has any"),
        (
            one_node(gpus=1),
            job(modes=(Mode(duration_s=1.0, gpus=1, gpu_type="a"),)),
            "it asks for a, the cluster has GPUs of no named type",
        ),
    ],
)
def test_small_clusters(cluster: Cluster, asks: Job, lacks: str) -> None:
    assert why_never(Catalogue.of(cluster), asks) == lacks


@st.composite
def demands(draw: Any) -> tuple[Cluster, tuple[Tenant, ...], Job]:
    cluster = draw(clusters())
    profile = draw(profiles())
    if draw(st.booleans()):
        profile = replace(
            profile,
            gpu_memory_gib=draw(st.sampled_from([0.0, 20.0, 90.0])),
            memory_gib_per_gpu=draw(st.sampled_from([0.0, 5.0, 30.0])),
            locality=draw(
                st.sampled_from([None, Locality(node=1.0, rack=0.0), Locality(cluster=0.0)])
            ),
        )
    found = draw(jobs(cluster, 0, ["t", "u"], profile, 0.0))
    if not found.modes and draw(st.booleans()):
        found = replace(found, gpus=draw(st.sampled_from([1, 3, 6, 9, 20])), cpus=0, memory_gib=0.0)
    tenants = (
        Tenant(
            name="t", gpu_quota=draw(st.integers(0, 6)), borrow_gpus=draw(st.sampled_from([0, 1]))
        ),
        Tenant(name="u", parent=draw(st.sampled_from([None, "t"]))),
    )
    return cluster, tenants, found


@given(demands())
@settings(max_examples=300)
def test_never_is_having_no_pattern(asked: tuple[Cluster, tuple[Tenant, ...], Job]) -> None:
    cluster, tenants, found = asked
    reason = why_never(Catalogue.of(cluster, tenants), found)
    assert (reason is None) == bool(
        alternatives_of(Catalogue.of(cluster, tenants), found).patterns
    ), reason
    catalogue._fitting.cache_clear()
    assert why_never(Catalogue(cluster, tenants), found) == reason, (
        "the answer does not depend on what was asked before"
    )


def test_such_jobs_are_faults_unless_they_are_accepted() -> None:
    instance = Instance(cluster=CLUSTER, jobs=(job(24),))
    text = dump_instance(instance)
    with pytest.raises(
        InputError, match=r"jobs\[0\]: job x can never run: it needs 24 GPUs of one type"
    ):
        load_instance(text)
    assert load_instance(text, now_only=True) == instance
    with pytest.raises(InputError, match="appears 2 times"):
        load_instance(dump_instance(replace(instance, jobs=(job(24), job(24)))), now_only=True)
