"""The present as an instance: sound, with the world's own numbers, and a start from which it goes
on alike."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Node, Plan, Profile, Running, Sharing, Slot
from optsched.driver.snapshot import snapshot
from optsched.driver.view import PolicyError
from optsched.driver.world import World
from optsched.files import check_instance
from optsched.model.job import first_come
from optsched.physics import (
    TIME_TOLERANCE_S,
    lost_s,
    may_preempt,
    placed_rate,
    remaining_after_preemption_s,
    unsaved_s,
)
from optsched.physics.catalogue import catalogue_of
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched.simulate.virtual import VirtualWorld

from .random_instances import instances
from .sharing_policy import StartsBeside
from .test_beside import sharing_instances

POLICIES = st.sampled_from(["fifo", "sjf", "srtf", "las", "beside"])


def world_after(instance: Instance, name: str, instants: int) -> World:
    """The world of a simulation after some decisions, or at its last."""
    world, rule = VirtualWorld(instance), StartsBeside() if name == "beside" else policy(name)
    for _ in range(instants):
        if not (world.unfinished and world.advance()):
            break
        rule.decide(world)
    return world


@given(instance=sharing_instances(), name=POLICIES, instants=st.integers(1, 20))
@settings(max_examples=80)
def test_snapshots_are_sound_and_agree_with_the_world(
    instance: Instance, name: str, instants: int
) -> None:
    world = world_after(instance, name, instants)
    found = snapshot(world)
    now = found.instance
    check_instance(now)
    assert (now.name, now.now_s) == (f"random at {world.now_s:.12g}", world.now_s)
    assert now.tenants is instance.tenants
    assert all(
        catalogue_of(now).options(job) is catalogue_of(instance).options(job) for job in now.jobs
    )
    assert (now.cluster is instance.cluster) == (not instance.cluster.budgets)
    order = [job.id for job in sorted(instance.jobs, key=first_come)]
    assert [job.id for job in now.jobs] == [
        i for i in order if i in world.running or i in world.waiting
    ]
    assert set(now.running_job) == set(world.running)
    holds = (world.hold(name) for name in world.saving)
    alone = {slot.node for hold in holds if hold.partner is None for slot in hold.placement}
    assert alone <= {slot.node for placement in found.blocked for slot in placement}
    for job in now.jobs:
        own = world.job(job.id)
        assert (job is own) if not own.after else job == replace(own, after=())
        assert now.remaining_s(job) == pytest.approx(world.remaining_work_s(job.id), abs=1e-6)
        assert (job.id in now.suspended_job) == (
            job.id in world.waiting and world._state[job.id].ran_before
        )
    for entry in now.running:
        agrees_with_world(instance, name, instants, now, entry)


def agrees_with_world(
    instance: Instance, name: str, instants: int, now: Instance, entry: Running
) -> None:
    world = world_after(instance, name, instants)
    job, run, work_s = (
        now.job[entry.job],
        world._state[entry.job].run,
        world.remaining_work_s(entry.job),
    )
    assert run is not None
    if run.partner is None or run.partner.run.stops_s is None:
        assert placed_rate(now, job, entry.mode, entry.placement) == pytest.approx(run.full_rate)
    ends_s = world.now_s + entry.setup_s + entry.remaining_s / run.rate
    assert ends_s == pytest.approx(world.expected_release_s(job.id), abs=1e-6)
    about_to_end = work_s <= 2 * (TIME_TOLERANCE_S * run.rate + 1e-9 * job.work_s)
    if world.may_preempt(job.id):
        assert may_preempt(now, entry)
        world.preempt(job.id)
        after_s = world.remaining_work_s(job.id)
        # What a placement loses is reckoned at the rate that it has on channels of its own.
        if (
            run.slowdown == 1.0
            and len({rate for seconds, rate in run.unsaved if seconds} | {run.rate}) == 1
        ):
            assert remaining_after_preemption_s(now, entry) == pytest.approx(after_s, abs=1e-5)
        if job.profile.checkpoint_every_s is not None:
            seconds = math.fsum(seconds for seconds, _ in run.unsaved) + max(
                0.0, world.now_s - run.work_from_s
            )
            assert unsaved_s(entry, now.now_s) == pytest.approx(lost_s(job, seconds), abs=1e-5)
    elif may_preempt(now, entry):
        just_begun = not run.was_running and run.held_from_s >= world.now_s
        assert about_to_end or just_begun or entry.setup_s > 0 or not world.options(job.id)


@pytest.mark.parametrize("examples", [30, pytest.param(600, marks=pytest.mark.slow)])
def test_what_follows_is_the_same(examples: int) -> None:
    @given(
        # It knows neither jobs still to come nor what caches hold of those that are done.
        instance=instances().filter(
            lambda instance: not any(job.after or job.profile.fetch_s for job in instance.jobs)
        ),
        name=st.sampled_from(["fifo", "sjf", "wspt"]),
        instants=st.integers(1, 12),
    )
    @settings(max_examples=examples)
    def check(instance: Instance, name: str, instants: int) -> None:
        latest_s = max(instance.release_s(job) for job in instance.jobs)
        world, rule = VirtualWorld(instance), policy(name)
        while world.unfinished and (world.now_s < latest_s or instants > 0):
            instants -= 1
            assert world.advance()
            rule.decide(world)
        assume(world.unfinished and not world.saving)
        found = snapshot(world).instance
        ends = {entry.id: entry.completion_s for entry in simulate(instance, policy(name)).jobs}
        again = {entry.id: entry.completion_s for entry in simulate(found, policy(name)).jobs}
        assert again == {job_id: pytest.approx(ends[job_id], abs=1e-5) for job_id in again}
        assert len(again) == world.unfinished

    check()


TWO = Cluster(
    nodes=(
        Node(name="n0", gpu_type="a", gpus=2, cpus=8),
        Node(name="n1", gpu_type="a", gpus=2, cpus=8),
    )
)
SHARES = Profile(sharing=Sharing(duty=1.0), checkpoint_s=3.0, cpus_per_gpu={2: 1.0}, startup_s=4.0)


def saving_world() -> World:
    """At 10 s `a` saves until 13 s beside `b`; `c` waits, `d` comes later."""
    jobs = tuple(Job(id=name, gpus=2, duration_s=20.0, profile=SHARES) for name in "abc")
    world = VirtualWorld(
        Instance(name="w", cluster=TWO, jobs=(*jobs, Job(id="d", duration_s=1.0, submit_s=99.0)))
    )
    world.advance()
    world.start("a", *world.fit("a") or pytest.fail())
    world.start_sharing("b", world.options("b")[0], "a")
    world.wake_at(10.0)
    world.advance()
    world.preempt("a")
    return world


def test_what_saves_is_blocked_and_its_gpus_are_named_once() -> None:
    world = saving_world()
    found = snapshot(world)
    assert found.instance.name == "w at 10" and [job.id for job in found.instance.jobs] == [
        "b",
        "c",
    ]
    assert found.blocked == ((Slot(node="n0", cpus=4),),)
    [entry] = found.instance.running
    assert (entry.mode.share_with, entry.remaining_s, entry.started_s) == (None, 17.0, 0.0)
    world.preempt("b")
    found = snapshot(world)
    assert [job.id for job in found.instance.jobs] == ["c"]
    assert found.blocked == ((Slot(node="n0", gpus=2, cpus=8),),)
    world.advance()
    assert [entry.job for entry in snapshot(world).instance.suspended] == ["a", "b"]


def test_some_of_the_waiting_jobs() -> None:
    world = saving_world()
    assert [job.id for job in snapshot(world, jobs=[]).instance.jobs] == ["b"]
    assert [job.id for job in snapshot(world, jobs=["b", "c"]).instance.jobs] == ["b", "c"]
    for job_id in ("a", "d", "nobody"):
        with pytest.raises(PolicyError, match=f"no snapshot with job {job_id} at 10 s"):
            snapshot(world, jobs=[job_id])


def test_set_up_and_periodic_checkpoints() -> None:
    profile = Profile(startup_s=4.0, checkpoint_every_s=7.0)
    world = VirtualWorld(
        Instance(cluster=TWO, jobs=(Job(id="a", gpus=2, duration_s=99.0, profile=profile),))
    )
    world.advance()
    world.start("a", *world.fit("a") or pytest.fail())
    seen: list[Any] = []
    for at_s in (1.0, 10.0, 20.0):
        world.wake_at(at_s)
        world.advance()
        now = snapshot(world).instance
        [entry] = now.running
        after_s = remaining_after_preemption_s(now, entry)
        seen.append((entry.setup_s, entry.last_checkpoint_s, entry.remaining_s, after_s))
    assert seen == [(3.0, None, 99.0, 99.0), (0.0, 4.0, 93.0, 99.0), (0.0, 18.0, 83.0, 85.0)]


def test_budgets_are_what_is_left() -> None:
    modes = (
        Mode(duration_s=1.0, gpus=1, budgets={"money": 3.0}),
        Mode(duration_s=9.0, gpus=1, budgets={"money": 1.0}),
    )
    jobs = (
        *(Job(id=f"j{i}", modes=modes) for i in range(4)),
        Job(id="late", modes=modes, submit_s=50.0),
    )
    cluster = Cluster(nodes=(Node(name="n", gpus=1),), budgets={"money": 8.0})
    world = VirtualWorld(Instance(cluster=cluster, jobs=jobs))
    for _ in range(3):
        world.advance()
        if world.waiting and not world.running:
            first = next(iter(world.waiting))
            world.start(first, *world.fit(first) or pytest.fail())
    assert (world.now_s, list(world.running), list(world.waiting)) == (10.0, ["j2"], ["j3"])
    # j0 has used 3, and j1, for which 3 would have left the others too little, 1; of the other 4
    # `late` needs 1
    assert snapshot(world).instance.cluster.budgets == {"money": 3.0}
    assert snapshot(world, jobs=()).instance.cluster.budgets == {"money": 2.0}


class Believes(VirtualWorld):
    """Takes every job to be half as long again as it is."""

    def remaining_work_s(self, job_id: str) -> float:
        return 1.5 * super().remaining_work_s(job_id)


def test_no_length_that_the_policy_may_not_know() -> None:
    modes = (Mode(duration_s=10.0, gpus=2), Mode(duration_s=20.0, gpus=1))
    jobs = (
        Job(id="a", gpus=4, duration_s=10.0),
        Job(id="b", modes=modes),
        Job(id="c", duration_s=30.0),
    )
    world = Believes(Instance(cluster=TWO, jobs=jobs))
    world.advance()
    world.start("a", *world.fit("a") or pytest.fail())
    world.wake_at(2.0)
    world.advance()
    now = snapshot(world).instance
    check_instance(now)
    assert [job.work_s for job in now.jobs] == [12.0, 15.0, 45.0]
    assert [mode.duration_s for mode in now.job["b"].modes] == [15.0, 30.0]
    assert now.running_job["a"].remaining_s == 12.0


def test_a_simulation_of_a_snapshot_is_a_plan_of_it() -> None:
    world = saving_world()
    world.advance()
    plan: Plan = simulate(snapshot(world).instance, policy("srtf"))
    assert [entry.id for entry in plan.jobs] == ["a", "b", "c"]
