"""Clocks, power caps and borrowed quotas in both exact solvers, by hand; what neither plans is
refused."""

from dataclasses import replace
from typing import Any

import pytest

from optsched import (
    Clock,
    Cluster,
    Instance,
    Job,
    Locality,
    Mode,
    Node,
    Plan,
    Profile,
    Running,
    Slot,
    Tenant,
)
from optsched.engine import solve
from optsched.files import check_instance
from optsched.objectives import parse
from optsched.plugins.registry import solver

pytestmark = pytest.mark.parametrize("name", ["cpsat", "milp"])
SLOWER = Profile(power_w={"a": 360.0}, clocks={900: Clock(rate=0.8, power=0.5)})
NODE = Node(name="n0", gpu_type="a", gpus=4)
WCT = parse("wct")


def optimal(name: str, objective: str, instance: Instance) -> tuple[float, Plan]:
    """Value and plan of an instance that the solver itself solves to its optimum."""
    check_instance(instance)
    assert solver(name).supports(instance, parse(objective)) is None
    solution = solve(instance, objective, time_limit_s=20, solver=name, workers=1, isolate=False)
    assert (solution.status, solution.fallback) == ("optimal", None), solution
    assert solution.plan is not None and solution.value is not None
    return solution.value, solution.plan


def clocks(plan: Plan) -> list[int | None]:
    return [entry.segments[-1].mode.clock_mhz for entry in plan.jobs]


def test_energy_is_saved_at_a_slower_clock(name: str) -> None:
    instance = Instance(
        cluster=Cluster(nodes=(NODE,)),
        jobs=(Job(id="j", gpus=2, duration_s=800.0, profile=SLOWER),),
    )
    value, plan = optimal(name, "energy", instance)
    assert value == pytest.approx(1000 * 360 / 3.6e6) and clocks(plan) == [900]
    value, plan = optimal(name, "makespan", instance)
    assert value == 800.0 and clocks(plan) == [None]


def test_a_deadline_leaves_no_time_for_the_slower_clock(name: str) -> None:
    jobs = tuple(
        Job(id=f"j{s}", gpus=1, duration_s=80.0, deadline_s=s, profile=SLOWER)
        for s in (90.0, 100.0)
    )
    _, plan = optimal(name, "deadline,energy", Instance(cluster=Cluster(nodes=(NODE,)), jobs=jobs))
    assert clocks(plan) == [None, 900]


def test_a_power_cap_slows_gpus_down_or_lets_them_wait(name: str) -> None:
    jobs = tuple(Job(id=f"j{i}", gpus=2, duration_s=80.0, profile=SLOWER) for i in range(2))

    def makespan(watts: float) -> tuple[float, list[int | None]]:
        cluster = Cluster(nodes=(NODE,), resources={"power_w": watts})
        value, plan = optimal(name, "makespan", Instance(cluster=cluster, jobs=jobs))
        return value, clocks(plan)

    assert makespan(1440.0) == (80.0, [None, None])
    assert makespan(1439.0)[0] == makespan(720.0)[0] == 100.0
    assert makespan(720.0)[1] == [900, 900]
    assert makespan(719.0) == (200.0, [900, 900]), "not even one at the default clock"


def test_a_running_job_turns_down_its_clock_by_a_new_start(name: str) -> None:
    job = Job(
        id="j", gpus=1, duration_s=1000.0, profile=replace(SLOWER, checkpoint_s=2.0, startup_s=3.0)
    )
    entry = Running(
        job="j",
        mode=Mode(gpu_type="a", gpus=1),
        placement=(Slot(node="n0", gpus=1),),
        remaining_s=400.0,
    )
    instance = Instance(cluster=Cluster(nodes=(NODE,)), jobs=(job,), running=(entry,))
    value, plan = optimal(name, "energy", instance)
    assert value == pytest.approx((2 * 360 + 503 * 180) / 3.6e6)
    assert [(s.start_s, s.end_s, s.mode.clock_mhz) for s in plan.jobs[0].segments] == [
        (0, 2, None),
        (2, 505, 900),
    ]
    assert plan.jobs[0].decision == "resize"
    assert optimal(name, "wct", instance)[1].jobs[0].decision == "continue"


@pytest.mark.parametrize(
    ("borrow", "ends"),
    [
        (0, [10.0, 10.0, 20.0]),  # blue has two GPUs at a time
        (1, [10.0, 10.0, 20.0]),  # a third would be a half of its gang
        (2, [10.0, 10.0, 10.0]),
    ],
)
def test_what_may_be_borrowed_and_what_not(name: str, borrow: int, ends: list[float]) -> None:
    tenants = (
        Tenant(name="blue", gpu_quota=2, borrow_gpus=borrow),
        Tenant(name="red", gpu_quota=3),
    )
    jobs = tuple(
        Job(id=f"j{i}", gpus=gpus, duration_s=10.0, tenant=tenant)
        for i, (gpus, tenant) in enumerate([(1, "red"), (2, "blue"), (2, "blue")])
    )
    instance = Instance(cluster=Cluster(nodes=(replace(NODE, gpus=8),)), tenants=tenants, jobs=jobs)
    _, plan = optimal(name, "wct", instance)
    assert sorted(entry.completion_s for entry in plan.jobs) == ends
    another = Job(id="k", gpus=2, duration_s=10.0, tenant="red")
    _, plan = optimal(name, "wct", replace(instance, jobs=(*jobs, another)))
    assert sorted(entry.completion_s for entry in plan.jobs) == [10.0, 10.0, 10.0, 20.0], (
        "red uses its own quota"
    )


@pytest.mark.parametrize(
    ("quota", "ends"), [(4, [10.0, 10.0, 20.0, 20.0]), (5, [10.0, 10.0, 10.0, 20.0])]
)
def test_a_quota_limits_all_tenants_below_it(name: str, quota: int, ends: list[float]) -> None:
    tenants = (
        Tenant(name="group", gpu_quota=quota),
        Tenant(name="blue", parent="group", gpu_quota=2, borrow_gpus=2),
        Tenant(name="sub", parent="group"),
        Tenant(name="red", parent="sub"),
    )
    asked = [(2, "blue"), (2, "blue"), (2, "red"), (1, "group")]
    jobs = tuple(
        Job(id=f"j{i}", gpus=gpus, duration_s=10.0, tenant=tenant)
        for i, (gpus, tenant) in enumerate(asked)
    )
    instance = Instance(cluster=Cluster(nodes=(replace(NODE, gpus=8),)), tenants=tenants, jobs=jobs)
    _, plan = optimal(name, "wct", instance)
    assert sorted(entry.completion_s for entry in plan.jobs) == ends


def test_uplinks_are_refused_only_where_a_job_may_use_one(name: str) -> None:
    nodes = tuple(Node(name=f"n{i}", gpu_type="a", gpus=2, rack=f"r{i}") for i in range(2))
    job = Job(id="wide", gpus=3, duration_s=10.0, profile=Profile(network_gbps=4.0))
    limited = Cluster(nodes=nodes, rack_uplink_gbps={"r0": 5.0})

    def refusal(**fields: Any) -> str | None:
        return solver(name).supports(
            Instance(**{"cluster": limited, "jobs": (job,), **fields}), WCT
        )

    assert str(refusal()).startswith("job wide may use the uplinks of racks, which ")
    assert refusal(cluster=Cluster(nodes=nodes)) is None
    assert refusal(jobs=(replace(job, profile=Profile()),)) is None
    packed = Profile(network_gbps=4.0, locality=Locality(rack=0.5, cluster=0.0))
    assert refusal(jobs=(replace(job, gpus=2, profile=packed),)) is None
    solution = solve(Instance(cluster=limited, jobs=(job,)), "wct", time_limit_s=5, solver=name)
    assert solution.status == "optimal" and f"{name} cannot plan this: job wide" in str(
        solution.fallback
    )
