"""What is called optimal is: no plan of an exhaustive search is better, whatever is in the value
beside what can be decided (a past on the Unix clock, one huge weight, a level before), and no bound
lies above an optimum."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from optsched import Cluster, Instance, Job, Locality, Mode, Node, Profile, Running, Slot
from optsched.bounds.yardstick import yardsticks
from optsched.engine import solve
from optsched.files.faults import find_faults
from optsched.model.plan import CLOSED_GAP
from optsched.objectives import parse
from tests.oracles import brute_force, tiny

UNIX_S = 1_700_000_000.0
OBJECTIVES = (
    "wct",
    "makespan",
    "tardiness",
    "flow2",
    "lateness",
    "tail:0.5",
    "ftf",
    "maxmin",
    "throughput",
    "wct,makespan",
    "makespan,wct",
    "deadline,wct",
    "tail,wct",
    "ftf,wct",
    "wct+3*makespan",
    "energy,wct",
    "tardiness,energy",
)


@st.composite
def goals(draw: DrawFn) -> str:
    """One or two levels, each the sum of at most two objectives; rates cannot be part of one."""
    single = st.sampled_from(("wct", "ftf", "maxmin", "flow2", "tardiness2", "throughput"))
    added = st.sampled_from(
        ("wct", "flow2", "makespan", "tardiness", "tardiness2", "deadline", "tail:0.5", "energy")
    )
    factor = st.sampled_from(("", "1000*", "0.001*"))
    sums = st.lists(added, min_size=2, max_size=2, unique=True)
    both = sums.map(lambda terms: "+".join(draw(factor) + term for term in terms))
    return ",".join(draw(st.lists(single | both, min_size=1, max_size=2, unique=True)))


@st.composite
def stretched(draw: DrawFn) -> Instance:
    """A tiny instance on another clock, with jobs that were submitted long ago, deadlines long past
    or far off, a huge weight, or awkward lengths."""
    found = draw(tiny.instances(most_jobs=4))
    shift_s = draw(st.sampled_from((0.0, UNIX_S, UNIX_S + 0.1, -1e6)))
    weight = draw(st.sampled_from((None, 1e4, 1e6, 1e9, 1e-6)))
    old_s = draw(st.sampled_from((None, None, 0.0, 1e9)))
    stretch = draw(st.sampled_from((1.0, 1.0, 60.0, 1 / 3, 1000.001)))
    off_s = draw(st.sampled_from((0.0, 0.0, -1e6, 1e6)))

    def at(time_s: float) -> float:
        return shift_s + stretch * time_s

    def longer(job: Job) -> Job:
        modes = tuple(
            replace(mode, duration_s=(mode.duration_s or 0.0) * stretch) for mode in job.modes
        )
        profile = replace(
            job.profile,
            **{
                name: None if seconds is None else stretch * seconds
                for name in ("startup_s", "restore_s", "checkpoint_s", "checkpoint_every_s")
                for seconds in (getattr(job.profile, name),)
            },
        )
        return replace(
            job,
            submit_s=at(job.submit_s),
            profile=profile,
            modes=modes,
            deadline_s=None if job.deadline_s is None else at(job.deadline_s) + off_s,
            duration_s=None if job.duration_s is None else stretch * job.duration_s,
        )

    jobs = [longer(job) for job in found.jobs]
    if jobs and weight is not None:
        chosen = draw(st.integers(0, len(jobs) - 1))
        jobs[chosen] = replace(jobs[chosen], weight=weight)
    if old_s is not None and shift_s > 0:
        long_ago_s = at(0) - old_s if old_s else 0.0
        jobs = [replace(job, submit_s=long_ago_s) if job.submit_s <= at(0) else job for job in jobs]
    running = tuple(
        replace(
            entry,
            started_s=at(entry.started_s),
            remaining_s=entry.remaining_s * stretch,
            last_checkpoint_s=None
            if entry.last_checkpoint_s is None
            else at(entry.last_checkpoint_s),
        )
        for entry in found.running
    )
    suspended = tuple(
        replace(entry, remaining_s=entry.remaining_s * stretch) for entry in found.suspended
    )
    return replace(
        found, now_s=at(found.now_s), jobs=tuple(jobs), running=running, suspended=suspended
    )


def preempt_or_continue(now_s: float) -> Instance:
    """To preempt `long` gains 810 s; jobs were submitted at 0, whatever the clock says now."""
    paused = {"checkpoint_s": 20.0, "startup_s": 10.0, "restore_s": 30.0}
    lengths_s = {
        "long": (1500.0, "a"),
        "short": (100.0, "a"),
        "nearly-done": (680.0, "b"),
        "patient": (100.0, "b"),
    }
    return Instance(
        now_s=now_s,
        cluster=Cluster(nodes=tuple(Node(name=name, gpu_type=name, gpus=1) for name in "ab")),
        jobs=tuple(
            Job(id=name, duration_s=duration_s, profile=Profile(rate={gpu_type: 1.0}, **paused))
            for name, (duration_s, gpu_type) in lengths_s.items()
        ),
        running=tuple(
            Running(
                job=job,
                mode=Mode(gpu_type=node, gpus=1),
                placement=(Slot(node=node, gpus=1),),
                started_s=now_s - 500.0,
                remaining_s=left_s,
            )
            for job, node, left_s in (("long", "a", 1000.0), ("nearly-done", "b", 180.0))
        ),
    )


@pytest.mark.parametrize("solver", ("cpsat", "milp"))
def test_what_is_past_hides_no_better_plan(solver: str) -> None:
    found = solve(
        preempt_or_continue(UNIX_S), solver=solver, time_limit_s=20, workers=1, isolate=False
    )
    assert found.plan is not None and found.plan.jobs[0].decision == "preempt"
    assert (found.status, found.value) == ("optimal", 4 * UNIX_S + 1770)
    assert found.bound is not None and found.bound > 4 * UNIX_S + 1769.99


@pytest.mark.parametrize("objective", ("flow2", "tardiness2"))
def test_squares_over_a_long_past_are_proved(objective: str) -> None:
    for now_s in (1e4, 1e6, UNIX_S):
        instance = preempt_or_continue(now_s)
        jobs = tuple(replace(job, deadline_s=300.0) for job in instance.jobs)
        found = solve(replace(instance, jobs=jobs), objective, workers=1, isolate=False)
        assert found.plan is not None and found.plan.jobs[0].decision == "preempt"
        assert found.status == "optimal" and not any("no plan" in note for note in found.notes)


@pytest.mark.parametrize("solver", ("cpsat", "milp"))
@pytest.mark.parametrize("objective", ("tail,wct", "deadline,wct"))
def test_a_level_keeps_what_was_found_in_full(solver: str, objective: str) -> None:
    instance = preempt_or_continue(UNIX_S)
    jobs = [
        replace(job, weight=1e6 if job.id == "patient" else 1.0, deadline_s=UNIX_S)
        for job in instance.jobs
    ]
    assert_true(replace(instance, jobs=tuple(jobs)), objective, solver)


@pytest.mark.parametrize("solver", ("cpsat", "milp"))
def test_a_huge_weight_hides_no_better_plan(solver: str) -> None:
    instance = preempt_or_continue(0.0)
    huge = Job(id="huge", duration_s=1000.0, weight=1e9, profile=Profile(rate={"c": 1.0}))
    cluster = Cluster(nodes=(*instance.cluster.nodes, Node(name="c", gpu_type="c", gpus=1)))
    instance = replace(instance, cluster=cluster, jobs=(*instance.jobs, huge))
    found = solve(instance, solver=solver, time_limit_s=20, workers=1, isolate=False)
    assert (found.status, found.value) == ("optimal", 1e12 + 1770)


@pytest.mark.parametrize("solver", ("cpsat", "milp"))
def test_a_huge_weight_of_who_cannot_be_late_hides_no_better_plan(solver: str) -> None:
    """A nanosecond of tardiness would be worth more than all energy."""
    nodes = tuple(Node(name=name, gpu_type=name, gpus=1) for name in "ab")
    profile = Profile(power_w={"a": 300.0, "b": 100.0})
    job = Job(id="job", duration_s=1.0, deadline_s=1e6, weight=1e9, profile=profile)
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(job,))
    found = solve(instance, "tardiness+energy", solver=solver, workers=1, isolate=False)
    assert (found.status, found.value) == ("optimal", pytest.approx(100 / 3.6e6))


@pytest.mark.parametrize("solver", ("cpsat", "milp"))
def test_a_slower_mode_may_reach_cheaper_nodes(solver: str) -> None:
    """With two cores a GPU half of the gang fits on the node that is free; with three it is faster
    and all of it must be paid for."""
    paid, free = Node(name="paid", gpus=3), Node(name="free", gpus=2, cpus=2, gpu_price_per_h=0.0)
    gang = Job(id="gang", gpus=2, duration_s=4.0, profile=Profile(cpus_per_gpu={2: 1.0, 3: 1.25}))
    instance = Instance(cluster=Cluster(nodes=(paid, free)), jobs=(gang,))
    assert_true(instance, "cost", solver)


@pytest.mark.parametrize("solver", ("cpsat", "milp"))
def test_a_node_outside_all_racks_is_as_one(solver: str) -> None:
    """A gang that is as fast within a rack as on one node has no alternative for one node."""
    nodes = (Node(name="alone", gpus=2), *(Node(name=n, gpus=1, rack="r") for n in "ab"))
    gang = Profile(locality=Locality(cluster=0.5))
    jobs = tuple(
        Job(id=f"{gpus} x {duration_s:g} s", gpus=gpus, duration_s=duration_s, profile=gang)
        for gpus, duration_s in ((1, 3.0), (1, 2.0), (2, 1.0), (2, 4.0))
    )
    assert_true(Instance(cluster=Cluster(nodes=nodes), jobs=jobs), "makespan", solver)


def assert_true(instance: Instance, objective: str, solver: str, seconds: float = 20) -> None:
    """Nothing that is said of the answer is refuted by the exhaustive search, and the verifier
    rejects no plan."""
    goal = parse(objective)
    best = brute_force.optimum(instance, goal)
    found = solve(
        instance, objective, solver=solver, time_limit_s=seconds, workers=1, isolate=False
    )
    if best is None:
        assert found.status in ("infeasible", "unknown")
        return
    assert found.plan is not None and found.fallback is None, found
    assert not any(
        "verifier" in note or "claimed" in note or "wrong" in note for note in found.notes
    ), found.notes
    for level, optimum, by in zip(
        found.levels, best[0], yardsticks(instance, goal, False), strict=True
    ):
        assert level.value is not None and math.isfinite(level.value)
        if level.bound is not None:
            assert not by.refutes(optimum, level.bound), (level, optimum, found)
        if found.status == "optimal":
            stated = (
                CLOSED_GAP * max(0.0, level.value - by.certain)
                + by.rounding
                + 1e-14 * abs(level.value)
            )
            assert level.value - optimum <= stated, (level, optimum, found)
        if by.differ(level.value, optimum):
            return  # what is said of later levels is about other plans


@pytest.mark.parametrize("solver", ("cpsat", "milp"))
@pytest.mark.parametrize("objective", OBJECTIVES)
@given(instance=stretched())
@settings(max_examples=4)
def test_optimal_is_true(solver: str, objective: str, instance: Instance) -> None:
    assume(instance.jobs and not find_faults(instance))
    assert_true(instance, objective, solver, seconds=2)


@pytest.mark.parametrize("solver", ("cpsat", "milp"))
@given(instance=stretched(), objective=goals())
@settings(max_examples=30)
def test_optimal_is_true_of_sums(solver: str, instance: Instance, objective: str) -> None:
    assume(instance.jobs and not find_faults(instance))
    assert_true(instance, objective, solver, seconds=2)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ("cpsat", "milp"))
@given(instance=stretched(), objective=goals())
@settings(max_examples=2000)
def test_optimal_is_true_of_sums_at_length(solver: str, instance: Instance, objective: str) -> None:
    assume(instance.jobs and not find_faults(instance))
    assert_true(instance, objective, solver)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ("cpsat", "milp"))
@pytest.mark.parametrize("objective", OBJECTIVES)
@given(instance=stretched())
@settings(max_examples=150)
def test_optimal_is_true_at_length(solver: str, objective: str, instance: Instance) -> None:
    assume(instance.jobs and not find_faults(instance))
    assert_true(instance, objective, solver)
