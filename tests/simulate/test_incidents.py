"""Failing attempts and lost nodes: plans stay sound, nothing is conjured up or lost, runs can be
taken up again."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Failure, Instance, Job, Mode, Node, Outage, Profile
from optsched.driver.state import Ending
from optsched.engine import solve
from optsched.files import dump_instance, load_instance
from optsched.files.faults import find_faults
from optsched.objectives import parse
from optsched.physics import placed_rate, remaining_after_preemption_s
from optsched.physics.contention import may_contend
from optsched.plugins.policy import Policy
from optsched.plugins.registry import names, policy
from optsched.simulate.record import Record
from optsched.simulate.run import Simulation, StalledError
from optsched.verify import verify
from tests.clusters import one_node
from tests.verified import checked

from .random_instances import instances
from .sharing_policy import StartsBeside
from .test_beside import sharing_instances

WCT = parse("wct")
SIMPLE = tuple(
    name
    for name in ("fifo", "backfill", "sjf", "wspt", "srtf", "srsf", "las")
    if name in names("policies")
)
PERIOD = st.sampled_from([0.5, 3.0, 10.0, 40.0])


@st.composite
def disturbed(draw: Any, base: Any) -> Instance:
    """An instance with failing attempts and lost nodes."""
    instance = draw(base)
    begun = {entry.job for entry in (*instance.running, *instance.suspended)}
    failures = []
    for job in instance.jobs:
        if job.id in begun or not draw(st.booleans()):
            continue
        left_s = job.work_s
        for _ in range(draw(st.integers(1, 2))):
            work_s = draw(st.sampled_from([0.5, 2.0, 7.0, 30.0]))
            kept_s = draw(st.sampled_from([0.0, 0.0, min(work_s, left_s / 2)]))
            left_s -= kept_s
            failures.append(Failure(job=job.id, work_s=work_s, kept_s=kept_s, kind="out of memory"))
    outages = []
    for node in instance.cluster.nodes:
        at_s = instance.now_s
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            start_s = at_s + draw(PERIOD)
            at_s = start_s + draw(PERIOD)
            outages.append(Outage(node=node.name, start_s=start_s, end_s=at_s))
    found = replace(instance, failures=tuple(failures), outages=tuple(outages))
    assert not find_faults(found)
    return found


def check(instance: Instance, record: Record) -> None:
    """The plan is sound, and every second and every bit of work is accounted for."""
    plan = record.plan()
    checked(instance, plan)
    assert load_instance(dump_instance(instance)) == instance
    work_s = np.zeros(len(instance.jobs))
    np.add.at(work_s, record.job, record.work_s - record.lost_s)
    wanted = [instance.remaining_s(job) for job in instance.jobs]
    for (
        entry
    ) in instance.running:  # preempted at once: what that loses was worked before, and is in no row
        j = instance.jobs.index(instance.job[entry.job])
        if plan.jobs[j].decision in ("preempt", "migrate", "resize"):
            wanted[j] = remaining_after_preemption_s(instance, entry)
    assert work_s == pytest.approx(np.array(wanted), rel=1e-6, abs=1e-4)
    completed = np.zeros(len(instance.jobs), dtype=int)
    np.add.at(completed, record.job[record.ending == Ending.COMPLETED], 1)
    assert (completed == 1).all()
    for i in range(record.rows):  # seconds held are work, at the rate of the row, and overhead
        j, mode = int(record.job[i]), record.modes[record.mode[i]]
        if record.partner[i] >= 0:
            mode = replace(mode, share_with=instance.jobs[record.partner[i]].id)
        rate = placed_rate(instance, instance.jobs[j], mode, record.placements[i])
        held_s = record.end_s[i] - record.start_s[i]
        busy_s = record.overhead_s[i] + record.work_s[i] / rate
        if may_contend(
            instance
        ):  # the verifier has integrated what others on the same channels cost
            assert held_s >= busy_s - 2e-4 - 1e-6 * busy_s
        else:
            assert held_s == pytest.approx(busy_s, rel=1e-6, abs=2e-4)
    for failing in instance.attempts.values():
        index = next(i for i, job in enumerate(instance.jobs) if job.id == failing[0].job)
        assert int(((record.job == index) & (record.ending == Ending.FAILED)).sum()) == len(failing)


def run(instance: Instance, made: Policy, **settings_: Any) -> Record | None:
    """None where the policy stalls: on a few nodes a budget may run out for the second attempt."""
    simulation = Simulation(instance, made, **settings_)
    try:
        simulation.run()
    except StalledError:
        assert instance.cluster.budgets
        return None
    return simulation.record()


@given(
    instance=disturbed(instances()),
    name=st.sampled_from(SIMPLE),
    round_s=st.sampled_from([None, 7.3]),
)
@settings(max_examples=150)
def test_plans_are_sound_and_nothing_is_lost(
    instance: Instance, name: str, round_s: float | None
) -> None:
    record = run(instance, policy(name), round_s=round_s)
    if record is not None:
        check(instance, record)


@given(instance=disturbed(sharing_instances()))
@settings(max_examples=60)
def test_pairs_too(instance: Instance) -> None:
    record = run(instance, StartsBeside())
    if record is not None:
        check(instance, record)


@given(instance=disturbed(instances()))
@settings(max_examples=25)
def test_the_flagship_too(instance: Instance) -> None:
    record = run(instance, policy("optsched"))
    if record is not None:
        check(instance, record)


@given(instance=disturbed(instances()), name=st.sampled_from(SIMPLE), after=st.integers(1, 12))
@settings(max_examples=40)
def test_taken_up_again_it_goes_on_as_if_nothing_had_been(
    instance: Instance, name: str, after: int
) -> None:
    whole = Simulation(instance, policy(name))
    left = iter(range(after, -1, -1))
    part = Simulation(instance, policy(name))
    try:
        whole.run()
        done = part.run(until=lambda: next(left) == 0)
    except StalledError:
        return
    again = Simulation.restored(part.save())
    assert again.run() and (done or again.done == len(instance.jobs))
    for column in (
        "job",
        "start_s",
        "end_s",
        "gpus",
        "overhead_s",
        "work_s",
        "lost_s",
        "ending",
        "partner",
    ):
        np.testing.assert_array_equal(
            getattr(again.record(), column), getattr(whole.record(), column)
        )
    assert again.record().plan() == whole.record().plan()


ONE = Cluster(nodes=(Node(name="n0", gpus=1), Node(name="n1", gpus=1)))


def ends(instance: Instance, name: str = "fifo") -> list[tuple[str, float, float, str]]:
    record = run(instance, policy(name))
    assert record is not None
    check(instance, record)
    return [
        (instance.jobs[j].id, start_s, end_s, Ending(ending).name)
        for j, start_s, end_s, ending in zip(
            record.job.tolist(),
            record.start_s.tolist(),
            record.end_s.tolist(),
            record.ending.tolist(),
            strict=True,
        )
    ]


def test_a_failing_attempt_is_paid_for() -> None:
    job = Job(id="j", duration_s=100, profile=Profile(startup_s=5, restore_s=7, checkpoint_s=50))
    instance = Instance(
        cluster=ONE, jobs=(job,), failures=(Failure(job="j", work_s=30, kept_s=20, kind="nan"),)
    )
    (_, s1, e1, how1), (_, s2, e2, how2) = ends(instance)
    assert (s1, e1, how1) == (0, 35, "FAILED")  # no checkpoint is taken
    assert how2 == "COMPLETED" and s2 == pytest.approx(35, abs=1e-4) and e2 - s2 == 5 + 7 + 80


def test_what_periodic_checkpoints_save_from_an_outage() -> None:
    outage = Outage(node="n0", start_s=50, end_s=1000)
    saved = Job(id="saved", duration_s=100, profile=Profile(checkpoint_every_s=20))
    found = ends(Instance(cluster=ONE, jobs=(saved,), outages=(outage,)))
    assert found == [("saved", 0, 50, "NODE_LOST"), ("saved", 50, 110, "COMPLETED")]
    unsaved = Job(id="unsaved", duration_s=100)
    found = ends(Instance(cluster=ONE, jobs=(unsaved,), outages=(outage,)))
    assert found == [("unsaved", 0, 50, "NODE_LOST"), ("unsaved", 50, 150, "COMPLETED")]


def test_jobs_wait_for_a_node_to_come_back() -> None:
    alone = one_node("n0", gpus=1)
    instance = Instance(
        cluster=alone,
        jobs=(Job(id="j", duration_s=10),),
        outages=(Outage(node="n0", start_s=4, end_s=20),),
    )
    assert ends(instance) == [("j", 0, 4, "NODE_LOST"), ("j", 20, 30, "COMPLETED")]


def test_nobody_who_plans_knows_of_incidents() -> None:
    job = Job(id="j", duration_s=10)
    quiet = Instance(cluster=ONE, jobs=(job,))
    loud = replace(
        quiet,
        failures=(Failure(job="j", work_s=4),),
        outages=(Outage(node="n0", start_s=1, end_s=2),),
    )
    assert solve(loud, isolate=False).plan == solve(quiet, isolate=False).plan
    assert not verify(
        loud, solve(loud, isolate=False).plan, WCT
    ).ok  # as a replay it would have failed


@pytest.mark.parametrize(
    "change, rule",
    [
        (lambda part: replace(part, stopped_by=None), "work"),
        (lambda part: replace(part, end_s=part.end_s - 1), "work"),
        (lambda part: replace(part, stopped_by="outage"), "incident"),
    ],
)
def test_the_verifier_wants_each_incident_as_it_was(change: Any, rule: str) -> None:
    job = Job(id="j", duration_s=10, profile=Profile(startup_s=3))
    instance = Instance(cluster=ONE, jobs=(job,), failures=(Failure(job="j", work_s=4),))
    record = run(instance, policy("fifo"))
    assert record is not None
    plan = record.plan()
    entry = plan.jobs[0]
    wrong = replace(
        plan, jobs=(replace(entry, segments=(change(entry.segments[0]), *entry.segments[1:])),)
    )
    assert rule in {violation.rule for violation in verify(instance, wrong, WCT).violations}
    assert math.isfinite(entry.completion_s)


@pytest.mark.parametrize(
    "failures, outages, message",
    [
        ((Failure(job="x", work_s=1),), (), "job 'x' is not in jobs"),
        ((Failure(job="j", work_s=1, kept_s=2),), (), "keeps more than the work it does"),
        (
            (Failure(job="j", work_s=6, kept_s=6), Failure(job="j", work_s=6, kept_s=6)),
            (),
            "do all of its work",
        ),
        ((), (Outage(node="x", start_s=0, end_s=1),), "node 'x' is not in cluster.nodes"),
        ((), (Outage(node="n0", start_s=2, end_s=1),), "back before it is lost"),
        (
            (),
            (Outage(node="n0", start_s=0, end_s=2), Outage(node="n0", start_s=1, end_s=3)),
            "lost while it is lost",
        ),
        ((), (Outage(node="n0", start_s=-1, end_s=2),), "before now_s"),
    ],
)
def test_faults(failures: tuple[Failure, ...], outages: tuple[Outage, ...], message: str) -> None:
    instance = Instance(
        cluster=ONE, jobs=(Job(id="j", duration_s=10),), failures=failures, outages=outages
    )
    assert any(message in str(fault) for fault in find_faults(instance))


def test_a_job_that_fails_and_has_no_length_is_told_so() -> None:
    for job in (Job(id="j"), Job(id="j", modes=(Mode(gpus=1),))):
        instance = Instance(cluster=ONE, jobs=(job,), failures=(Failure(job="j", work_s=1),))
        assert any("duration_s" in fault.path for fault in find_faults(instance))
