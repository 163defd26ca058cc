"""The simulator itself: order of events, exact progress, and what it refuses."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from optsched import (
    Clock,
    Cluster,
    Instance,
    Job,
    Mode,
    Node,
    Plan,
    Profile,
    Running,
    Sharing,
    Slot,
    Tenant,
)
from optsched.driver.view import PolicyError
from optsched.driver.world import World
from optsched.errors import OptschedError
from optsched.objectives import parse
from optsched.plugins.registry import names, policy, solver
from optsched.plugins.solver import Report, Request, ignore
from optsched.simulate.events import Events, Kind
from optsched.simulate.run import StalledError, simulate
from tests.clusters import one_node
from tests.verified import checked

WCT = parse("wct")
ONE = one_node("n0", gpu_type="a", gpus=1)


def test_events_come_by_time_then_kind_then_sequence() -> None:
    events = Events([(5.0, 1, 1), (5.0, 0, 0), (2.0, 2, 2), (9.0, 3, 3)])
    events.push(5.0, Kind.WAKE)
    events.push(5.0, Kind.SAVED, 7, 1)
    events.push(5.0, Kind.ENDED, 9, 1)
    events.push(5.0, Kind.ENDED, 8, 1)
    found = []
    while batch := events.pop_instant():
        found.append([(time_s, kind, index) for time_s, kind, _, index, _ in batch])
    assert found == [
        [(2.0, Kind.ARRIVED, 2)],
        [
            (5.0, Kind.ENDED, 9),
            (5.0, Kind.ENDED, 8),
            (5.0, Kind.SAVED, 7),
            (5.0, Kind.ARRIVED, 0),
            (5.0, Kind.ARRIVED, 1),
            (5.0, Kind.WAKE, -1),
        ],
        [(9.0, Kind.ARRIVED, 3)],
    ]


class Scripted:
    """A policy made of one function."""

    name = "scripted"
    title = "does as it is told"

    def __init__(self, act: Callable[[World], None]) -> None:
        self._act = act

    def decide(self, world: World) -> None:
        self._act(world)


def start_all(world: World) -> None:
    for job_id in list(world.waiting):
        found = world.fit(job_id)
        if found is not None:
            world.start(job_id, *found)


def test_a_policy_that_never_starts_a_job_is_named() -> None:
    with pytest.raises(StalledError, match="does not start job j, which fits"):
        simulate(
            Instance(cluster=ONE, jobs=(Job(id="j", duration_s=1.0),)), Scripted(lambda world: None)
        )


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda world: world.start("k", *world.fit("k")), "does not wait"),
        (
            lambda world: [world.start(j, *f) for f in [world.fit("j")] for j in ("j", "i")],
            "not enough room",
        ),
        (lambda world: world.preempt("j"), "may not be preempted"),
        (lambda world: world.wake_at(world.now_s), "asked at 0 s to be woken at 0 s"),
        (lambda world: world.hold("j"), "holds nothing"),
    ],
)
def test_what_cannot_be_is_refused(act: Callable[[World], None], message: str) -> None:
    jobs = (
        Job(id="i", duration_s=1.0),
        Job(id="j", duration_s=1.0),
        Job(id="k", duration_s=1.0, submit_s=5.0),
    )
    with pytest.raises(PolicyError, match=message):
        simulate(Instance(cluster=ONE, jobs=jobs), Scripted(act))


def test_partner_left_alone_goes_on_faster() -> None:
    profile = Profile(sharing=Sharing(duty=1.0))
    jobs = tuple(Job(id=name, duration_s=20.0, profile=profile, submit_s=-9.0) for name in "ab")
    running = tuple(
        Running(
            job=name,
            mode=Mode(gpu_type="a", gpus=1, share_with=other),
            placement=(Slot(node="n0", gpus=1),),
            remaining_s=left_s,
        )
        for name, other, left_s in (("a", "b", 4.0), ("b", "a", 10.0))
    )
    instance = Instance(cluster=ONE, jobs=jobs, running=running)
    plan = simulate(instance, Scripted(start_all))
    checked(instance, plan)
    # both at half speed until a is done at 8, then b has 6 left at full speed
    assert [entry.completion_s for entry in plan.jobs] == [8.0, 14.0]
    assert [segment.mode.share_with for segment in plan.jobs[1].segments] == ["a", None]


def test_periodic_checkpoint_loses_what_came_after_it() -> None:
    jobs = (Job(id="a", duration_s=100.0, profile=Profile(checkpoint_every_s=30.0, restore_s=2.0)),)

    def stop_at_50(world: World) -> None:
        if world.now_s == 0.0:
            start_all(world)
            world.wake_at(50.0)
        elif world.now_s == 50.0:
            assert world.remaining_work_s("a") == 50.0
            world.preempt("a")
            assert world.remaining_work_s("a") == 70.0
            world.wake_at(60.0)
        else:
            start_all(world)

    plan = simulate(Instance(cluster=ONE, jobs=jobs), Scripted(stop_at_50))
    assert [(s.start_s, s.end_s) for s in plan.jobs[0].segments] == [(0.0, 50.0), (60.0, 132.0)]


def test_successor_starts_when_its_predecessors_are_done() -> None:
    jobs = (
        Job(id="c", duration_s=1.0, after=("a", "b")),
        Job(id="a", duration_s=2.0),
        Job(id="b", duration_s=3.0),
    )
    instance = Instance(cluster=ONE, jobs=jobs)
    own_clock = ("gavel-", "a-srpt")  # rounds; a virtual machine that serves one job at a time
    at_events = [name for name in names("policies") if not name.startswith(own_clock)]
    starts_s = {
        name: simulate(instance, policy(name)).jobs[0].segments[0].start_s for name in at_events
    }
    assert starts_s == dict.fromkeys(at_events, 5.0)


def test_quota_and_resources_hold_jobs_back() -> None:
    cluster = Cluster(nodes=(Node(name="n0", gpus=8),), resources={"licence": 1.0})
    jobs = (
        Job(id="a", gpus=2, duration_s=3.0, tenant="t"),
        Job(id="b", gpus=2, duration_s=3.0, tenant="t"),
        Job(id="c", gpus=1, duration_s=5.0, resources={"licence": 1.0}),
        Job(id="d", gpus=1, duration_s=5.0, resources={"licence": 0.5}),
    )
    instance = Instance(cluster=cluster, jobs=jobs, tenants=(Tenant(name="t", gpu_quota=3),))
    plan = simulate(instance, policy("sjf"))
    checked(instance, plan)
    assert [entry.segments[0].start_s for entry in plan.jobs] == [0.0, 3.0, 0.0, 5.0]


def test_the_power_cap_uplinks_and_loans_hold_jobs_back() -> None:
    nodes = tuple(Node(name=f"n{i}", gpu_type="a", gpus=4, rack=f"r{i}") for i in range(4))
    cluster = Cluster(
        nodes=nodes,
        resources={"power_w": 4000.0},
        rack_uplink_gbps=dict.fromkeys(["r0", "r1"], 10.0),
    )
    hot, wide = Profile(power_w={"a": 500.0}), Profile(network_gbps=6.0)
    jobs = (
        Job(id="hot", gpus=5, duration_s=3.0, profile=hot),
        Job(
            id="hotter",
            gpus=4,
            duration_s=2.0,
            profile=replace(hot, clocks={900: Clock(rate=0.5, power=0.7)}),
        ),
        Job(id="wide", gpus=5, duration_s=3.0, profile=wide),
    )
    plan = simulate(Instance(cluster=cluster, jobs=jobs), policy("fifo"))
    checked(Instance(cluster=cluster, jobs=jobs), plan)
    assert [entry.completion_s for entry in plan.jobs] == [3.0, 4.0, 3.0]
    assert plan.jobs[1].segments[0].mode.clock_mhz == 900
    several = tuple(Job(id=f"w{i}", gpus=5, duration_s=2.0 + i, profile=wide) for i in range(3))
    narrow = Instance(
        cluster=replace(cluster, nodes=(*nodes[:2], replace(nodes[2], gpus=9))), jobs=several
    )
    plan = simulate(narrow, policy("fifo"))
    checked(narrow, plan)
    assert [(e.segments[0].start_s, len(e.segments[0].placement)) for e in plan.jobs] == [
        (0.0, 1),
        (0.0, 2),
        (2.0, 1),
    ]
    tenants = (Tenant(name="t", gpu_quota=2, borrow_gpus=2), Tenant(name="u", gpu_quota=2))
    jobs = tuple(
        Job(
            id=f"{tenant}{i}",
            gpus=1,
            duration_s=1.0 + i,
            tenant=tenant,
            submit_s=0.1 * (tenant == "u"),
        )
        for i, tenant in enumerate("ttttu")
    )
    lent = Instance(cluster=cluster, jobs=jobs, tenants=tenants)
    plan = simulate(lent, policy("fifo"))
    checked(lent, plan)
    assert [entry.segments[0].start_s for entry in plan.jobs] == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_dear_modes_are_not_taken_where_others_need_the_budget() -> None:
    modes = (
        Mode(duration_s=1.0, budgets={"money": 3.0}),
        Mode(duration_s=9.0, budgets={"money": 1.0}),
    )
    jobs = tuple(Job(id=f"j{i}", modes=modes) for i in range(4))
    instance = Instance(cluster=Cluster(budgets={"money": 6.0}), jobs=jobs)
    plan = simulate(instance, policy("fifo"))
    checked(instance, plan)
    assert [entry.completion_s for entry in plan.jobs] == [1.0, 9.0, 9.0, 9.0]


def solved(name: str, instance: Instance) -> tuple[list[Plan], list[str]]:
    plans: list[Plan] = []
    notes: list[str] = []
    report = Report(plan=plans.append, bound=ignore, infeasible=ignore, note=notes.append)
    solver(name).solve(Request(instance=instance, objective=WCT, time_limit_s=10.0), report)
    return plans, notes


def test_policies_are_solvers() -> None:
    instance = Instance(
        cluster=ONE, jobs=(Job(id="a", duration_s=2.0), Job(id="b", duration_s=1.0))
    )
    for name in names("policies"):
        found = solver(name)
        assert (found.name, found.guarantee, found.needs) == (name, "none", ())
        assert found.title
        assert found.supports(instance, WCT) is None
        plans, notes = solved(name, instance)
        assert len(plans) == 1 and not notes
        checked(instance, plans[0])


def test_no_plan_but_a_reason_where_the_budgets_do_not_last() -> None:
    cluster = Cluster(nodes=ONE.nodes, budgets={"money": 1.5})
    jobs = tuple(Job(id=f"j{i}", duration_s=1.0, budgets={"money": 1.0}) for i in range(2))
    plans, notes = solved("sjf", Instance(cluster=cluster, jobs=jobs))
    assert not plans
    assert len(notes) == 1 and "budgets" in notes[0]


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(OptschedError, match="unknown"):
        solver("no-such-policy")
