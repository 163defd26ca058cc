"""What jobs take of shared channels, and how much they slow each other down, in physics, verifier
and simulation."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings

from optsched import (
    Cluster,
    Elastic,
    Instance,
    Job,
    JobPlan,
    Mode,
    Node,
    Plan,
    Profile,
    Running,
    Segment,
    Slot,
)
from optsched.driver.snapshot import snapshot
from optsched.driver.world import World
from optsched.files.faults import find_faults
from optsched.objectives import parse
from optsched.physics import TIME_TOLERANCE_S
from optsched.physics.catalogue import Catalogue
from optsched.physics.contention import (
    Channel,
    channel_loads,
    crowded_memory,
    may_contend,
    planned_uplinks_gbps,
    slowdown,
)
from optsched.plugins.policy import Policy
from optsched.plugins.registry import policy, solver
from optsched.simulate.run import Simulation, simulate
from optsched.verify import verify
from tests.clusters import one_node
from tests.plan_cases import contended, place
from tests.simulate.random_instances import instances
from tests.verified import checked

WCT = parse("wct")
SLOW = settings(max_examples=60)
RACKS = tuple(Node(name=f"n{i}", gpus=4, rack=f"r{i // 2}", memory_gbps=20.0) for i in range(4))
CLUSTER = Cluster(nodes=RACKS, rack_uplink_gbps={"r0": 10.0}, uplinks="shared")


def wide(name: str, duration_s: float = 100.0, gpus: int = 8, **fields: Any) -> Job:
    return Job(
        id=name, gpus=gpus, duration_s=duration_s, profile=Profile(network_gbps=8.0, **fields)
    )


@pytest.mark.parametrize(
    ("slots", "found"),
    [
        (("n0:4g0c",), {("memory", "n0"): 12.0}),
        (("n0:2g0c", "n1:2g0c"), {("memory", "n0"): 6.0, ("memory", "n1"): 6.0}),
        (
            ("n1:3g0c", "n2:1g0c"),
            {("uplink", "r0"): 8.0, ("memory", "n1"): 9.0, ("memory", "n2"): 3.0},
        ),
    ],
)
def test_what_a_gang_takes_of_channels(slots: tuple[str, ...], found: dict[Channel, float]) -> None:
    job = Job(id="j", gpus=4, duration_s=1.0, profile=Profile(network_gbps=8.0, memory_gbps=3.0))
    assert channel_loads(CLUSTER, job, Mode(gpus=4), place(*slots)) == found
    only_memory = {channel: gbps for channel, gbps in found.items() if channel[0] == "memory"}
    assert (
        channel_loads(replace(CLUSTER, uplinks="reserved"), job, Mode(gpus=4), place(*slots))
        == only_memory
    )


def test_a_cpu_only_job_takes_its_bandwidth_once() -> None:
    job = Job(id="j", gpus=0, cpus=3, duration_s=1.0, profile=Profile(memory_gbps=3.0))
    assert channel_loads(CLUSTER, job, Mode(cpus=3), place("n0:0g3c")) == {("memory", "n0"): 3.0}


@pytest.mark.parametrize(
    ("crowding", "expected"),
    [
        ({}, 1.0),
        ({("uplink", "a"): 0.9, ("memory", "n"): 1.0}, 1.0),
        ({("uplink", "a"): 3.0, ("uplink", "b"): 2.0}, 1 + 0.5 * 2),
        (
            {("uplink", "a"): 3.0, ("memory", "n"): 1.5, ("memory", "m"): 2.0},
            1 + 0.5 * 2 + 0.25 * 1,
        ),
    ],
)
def test_the_most_crowded_of_each_kind_counts(
    crowding: dict[Channel, float], expected: float
) -> None:
    assert slowdown(Profile(network_duty=0.5, memory_duty=0.25), crowding) == expected


def test_who_may_contend() -> None:
    assert may_contend(Instance(cluster=CLUSTER, jobs=(wide("a"),)))
    assert not may_contend(Instance(cluster=CLUSTER, jobs=(Job(id="a", duration_s=1.0),)))
    assert not may_contend(
        Instance(cluster=replace(CLUSTER, uplinks="reserved"), jobs=(wide("a"),))
    )
    memory = Job(id="a", duration_s=1.0, profile=Profile(memory_gbps=1.0))
    assert may_contend(Instance(cluster=replace(CLUSTER, uplinks="reserved"), jobs=(memory,)))


def test_faults_of_channels() -> None:
    none = replace(
        CLUSTER,
        rack_uplink_gbps={"r0": 0.0},
        nodes=(replace(RACKS[0], memory_gbps=0.0), *RACKS[1:]),
    )
    assert [fault.path for fault in find_faults(Instance(cluster=none))] == [
        "cluster.rack_uplink_gbps.r0",
        "cluster.nodes[0].memory_gbps",
    ]
    assert len(find_faults(Instance(cluster=replace(none, uplinks="reserved")))) == 1


# ---------------------------------------------------------------------------------------------- in
# virtual time


@pytest.mark.parametrize(
    ("uplinks", "ends"), [("reserved", [100.0, 200.0]), ("shared", [148.0, 168.0])]
)
def test_fifo_waits_for_a_reserved_uplink_and_oversubscribes_a_shared_one(
    uplinks: Any, ends: list[float]
) -> None:
    """Three racks of two GPUs, gangs of three: the two meet in one rack. Its uplink has 10, each
    takes 8. `first` is alone until 20 s; together both go at 10/16, so `first` needs 80 x 1.6 = 128
    s more. `second` has then done 80 s."""
    nodes = tuple(Node(name=f"n{i}", gpus=2, rack=f"r{i}") for i in range(3))
    cluster = Cluster(
        nodes=nodes, rack_uplink_gbps=dict.fromkeys(("r0", "r1", "r2"), 10.0), uplinks=uplinks
    )
    instance = Instance(
        cluster=cluster,
        jobs=(wide("first", gpus=3), replace(wide("second", gpus=3), submit_s=20.0)),
    )
    plan = simulate(instance, policy("fifo"))
    checked(instance, plan)
    assert [entry.completion_s for entry in plan.jobs] == pytest.approx(ends)


def test_two_gangs_over_one_uplink_by_hand() -> None:
    """r0 has 10, each takes 8. `first` alone until 20 s; together both go at 10/16, so `first` is
    done 80 / (10/16) = 128 s later, at 148 s. `second` has then done 80 s and goes on alone: 168
    s."""
    nodes = (
        Node(name="a", gpus=2, rack="r0"),
        Node(name="b", gpus=1, rack="r1"),
        Node(name="c", gpus=1, rack="r2"),
    )
    cluster = Cluster(nodes=nodes, rack_uplink_gbps={"r0": 10.0}, uplinks="shared")
    first, second = wide("first", gpus=2), replace(wide("second", gpus=2), submit_s=20.0)
    instance = Instance(cluster=cluster, jobs=(first, second))

    class Spread:
        name = "spread"
        title = "each gang on a and one other node"

        def decide(self, world: World) -> None:
            for job_id in list(world.waiting):
                other = "b" if job_id == "first" else "c"
                option, there = (
                    world.fastest(job_id),
                    (Slot(node="a", gpus=1), Slot(node=other, gpus=1)),
                )
                if job_id == "second":
                    assert world.uplink_load_gbps("r0") == 8.0 and world.uplink_users("r0") == [
                        "first"
                    ]
                    assert world.slowdown_on(job_id, option, there) == pytest.approx(1.6)
                    assert world.slowed_by(job_id, option, there) == {"first": pytest.approx(1.6)}
                    assert world.expected_run_s(job_id, option, there) == pytest.approx(160.0)
                    assert (
                        world.slowed_by(
                            job_id, option, (Slot(node="b", gpus=1), Slot(node="c", gpus=1))
                        )
                        == {}
                    )
                world.start(job_id, option, there)
            if len(world.running) == 2:
                assert world.expected_release_s("first") == pytest.approx(148.0)
                assert world.slowdown("first") == world.slowdown("second") == pytest.approx(1.6)
                round_ = snapshot(world).instance
                assert planned_uplinks_gbps(round_) == {"r0": 16.0}

    rule: Policy = Spread()
    plan = simulate(instance, rule)
    assert [entry.completion_s for entry in plan.jobs] == pytest.approx([148.0, 168.0])
    assert [len(entry.segments) for entry in plan.jobs] == [1, 1], "nobody stops, so nothing is cut"
    checked(instance, plan)
    early = Plan(
        jobs=(
            plan.jobs[0],
            JobPlan(
                id="second",
                decision="wait",
                segments=(replace(plan.jobs[1].segments[0], end_s=167.9),),
            ),
        )
    )
    assert {violation.rule for violation in verify(instance, early, WCT).violations} == {"work"}


def test_memory_bandwidth_slows_down_and_is_never_refused() -> None:
    """Three jobs take 12 each of 20: all go at 20/36 and end at 10 x 36/20 = 18 s."""
    jobs = tuple(
        Job(id=f"j{i}", gpus=1, duration_s=10.0, profile=Profile(memory_gbps=12.0))
        for i in range(3)
    )
    instance = Instance(cluster=Cluster(nodes=RACKS[:1]), jobs=jobs)
    simulation = Simulation(instance, policy("fifo"))
    simulation.run()
    plan = simulation.record().plan()
    assert [entry.completion_s for entry in plan.jobs] == pytest.approx([18.0] * 3)
    checked(instance, plan)
    assert simulation.world.memory_load_gbps("n0") == 0.0


def test_a_preemption_loses_work_at_the_rate_it_was_done() -> None:
    """Both take 20 of 20, so at 1/2 from the start; the one preempted at 10 s saves every 4 s and
    has lost 2 s, which were 1 s of work: 4 of its 20 s are done. The other ends at 10 + 15 = 25 s,
    then it needs 16 s more."""
    slow = Profile(memory_gbps=20.0, checkpoint_every_s=4.0)
    jobs = tuple(Job(id=name, gpus=1, duration_s=20.0, profile=slow) for name in ("goes", "stays"))
    instance = Instance(cluster=Cluster(nodes=RACKS[:1]), jobs=jobs)

    class Once:
        name = "once"
        title = "preempts once"

        def decide(self, world: World) -> None:
            if world.now_s == 0.0:
                for job_id in list(world.waiting):
                    world.start(job_id, *(world.fit(job_id) or pytest.fail()))
                world.wake_at(10.0)
            elif world.now_s == 10.0:
                if "goes" in world.running:
                    world.preempt("goes")
                    world.wake_at(11.0)
            elif world.now_s >= 25.0 and world.waiting:
                world.start("goes", *(world.fit("goes") or pytest.fail()))

    plan = simulate(instance, Once())
    assert [entry.completion_s for entry in plan.jobs] == pytest.approx([41.0, 25.0])
    checked(instance, plan)


@given(instances())
@SLOW
def test_every_slowed_plan_passes_the_verifier_and_bounds_the_rate(instance: Instance) -> None:
    assume(may_contend(instance))
    simulation = Simulation(instance, policy("srtf"))
    world = simulation.world

    def sound() -> bool:
        for job_id in world.running:
            job, run = world.job(job_id), world._state[job_id].run
            assert run is not None
            if run.end_s <= world.now_s + TIME_TOLERANCE_S:
                continue  # it ends this instant, and is not looked at again
            loads = channel_loads(world.cluster, job, run.mode, run.placement)
            held = [
                (world.job(name), world._state[name].run)
                for name in (*world.running, *world.saving)
            ]
            total = {
                channel: sum(
                    channel_loads(world.cluster, other, its.mode, its.placement).get(channel, 0.0)
                    for other, its in held
                    if its is not None
                )
                for channel in loads
            }
            capacity = {
                ("uplink", rack): gbps for rack, gbps in world.cluster.rack_uplink_gbps.items()
            } | {("memory", node.name): node.memory_gbps for node in world.cluster.nodes}
            crowding = {channel: total[channel] / (capacity[channel] or 0.0) for channel in loads}
            assert run.slowdown == pytest.approx(slowdown(job.profile, crowding))
            assert run.rate == pytest.approx(run.full_rate / run.slowdown)
        return False

    simulation.run(until=sound)
    checked(instance, simulation.record().plan())


# -------------------------------------------------------------------------------------------------
# who plans


def test_a_gang_never_uses_an_uplink_slower_than_its_own_traffic() -> None:
    job = Job(id="j", gpus=8, duration_s=10.0, profile=Profile(network_gbps=10.5))
    assert Catalogue.of(CLUSTER).options(replace(job, gpus=9)) == ()
    instance, plan = contended()
    fast = replace(
        instance,
        jobs=tuple(
            replace(job, profile=replace(job.profile, network_gbps=10.5)) for job in instance.jobs
        ),
    )
    assert "uplink" in {violation.rule for violation in verify(fast, plan, WCT).violations}


def test_planned_uplinks_are_what_is_there_or_what_runs() -> None:
    entry = Running(
        job="a", mode=Mode(gpus=8), placement=place("n0:4g0c", "n2:4g0c"), remaining_s=5.0
    )
    jobs = (wide("a"), wide("b", gpus=4), wide("c"))
    both = (
        entry,
        Running(job="b", mode=Mode(gpus=4), placement=place("n1:2g0c", "n3:2g0c"), remaining_s=5.0),
    )
    assert planned_uplinks_gbps(Instance(cluster=CLUSTER, jobs=jobs)) == {"r0": 10.0}
    assert planned_uplinks_gbps(Instance(cluster=CLUSTER, jobs=jobs, running=both)) == {"r0": 16.0}
    reserved = replace(CLUSTER, uplinks="reserved")
    assert planned_uplinks_gbps(Instance(cluster=reserved, jobs=jobs, running=both)) == {"r0": 10.0}


@pytest.mark.parametrize(
    ("gbps", "gpus", "says"),
    [
        (2.5, 4, None),  # four GPUs take 10 of 10
        (2.6, 4, "10.4"),
        (5.0, 2, None),
        (5.1, 2, "10.2"),
        (11.0, Elastic(min=1, max=1), "11"),
    ],
)
def test_memory_that_could_be_exceeded(gbps: float, gpus: int | Elastic, says: str | None) -> None:
    node = Node(name="n", gpus=4, memory_gbps=10.0)
    job = Job(id="j", gpus=gpus, duration_s=10.0, profile=Profile(memory_gbps=gbps))
    instance = Instance(cluster=Cluster(nodes=(node,)), jobs=(job,))
    found = crowded_memory(instance)
    assert (found is None) == (says is None) and (says or "") in (found or "")
    for name in ("cpsat", "milp"):
        reason = solver(name).supports(instance, WCT)
        assert (reason is None) == (says is None) and "node n" in (reason or "node n")


def test_segments_of_solvers_need_no_cut() -> None:
    """One segment of a gang, or the same cut at any instant, is the same plan to the verifier."""
    instance, plan = contended()
    first = plan.jobs[0].segments[0]
    cut = tuple(
        Segment(start_s=a, end_s=b, mode=first.mode, placement=first.placement)
        for a, b in ((0, 7), (7, 30), (30, 35))
    )
    other = Plan(jobs=(replace(plan.jobs[0], segments=cut), *plan.jobs[1:]))
    assert verify(instance, plan, WCT).ok and verify(instance, other, WCT).ok


def test_a_cpu_job_takes_less_bandwidth_in_a_slower_mode() -> None:
    """It streams the same in all; a job with GPUs takes what its profile says in each mode."""
    modes = Mode(cpus=8, duration_s=100.0), Mode(cpus=2, duration_s=400.0)
    job = Job(id="a", modes=modes, profile=Profile(memory_gbps=80.0))
    cluster = one_node(cpus=8, memory_gbps=50.0)
    there = (Slot(node="n", cpus=8),)
    loads = [channel_loads(cluster, job, mode, there) for mode in modes]
    assert loads == [{("memory", "n"): 80.0}, {("memory", "n"): 20.0}]
    with_gpus = Job(id="b", modes=(Mode(gpus=1, duration_s=9.0),), profile=job.profile)
    gpu = one_node(gpus=1, memory_gbps=50.0)
    assert channel_loads(gpu, with_gpus, with_gpus.modes[0], (Slot(node="n", gpus=1),)) == {
        ("memory", "n"): 80.0
    }
    # The fastest mode is what could crowd a node, wherever it is listed.
    for order, gbps in ((modes, 80.0), (modes[::-1], 320.0)):
        own = replace(job, modes=order)
        assert f"{gbps:g} Gbit/s" in (crowded_memory(Instance(cluster=cluster, jobs=(own,))) or "")
