"""Jobs started beside others without the GPU memory for both: sound replays, no plans, nothing
gained or lost."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Failure, Instance, Job, Outage, Plan, Profile, Sharing
from optsched.driver.state import Ending
from optsched.driver.world import World
from optsched.objectives import parse
from optsched.physics import OUT_OF_MEMORY_S, beyond_gpu_memory, setup_s
from optsched.simulate.metrics import measure, summary
from optsched.simulate.run import Simulation, simulate
from optsched.simulate.virtual import VirtualWorld
from optsched.verify import verify
from tests.clusters import one_node
from tests.verified import checked

from .free_rows import left_of, own_quotas
from .sharing_policy import StartsBeside
from .test_beside import Scripted, begin, gpu_s, sharing_instances

WCT = parse("wct")
ONE = one_node("n0", gpu_type="a", gpus=1, gpu_memory_gib=40.0)
BIG = Profile(sharing=Sharing(duty=1.0), startup_s=4.0, gpu_memory_gib=30.0)


@st.composite
def crowded(draw: Any) -> Instance:
    """Random instances that share, most of them with jobs of which no two fit the memory of a GPU;
    some with incidents or with jobs that start at once."""
    instance = draw(sharing_instances())
    gib = draw(st.sampled_from([8.0, 15.0, 45.0]))
    nodes = tuple(
        replace(node, gpu_memory_gib=2 * gib - 1 if node.gpus else None)
        for node in instance.cluster.nodes
    )
    startup_s = draw(st.sampled_from([None, 0.0]))
    jobs = []
    for job in instance.jobs:
        if job.id not in ("p0", "p1"):
            profile = replace(
                job.profile, gpu_memory_gib=draw(st.sampled_from([gib, gib, gib / 2]))
            )
            job = replace(
                job,
                profile=profile
                if startup_s is None
                else replace(profile, startup_s=0.0, restore_s=0.0),
            )
        jobs.append(job)
    instance = replace(instance, cluster=replace(instance.cluster, nodes=nodes), jobs=tuple(jobs))
    if draw(st.booleans()):
        return instance
    fails = [
        job
        for job in instance.jobs
        if job.id not in (*instance.running_job, *instance.suspended_job)
    ]
    failures = tuple(
        Failure(job=job.id, work_s=job.work_s * 0.4, kept_s=job.work_s * 0.1) for job in fails[::2]
    )
    outage = Outage(node="last", start_s=instance.now_s + 6.5, end_s=instance.now_s + 11.0)
    return replace(instance, failures=failures, outages=(outage,))


@given(instance=crowded(), round_s=st.sampled_from([None, None, 5.0]))
@settings(max_examples=120)
def test_what_a_heedless_policy_lets_happen_is_sound_and_adds_up(
    instance: Instance, round_s: float | None
) -> None:
    simulation = Simulation(instance, StartsBeside(heedless=True), round_s=round_s)
    simulation.run()
    record, world = simulation.record(), simulation.world
    plan = record.plan()
    checked(instance, plan, replay=True)
    again = Simulation(instance, StartsBeside(heedless=True), round_s=round_s)
    again.run()
    assert again.record().plan() == plan
    stopped = [
        (entry.id, part)
        for entry in plan.jobs
        for part in entry.segments
        if part.stopped_by == "out_of_memory"
    ]
    assert not stopped or not verify(instance, plan, WCT).ok  # what happened, but no plan
    for job_id, part in stopped:
        job, partner = instance.job[job_id], instance.job[part.mode.share_with or ""]
        [other] = [entry for entry in plan.jobs if entry.id == partner.id]
        [beside] = [
            own.mode
            for own in other.segments
            if own.start_s <= part.start_s < own.end_s - 1e-5 and own.mode.share_with == job_id
        ]
        modes = instance.cluster, job, part.mode, partner, beside
        assert beyond_gpu_memory(*modes, part.placement) is not None
        least_s = setup_s(job, False)
        assert part.end_s - part.start_s == pytest.approx(
            max(least_s, 1.0), abs=1e-4
        ) or least_s < setup_s(job, True)
    lost = sum(instance.cluster.node[name].gpus for name in world.lost)
    assert sum(world.free.layout.gpus) - lost == sum(world.free._gpus) and left_of(
        world.free, "quota"
    ) == own_quotas(instance)
    work_s = [0.0] * len(instance.jobs)
    for row in range(record.rows):
        work_s[record.job[row]] += float(record.work_s[row] - record.lost_s[row])
        if record.ending[row] == Ending.OUT_OF_MEMORY:
            assert record.work_s[row] == record.lost_s[row] >= 0.0
    for job, done_s in zip(instance.jobs, work_s, strict=True):
        if job.id not in instance.running_job:  # those may lose work that they did before, too
            assert done_s == pytest.approx(instance.remaining_s(job), rel=1e-6, abs=1e-4)
    found = measure(record)
    total = summary(found)
    assert found.held_gpu_s.sum() == pytest.approx(gpu_s(plan), rel=1e-9, abs=1e-4)
    assert total["out_of_memory"] == len(stopped)
    hours = total["gpu_h"]
    spent = [hours["work"], hours["first_starts"]]
    for cause in ("preemptions", "failures", "node_losses", "out_of_memory"):
        spent += hours[cause].values()
    assert hours["held"] == pytest.approx(math.fsum(spent), abs=1e-8) and min(spent) >= -1e-9
    in_vain_s = math.fsum((part.end_s - part.start_s) * part.mode.gpus / 2 for _, part in stopped)
    assert hours["out_of_memory"]["starts"] * 3600 == pytest.approx(in_vain_s, abs=1e-4)


def heedless(world: World, job_id: str, partner_id: str) -> None:
    world.start_sharing(job_id, world.options(job_id)[0], partner_id, heedless=True)


def parts(plan: Plan, job: int) -> list[tuple[float, float, str | None, str | None]]:
    return [
        (part.start_s, part.end_s, part.mode.share_with, part.stopped_by)
        for part in plan.jobs[job].segments
    ]


def two(**change: Any) -> Instance:
    jobs = (
        Job(id="a", duration_s=20.0, profile=BIG),
        Job(id="b", duration_s=6.0, profile=replace(BIG, **change)),
    )
    return Instance(cluster=ONE, jobs=jobs)


def test_the_newcomer_is_stopped_after_its_set_up_and_pays_restore_the_next_time() -> None:
    instance = two(restore_s=1.0)
    acts = {
        "at0": lambda w: begin(w, "a"),
        "at10": lambda w: heedless(w, "b", "a"),
        "at20": lambda w: heedless(w, "b", "a"),
        "at40": lambda w: begin(w, "b"),
    }
    plan = simulate(instance, Scripted(**acts))
    assert verify(instance, plan, WCT, replay=True).ok and not verify(instance, plan, WCT).ok
    # b: 4 s of start-up in vain, then 5 s with restore, then alone; a: 6 s of work, 4 s at half
    # speed, 6, 5 at half speed, and the 3.5 s that are left
    assert parts(plan, 1) == [
        (10.0, 14.0, "a", "out_of_memory"),
        (20.0, 25.0, "a", "out_of_memory"),
        (40.0, 51.0, None, None),
    ]
    assert parts(plan, 0) == [
        (0.0, 10.0, None, None),
        (10.0, 14.0, "b", None),
        (14.0, 20.0, None, None),
        (20.0, 25.0, "b", None),
        (25.0, 28.5, None, None),
    ]


def test_what_it_costs_is_counted() -> None:
    instance = two()
    simulation = Simulation(
        instance,
        Scripted(
            at0=lambda w: begin(w, "a"),
            at10=lambda w: heedless(w, "b", "a"),
            at30=lambda w: begin(w, "b"),
        ),
    )
    simulation.run()
    found = measure(simulation.record())
    total = summary(found)
    assert (total["out_of_memory"], total["failures"], total["restarts"]) == (1, 0, 1)
    assert found.out_of_memory.tolist() == [0, 1]
    # 4 s on half a GPU in vain, and the start-up after it; the first start of a is the only other
    # one
    in_s = {name: hours * 3600 for name, hours in total["gpu_h"]["out_of_memory"].items()}
    assert in_s == {"starts": pytest.approx(2.0), "restarts": pytest.approx(4.0)}
    assert total["gpu_h"]["first_starts"] * 3600 == pytest.approx(4.0)
    assert total["gpu_h"]["held"] * 3600 == pytest.approx(
        26.0 + 10.0
    )  # a works 2 s longer for the 4 beside b
    assert found.lost_gpu_s.tolist() == [0.0, pytest.approx(2.0)]


@pytest.mark.parametrize(
    ("startup_s", "ends_s"), [(0.0, 10.0 + OUT_OF_MEMORY_S), (0.4, 11.0), (2.5, 12.5)]
)
def test_without_a_set_up_it_is_stopped_after_a_second_and_keeps_no_work(
    startup_s: float, ends_s: float
) -> None:
    instance = two(startup_s=startup_s)
    plan = simulate(
        instance,
        Scripted(
            at0=lambda w: begin(w, "a"),
            at10=lambda w: heedless(w, "b", "a"),
            at30=lambda w: begin(w, "b"),
        ),
    )
    checked(instance, plan, replay=True)
    assert parts(plan, 1)[0] == (10.0, ends_s, "a", "out_of_memory")
    assert parts(plan, 1)[1] == (30.0, pytest.approx(36.0 + startup_s), None, None)


def test_it_lives_on_if_its_partner_leaves_before() -> None:
    instance = two(startup_s=5.0)
    plan = simulate(
        instance, Scripted(at0=lambda w: begin(w, "a"), at22=lambda w: heedless(w, "b", "a"))
    )
    assert verify(instance, plan, WCT, replay=True).ok and not verify(instance, plan, WCT).ok
    # a has 2 s of work left at 22 s: 4 s at half speed, in which b does not finish its set-up of 5
    # s
    assert parts(plan, 0) == [(0.0, 22.0, None, None), (22.0, 26.0, "b", None)]
    assert parts(plan, 1) == [(22.0, 26.0, "a", None), (26.0, 33.0, None, None)]


def test_it_may_not_be_preempted_before_it_is_stopped() -> None:
    instance = two(startup_s=0.0)
    world = VirtualWorld(instance)
    world.advance()
    begin(world, "a")
    heedless(world, "b", "a")
    world.go_on_to(0.5)
    assert not world.may_preempt("b") and "b" in world.running
    world.go_on_to(1.0)
    assert list(world.waiting) == ["b"] and world.take_arrived() == ["a", "b", "b"]


def test_where_the_memory_suffices_heedless_is_as_usual() -> None:
    half = replace(BIG, gpu_memory_gib=20.0)
    jobs = (Job(id="a", duration_s=9.0, profile=half), Job(id="b", duration_s=8.0, profile=half))
    instance = Instance(cluster=ONE, jobs=jobs)

    def pair(world: World) -> None:
        begin(world, "a")
        heedless(world, "b", "a")

    plan = simulate(instance, Scripted(at0=pair))
    checked(instance, plan)
    assert parts(plan, 1) == [(0.0, 20.0, "a", None)]
    assert parts(plan, 0) == [(0.0, 20.0, "b", None), (20.0, 21.0, None, None)]


def test_a_pair_may_start_together_where_one_of_them_has_just_left() -> None:
    instance = Instance(
        cluster=ONE,
        jobs=tuple(
            Job(id=name, duration_s=9.0, profile=Profile(sharing=Sharing(duty=1.0)))
            for name in "ab"
        ),
    )

    def both(world: World) -> None:
        world.preempt("a")
        begin(world, "a")  # where it was: a plan tells this start by a pause
        world.start_sharing("b", world.options("b")[0], "a")

    plan = simulate(instance, Scripted(at0=lambda w: begin(w, "a"), at3=both))
    checked(instance, plan)
    rounded = [
        [(round(start_s, 3), round(end_s, 3), *rest) for start_s, end_s, *rest in parts(plan, j)]
        for j in (0, 1)
    ]
    assert rounded[0] == [
        (0.0, 3.0, None, None),
        (3.0, 15.0, "b", None),
    ]  # 6 s of work left, at half speed
    assert rounded[1] == [(3.0, 15.0, "a", None), (15.0, 18.0, None, None)]
