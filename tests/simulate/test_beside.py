"""Jobs started on the GPUs of running ones: sound plans, nothing lost, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import (
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
from optsched.objectives import parse
from optsched.physics import placed_rate
from optsched.simulate.run import simulate
from optsched.simulate.virtual import VirtualWorld
from tests.clusters import equal_nodes
from tests.verified import checked

from .free_rows import left_of, own_quotas
from .random_instances import instances
from .sharing_policy import StartsBeside

WCT = parse("wct")
PAIRS = (
    Sharing(duty=0.3),
    Sharing(duty=0.9),
    Sharing(duty=0.6, partners={"m0": 0.85, "m1": 0.4}),
    Sharing(partners={"m0": 1.0, "m2": 0.0}),
    None,
)


@st.composite
def sharing_instances(draw: Any) -> Instance:
    """Random instances whose jobs have measured and unmeasured rates beside each other."""
    instance = draw(instances())
    profiles: dict[int, Profile] = {}
    jobs = []
    for job in instance.jobs:
        if job.id in ("p0", "p1"):
            jobs.append(job)  # they share at the start
            continue
        if id(job.profile) not in profiles:
            name = f"m{len(profiles)}"
            profiles[id(job.profile)] = replace(
                job.profile, name=name, sharing=draw(st.sampled_from(PAIRS))
            )
        jobs.append(replace(job, profile=profiles[id(job.profile)]))
    return replace(instance, jobs=tuple(jobs))


def held_gpus(world: World) -> int:
    """GPUs that nobody could take now."""
    return sum(world.free.layout.gpus) - sum(world.free._gpus)


def gpu_s(plan: Plan) -> float:
    """GPU-seconds of a plan, those of a pair once."""
    return math.fsum(
        (segment.end_s - segment.start_s)
        * segment.mode.gpus
        / (1 if segment.mode.share_with is None else 2)
        for entry in plan.jobs
        for segment in entry.segments
    )


@given(instance=sharing_instances(), round_s=st.sampled_from([None, None, 5.0]))
@settings(max_examples=80)
def test_plans_are_sound_and_conserve_gpu_time_and_work(
    instance: Instance, round_s: float | None
) -> None:
    plan = simulate(instance, StartsBeside(), round_s=round_s)
    checked(instance, plan)
    assert simulate(instance, StartsBeside(), round_s=round_s) == plan

    world, policy, held = VirtualWorld(instance), StartsBeside(), []
    before = held_gpus(world)
    while world.unfinished:
        at_s = world.now_s
        assert world.advance()
        held.append((world.now_s - at_s) * before)
        policy.decide(world)
        before = held_gpus(world)
        left = {
            job_id: world.remaining_work_s(job_id) for job_id in (*world.running, *world.waiting)
        }
        assert all(
            0 <= left_s <= world.job(job_id).work_s * (1 + 1e-9) for job_id, left_s in left.items()
        )
    assert before == 0 and left_of(world.free, "quota") == own_quotas(instance)
    assert left_of(world.free, "resource") == pytest.approx(instance.cluster.resources)
    assert not any(world.free.domains.gbps.values())
    plan = world.rows.record(instance).plan()
    segments = {entry.id: entry.segments for entry in plan.jobs}
    pauses_s = 2e-5 * sum(len(found) for found in segments.values()) * sum(world.free.layout.gpus)
    found = simulate(instance, StartsBeside())
    assert {entry.id: entry.segments for entry in found.jobs} == segments
    assert math.fsum(held) == pytest.approx(gpu_s(found), abs=pauses_s + 1e-5, rel=1e-9)
    for job in instance.jobs:
        own = math.fsum(
            (part.end_s - part.start_s) * max(1, part.mode.gpus) for part in segments[job.id]
        )
        earlier = VirtualWorld(instance).attained_gpu_s(job.id)
        assert world.attained_gpu_s(job.id) - earlier == pytest.approx(own, rel=1e-9, abs=1e-3)


TWO = Cluster(nodes=equal_nodes(2, gpu_type="a", gpus=2, gpu_memory_gib=40.0, cpus=8))
HALF = Profile(name="half", sharing=Sharing(duty=1.0), startup_s=4.0, gpu_memory_gib=20.0)


class Scripted:
    """At given instants, do as told; else start nothing."""

    name = title = "scripted"

    def __init__(self, **acts: Any) -> None:
        self._acts = {float(at[2:]): act for at, act in acts.items()}

    def decide(self, world: World) -> None:
        if world.now_s == 0.0:
            for at_s in self._acts:
                if at_s > 0:
                    world.wake_at(at_s)
        if world.now_s in self._acts:
            self._acts[world.now_s](world)


def begin(world: World, job_id: str) -> None:
    found = world.fit(job_id)
    assert found is not None
    world.start(job_id, *found)


def beside(world: World, job_id: str, partner_id: str) -> None:
    world.start_sharing(job_id, world.options(job_id)[0], partner_id)


def times(plan: Plan, job: int) -> list[tuple[float, float, str | None]]:
    return [(part.start_s, part.end_s, part.mode.share_with) for part in plan.jobs[job].segments]


def test_the_partner_pays_no_second_start_up_and_goes_on_alone() -> None:
    jobs = (
        Job(id="a", gpus=2, duration_s=20.0, profile=HALF),
        Job(id="b", gpus=2, duration_s=6.0, profile=HALF),
    )
    instance = Instance(cluster=TWO, jobs=jobs)
    plan = simulate(
        instance, Scripted(at0=lambda w: begin(w, "a"), at10=lambda w: beside(w, "b", "a"))
    )
    checked(instance, plan)
    # a: 4 s start-up, 6 s of work alone, 8 s at half speed while b starts up and works 6 s at half
    # speed, 10 s alone
    assert times(plan, 1) == [(10.0, 26.0, "a")]
    assert times(plan, 0) == [(0.0, 10.0, None), (10.0, 26.0, "b"), (26.0, 32.0, None)]
    assert {slot for entry in plan.jobs for part in entry.segments for slot in part.placement} == {
        Slot(node="n0", gpus=2)
    }


def test_a_preempted_job_saves_beside_its_partner_and_comes_back_elsewhere() -> None:
    profile = replace(HALF, checkpoint_s=3.0, restore_s=1.0)
    jobs = tuple(Job(id=name, gpus=2, duration_s=20.0, profile=profile) for name in "ab")
    instance = Instance(cluster=TWO, jobs=jobs)

    def pair(world: World) -> None:
        begin(world, "a")
        beside(world, "b", "a")

    plan = simulate(
        instance,
        Scripted(
            at0=pair, at10=lambda world: world.preempt("a"), at13=lambda world: begin(world, "a")
        ),
    )
    checked(instance, plan)
    assert times(plan, 0) == [(0.0, 13.0, "b"), (13.0, 35.0, None)]
    assert times(plan, 1) == [(0.0, 13.0, "a"), (13.0, 28.5, None)]
    assert [part.placement[0].node for part in plan.jobs[0].segments] == ["n0", "n1"]


def test_periodic_checkpoints_go_on_while_partners_come_and_go() -> None:
    profile = Profile(sharing=Sharing(duty=1.0), checkpoint_every_s=7.0)
    jobs = (
        Job(id="a", gpus=2, duration_s=50.0, profile=profile),
        Job(id="b", gpus=2, duration_s=2.0, profile=profile),
    )
    instance = Instance(cluster=TWO, jobs=jobs)

    def stop(world: World) -> None:
        assert world.remaining_work_s("a") == 38.0  # 5 alone, 4 at half speed, 5 alone
        world.preempt("a")
        assert (
            world.remaining_work_s("a") == 38.0
        )  # 14 productive seconds, the last checkpoint is now
        world.wake_at(20.0)

    plan = simulate(
        instance,
        Scripted(
            at0=lambda w: begin(w, "a"),
            at5=lambda w: beside(w, "b", "a"),
            at14=stop,
            at20=lambda w: begin(w, "a"),
        ),
    )
    checked(instance, plan)
    assert times(plan, 0) == [
        (0.0, 5.0, None),
        (5.0, 9.0, "b"),
        (9.0, 14.0, None),
        (20.0, 58.0, None),
    ]


def case(**change: Any) -> tuple[Instance, World]:
    """`a` runs on n0; `b` waits, as `change` says."""
    profile = replace(HALF, **change.pop("profile", {}))
    jobs = (
        Job(
            id="a",
            gpus=2,
            duration_s=20.0,
            profile=replace(HALF, cpus_per_gpu={2: 1.0}),
            tenant="t",
        ),
        Job(
            **(
                {"id": "b", "gpus": 2, "duration_s": 6.0, "profile": profile, "tenant": "t"}
                | change
            )
        ),
        Job(id="c", gpus=2, duration_s=6.0, profile=HALF),
    )
    instance = Instance(cluster=TWO, jobs=jobs, tenants=(Tenant(name="t", gpu_quota=4),))
    world = VirtualWorld(instance)
    assert world.advance()
    begin(world, "a")
    return instance, world


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"gpus": 1}, "it would take 1 GPUs, a holds 2"),
        ({"gpus": 0, "cpus": 1}, "it would take 0 GPUs"),
        ({"profile": {"sharing": None}}, "not known how fast"),
        ({"profile": {"sharing": Sharing(partners={"half": 0.0})}}, "not known how fast"),
        (
            {"profile": {"gpu_memory_gib": 20.5}},
            "both need 40.5 GiB of each GPU, those of n0 have 40",
        ),
        ({"profile": {"cpus_per_gpu": {2: 1.0}}}, None),
        ({"profile": {"cpus_per_gpu": {3: 1.0}}}, "not enough room"),
    ],
)
def test_what_is_refused(change: dict[str, Any], reason: str | None) -> None:
    _, world = case(**change)
    [option] = world.options("b")
    assert world.may_share("b", option, "a") == (reason is None)
    if reason is None:
        world.start_sharing("b", option, "a")
        assert not world.may_share("c", world.options("c")[0], "a")
        with pytest.raises(PolicyError, match="a shares its GPUs already"):
            beside(world, "c", "a")
    else:
        with pytest.raises(PolicyError, match=f"job b cannot start beside a at 0 s: .*{reason}"):
            world.start_sharing("b", option, "a")
        assert "b" in world.waiting and held_gpus(world) == 2


def test_who_is_no_partner() -> None:
    _, world = case()
    option = world.options("b")[0]
    for partner_id in ("c", "b", "nobody"):
        with pytest.raises(PolicyError, match=f"{partner_id} does not run"):
            world.start_sharing("b", option, partner_id)
    with pytest.raises(PolicyError, match="it does not wait"):
        world.start_sharing("a", world.options("a")[0], "c")


def test_shared_gpus_count_for_both_jobs_of_a_tenant() -> None:
    _, world = case(tenant="t")
    beside(world, "b", "a")
    assert left_of(world.free, "quota") == {"t": 0}
    _, world = case()
    table = world.free.layout.table
    world.free.left[table.quotas_over["t"][0]] = 1
    assert not world.may_share("b", world.options("b")[0], "a")


def test_host_memory_is_the_jobs_own() -> None:
    node = Node(name="n", gpu_type="a", gpus=4, memory_gib=50.0)
    for gib, fits in ((12.5, True), (12.6, False)):
        profile = Profile(sharing=Sharing(duty=0.5), memory_gib_per_gpu=gib)
        jobs = tuple(Job(id=name, gpus=2, duration_s=9.0, profile=profile) for name in "ab")
        world = VirtualWorld(Instance(cluster=Cluster(nodes=(node,)), jobs=jobs))
        world.advance()
        begin(world, "a")
        assert world.may_share("b", world.options("b")[0], "a") == fits


def test_gpus_of_another_type_or_clock_are_refused() -> None:
    nodes = tuple(Node(name=kind, gpu_type=kind, gpus=1) for kind in "ab")
    profile = Profile(rate={"a": 1.0, "b": 0.5}, sharing=Sharing(duty=0.5))
    jobs = tuple(Job(id=name, duration_s=9.0, profile=profile) for name in "xy")
    world = VirtualWorld(Instance(cluster=Cluster(nodes=nodes), jobs=jobs))
    world.advance()
    begin(world, "x")
    on_a, on_b = world.options("y")
    assert (on_a.mode.gpu_type, on_b.mode.gpu_type) == ("a", "b")
    assert world.may_share("y", on_a, "x") and not world.may_share("y", on_b, "x")
    faster = replace(on_a, mode=replace(on_a.mode, clock_mhz=900))
    assert not world.may_share("y", faster, "x")


def test_a_pair_that_runs_at_the_start_can_be_renewed() -> None:
    profile = Profile(sharing=Sharing(duty=1.0))
    jobs = tuple(Job(id=name, duration_s=20.0, profile=profile, submit_s=-9.0) for name in "abc")
    running = tuple(
        Running(
            job=name,
            mode=Mode(gpu_type="a", gpus=1, share_with=other),
            placement=(Slot(node="n0", gpus=1),),
            remaining_s=left_s,
        )
        for name, other, left_s in (("a", "b", 4.0), ("b", "a", 10.0))
    )
    instance = Instance(cluster=TWO, jobs=jobs, running=running)
    plan = simulate(instance, Scripted(at8=lambda world: beside(world, "c", "b")))
    checked(instance, plan)
    assert times(plan, 1) == [(0.0, 8.0, "a"), (8.0, 20.0, "c")]
    assert times(plan, 2) == [(8.0, 20.0, "b"), (20.0, 34.0, None)]
    segments = plan.jobs[2].segments
    assert placed_rate(instance, jobs[2], segments[0].mode, segments[0].placement) == 0.5
