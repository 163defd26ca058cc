"""Philly: locality that waiting relaxes, quotas with borrowing and reclaim, and the two kinds of
delay, by hand."""

import pytest

from optsched import (
    Cluster,
    Failure,
    Instance,
    Job,
    Locality,
    Mode,
    Node,
    Profile,
    Running,
    Slot,
    Tenant,
)
from optsched.files import check_instance
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched_solvers.policies.philly import size_class
from tests.policies.verified import plan_of, times

FOUR = (Node(name="n0", gpus=4),)
LENT = (Tenant(name="a", gpu_quota=2, borrow_gpus=2), Tenant(name="b", gpu_quota=2))
SAVES = Profile(checkpoint_s=5.0)
SPREADS = Profile(locality=Locality(node=1.0, rack=0.9, cluster=0.7))


def nodes(*racks: str) -> tuple[Node, ...]:
    return tuple(Node(name=f"n{i}", gpus=2, rack=rack) for i, rack in enumerate(racks))


@pytest.mark.parametrize(("racks", "start_s"), [("xx", 100.0), ("xy", 200.0)])
def test_a_gang_waits_for_each_wider_level(racks: str, start_s: float) -> None:
    # One GPU of each node is taken for long, so that a gang of two fits on one rack after one tau,
    # else after two.
    taken = tuple(
        Running(
            job=f"r{i}",
            mode=Mode(gpus=1),
            placement=(Slot(node=f"n{i}", gpus=1),),
            remaining_s=999.0,
        )
        for i in range(2)
    )
    busy = [Job(id=f"r{i}", duration_s=999.0) for i in range(2)]
    gang = Job(id="w", gpus=2, duration_s=63.0, profile=SPREADS)
    found = plan_of(
        "philly", *busy, gang, nodes=nodes(*racks), running=taken, options={"tau": "100s"}
    )
    assert times(found["w"]) == [
        (start_s, start_s + (70 if racks == "xx" else 90))
    ]  # 63 s at 0.9 or 0.7
    found = plan_of(
        "philly", *busy, gang, nodes=nodes(*racks, "z"), running=taken, options={"tau": "100s"}
    )
    assert times(found["w"]) == [(0, 63)]  # a node is left


def test_a_gang_that_fits_on_no_node_does_not_wait_for_one() -> None:
    gang = Job(id="w", gpus=4, duration_s=63.0, profile=SPREADS)
    assert times(plan_of("philly", gang, nodes=nodes("x", "x"))["w"]) == [(0, 70)]


def test_who_does_not_fit_is_overtaken_and_quotas_bind() -> None:
    tenants = (Tenant(name="a", gpu_quota=2), Tenant(name="b", gpu_quota=2))
    found = plan_of(
        "philly",
        Job(id="a1", gpus=2, duration_s=10.0, tenant="a"),
        Job(id="a2", duration_s=10.0, tenant="a"),
        Job(id="b1", duration_s=7.0, tenant="b", submit_s=1.0),
        nodes=FOUR,
        tenants=tenants,
    )
    assert [times(found[name]) for name in ("a1", "a2", "b1")] == [[(0, 10)], [(10, 20)], [(1, 8)]]


def facts_of(*jobs: Job, nodes: tuple[Node, ...], tenants: tuple[Tenant, ...]) -> dict[str, float]:
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs, tenants=tenants)
    check_instance(instance)
    rule = policy("philly")
    Simulation(instance, rule).run()
    found: dict[str, float] = rule.facts()  # type: ignore[attr-defined]
    return found


def test_both_delays_are_added_up_by_gang_size() -> None:
    tenants = (Tenant(name="a", gpu_quota=2), Tenant(name="b", gpu_quota=6))
    found = facts_of(
        Job(id="a1", gpus=2, duration_s=10.0, tenant="a"),
        Job(id="a2", gpus=1, duration_s=5.0, tenant="a"),  # waits 10 s for its quota
        Job(id="b1", gpus=2, duration_s=30.0, tenant="b"),
        Job(
            id="b2", gpus=4, duration_s=5.0, tenant="b", submit_s=4.0
        ),  # within its quota; waits 26 s for GPUs
        nodes=FOUR,
        tenants=tenants,
    )
    assert found["fair_share_delay_s"] == pytest.approx(10) == found["fair_share_delay_1_gpus_s"]
    assert (
        found["fragmentation_delay_s"]
        == pytest.approx(26)
        == found["fragmentation_delay_2_4_gpus_s"]
    )
    assert found["fragmentation_delay_5_8_gpus_s"] == found["fair_share_delay_over_8_gpus_s"] == 0


def test_the_delay_changes_its_kind_when_the_tenant_gives_gpus_back() -> None:
    # Until 10 the tenant is over its quota with it (2 + 2 > 2), then the GPUs are another's until
    # 30.
    tenants = (Tenant(name="a", gpu_quota=2), Tenant(name="b", gpu_quota=4))
    found = facts_of(
        Job(id="a1", gpus=2, duration_s=10.0, tenant="a"),
        Job(id="b1", gpus=2, duration_s=40.0, tenant="b"),
        Job(id="b2", gpus=1, duration_s=20.0, tenant="b", submit_s=0.0, priority=1),
        Job(id="a2", gpus=2, duration_s=5.0, tenant="a", submit_s=1.0),
        nodes=(Node(name="n0", gpus=5),),
        tenants=tenants,
    )
    assert (found["fair_share_delay_s"], found["fragmentation_delay_s"]) == (9, 0)
    found = facts_of(
        Job(id="a1", gpus=2, duration_s=10.0, tenant="a"),
        Job(id="b1", gpus=2, duration_s=30.0, tenant="b"),
        Job(id="b2", gpus=1, duration_s=30.0, tenant="b", submit_s=2.0),
        Job(id="a2", gpus=2, duration_s=5.0, tenant="a", submit_s=1.0),
        Job(id="b3", gpus=1, duration_s=30.0, tenant="b", submit_s=9.0),
        nodes=FOUR,
        tenants=tenants,
    )
    # b2 waits 2 to 10, b3 9 to 30; a2, first in order, starts at 10 and leaves at 15, when both
    # start.
    assert found["fair_share_delay_s"] == 9 and found["fragmentation_delay_s"] == (15 - 2) + (
        15 - 9
    )


def test_borrowed_gpus_are_reclaimed_from_the_latest_arrivals() -> None:
    borrowers = [
        Job(id=f"a{i}", duration_s=100.0, tenant="a", submit_s=float(i), profile=SAVES)
        for i in range(4)
    ]
    owner = Job(id="b", gpus=1, duration_s=20.0, tenant="b", submit_s=10.0)
    found = plan_of("philly", *borrowers, owner, nodes=FOUR, tenants=LENT)
    assert times(found["b"]) == [(15, 35)]
    assert times(found["a3"]) == [
        (3, 15),
        (35, 128),
    ]  # it did 7 s; it borrows again when b has ended
    assert all(len(found[f"a{i}"].segments) == 1 for i in range(3))


def test_nothing_is_reclaimed_below_the_use_that_is_set() -> None:
    borrowers = [
        Job(id=f"a{i}", duration_s=100.0, tenant="a", submit_s=float(i), profile=SAVES)
        for i in range(4)
    ]
    owner = Job(id="b", gpus=1, duration_s=20.0, tenant="b", submit_s=10.0)
    eight = (
        Node(name="n0", gpus=8),
    )  # all quotas together are four, so that b waits on a cluster half in use
    assert times(plan_of("philly", *borrowers, owner, nodes=eight, tenants=LENT)["b"]) == [
        (100, 120)
    ]
    found = plan_of(
        "philly", *borrowers, owner, nodes=eight, tenants=LENT, options={"reclaim": "0.4"}
    )
    assert times(found["b"]) == [(15, 35)]


def test_a_tenant_within_its_quota_is_not_starved_by_borrowers() -> None:
    # Borrowers come every second and come first in order; jobs of b have their GPUs once those are
    # saved.
    borrowers = [
        Job(id=f"a{i}", duration_s=60.0, tenant="a", submit_s=float(i), profile=SAVES)
        for i in range(60)
    ]
    owners = [
        Job(id=f"b{i}", gpus=2, duration_s=30.0, tenant="b", submit_s=20.0 + 40 * i)
        for i in range(5)
    ]
    found = plan_of("philly", *borrowers, *owners, nodes=FOUR, tenants=LENT)
    assert all(found[job.id].segments[0].start_s <= job.submit_s + 5.0 + 1e-6 for job in owners)


def test_a_job_that_keeps_failing_comes_last() -> None:
    one = (Node(name="n0", gpus=1),)
    jobs = [
        Job(id="bad", duration_s=10.0),
        Job(id="good", duration_s=10.0),
        Job(id="late", duration_s=10.0),
    ]
    failures = tuple(Failure(job="bad", work_s=2.0) for _ in range(2))
    found = plan_of("philly", *jobs, nodes=one, failures=failures, options={"retries": "1"})
    assert times(found["bad"]) == [(0, 2), (2, 4), (24, 34)]
    found = plan_of("philly", *jobs, nodes=one, failures=failures, options={"retries": "2"})
    assert times(found["bad"])[-1] == (4, 14)


@pytest.mark.parametrize(
    ("gpus", "name"), [(1, "1"), (2, "2_4"), (4, "2_4"), (5, "5_8"), (8, "5_8"), (9, "over_8")]
)
def test_gang_sizes_are_classed_as_in_the_paper(gpus: int, name: str) -> None:
    assert size_class(gpus) == name
