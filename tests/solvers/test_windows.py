"""Whole plans beside windows, by hand; random ones are in `test_cpsat` and `oracles`."""

from dataclasses import replace
from typing import Any

import pytest

from optsched import Cluster, Instance, Job, Mode, Node, Plan, Profile, Running, Slot, verify
from optsched.engine import solve
from optsched.model.cluster import Window
from optsched.objectives import parse
from optsched.plugins import registry

NODES = (Node(name="a", gpus=2), Node(name="b", gpus=2))
WHOLE = Mode(gpus=2)


def instance(*windows: Window, **more: Any) -> Instance:
    """Five jobs of 1 or 2 GPUs and 10 to 14 s, on two nodes."""
    jobs = tuple(Job(id=f"j{i}", gpus=1 + i % 2, duration_s=10.0 + i) for i in range(5))
    given = {"cluster": Cluster(nodes=NODES, windows=windows), "jobs": jobs}
    return Instance(**(given | more))


def running(job: Job, left_s: float = 20.0) -> dict[str, Any]:
    """`job` runs on all of node a."""
    entry = Running(job=job.id, mode=WHOLE, placement=(Slot(node="a", gpus=2),), remaining_s=left_s)
    return {"jobs": (job,), "running": (entry,)}


def starts(plan: Plan | None) -> dict[str, list[tuple[float, float]]]:
    assert plan is not None
    return {job.id: [(s.start_s, s.end_s) for s in job.segments] for job in plan.jobs}


def test_jobs_run_before_and_after_a_window() -> None:
    closed = instance(Window(nodes=("a", "b"), from_s=12.0, to_s=100.0))
    solution = solve(closed, "wct", solver="cpsat", workers=1, isolate=False, time_limit_s=60.0)
    assert solution.status == "optimal" and solution.fallback is None
    ends = sorted(end_s for [(_, end_s)] in starts(solution.plan).values())
    assert ends[:3] == [10.0, 11.0, 12.0] and min(ends[3:]) >= 110.0


def test_a_drain_without_an_end_leaves_the_plan_to_the_other_nodes() -> None:
    drained = instance(Window(nodes=("a",), from_s=5.0, to_s=1e10))
    alone = instance(cluster=Cluster(nodes=NODES[1:]))
    solution = solve(drained, "wct", solver="cpsat", isolate=False, time_limit_s=60.0)
    assert solution.status == "optimal"
    assert (
        solution.value
        == solve(alone, "wct", solver="cpsat", isolate=False, time_limit_s=60.0).value
    )


def test_where_all_nodes_are_drained_the_bound_is_low_and_holds() -> None:
    for to_s in (1e7, 1e9):
        drained = instance(Window(nodes=("a", "b"), from_s=5.0, to_s=to_s))
        solution = solve(drained, "wct", solver="cpsat", isolate=False, time_limit_s=5.0)
        assert solution.value is not None and solution.bound is not None
        assert solution.bound <= solution.value >= to_s


def test_a_running_job_makes_way_now_where_it_would_meet_a_window() -> None:
    window = Window(nodes=("a",), from_s=15.0, to_s=50.0)
    job = Job(id="j", gpus=2, duration_s=20.0, profile=Profile(checkpoint_s=2.0, restore_s=1.0))
    solution = solve(
        instance(window, **running(job)), "wct", solver="cpsat", isolate=False, time_limit_s=60.0
    )
    assert starts(solution.plan) == {"j": [(0.0, 2.0), (2.0, 23.0)]}
    assert solution.status == "optimal" and solution.plan is not None
    assert solution.plan.jobs[0].segments[1].placement[0].node == "b"
    for until_s in (15.0, 20.0):  # done by then, or cannot save
        stays = replace(job, preemptible=until_s == 15.0)
        whole = instance(window, **running(stays, until_s))
        plan = solve(whole, "wct", solver="cpsat", isolate=False, time_limit_s=60.0).plan
        assert starts(plan) == {"j": [(0.0, until_s)]}


@pytest.mark.parametrize(
    ("solver", "more", "says"),
    [
        ("milp", {}, "there are windows, which its model does not know"),
        (
            "cpsat",
            {"min_run_s": 16.0},
            "running job j may not be preempted yet, but is to make way",
        ),
    ],
)
def test_what_is_not_planned_is_said(solver: str, more: dict[str, Any], says: str) -> None:
    job = Job(id="j", gpus=2, duration_s=20.0, **more)
    whole = instance(Window(nodes=("a",), from_s=15.0, to_s=50.0), **running(job))
    reason = registry.solver(solver).supports(whole, parse("wct"))
    assert reason is not None and says in reason
    assert solve(whole, "wct", solver=solver, isolate=False, time_limit_s=60.0).fallback is not None


def test_who_cannot_save_and_holds_more_than_a_window_leaves_is_said() -> None:
    job = Job(id="j", gpus=2, duration_s=20.0, resources={"kw": 2.0}, preemptible=False)
    cluster = Cluster(
        nodes=NODES,
        resources={"kw": 3.0},
        windows=(Window(from_s=5.0, to_s=50.0, resources={"kw": 1.0}),),
    )
    whole = instance(cluster=cluster, **running(job))
    entry = replace(whole.running[0], mode=replace(WHOLE, resources={"kw": 2.0}))
    reason = registry.solver("cpsat").supports(replace(whole, running=(entry,)), parse("wct"))
    short = "running jobs hold more kw than maintenance leaves"
    assert reason == f"{short}, and not all of them can save in time"


def test_side_constraints_and_windows_hold_together() -> None:
    late = Window(nodes=("a",), from_s=1e6, to_s=2e6, resources={"kw": 0.0})
    windows = (Window(nodes=("a", "b"), from_s=12.0, to_s=100.0), late)
    closed = instance(cluster=Cluster(nodes=NODES, resources={"kw": 1.0}, windows=windows))

    def last(model: Any, variables: Any) -> None:
        for name in variables:
            model.add(variables["j4"].start <= variables[name].start)

    solution = solve(
        closed, "wct", solver="cpsat", isolate=False, time_limit_s=60.0, constrain=last
    )
    assert solution.plan is not None and verify(closed, solution.plan).ok
    begun = {name: own[0][0] for name, own in starts(solution.plan).items()}
    assert begun["j4"] == min(begun.values()) and not any(
        12 <= at_s < 100 for at_s in begun.values()
    )


@pytest.mark.parametrize(("from_s", "is_sound"), [(10.0, True), (9.9999, False)])
def test_a_plan_overlaps_no_window_by_more_than_rounding(from_s: float, is_sound: bool) -> None:
    free = instance(jobs=(Job(id="j", duration_s=10.0),))
    plan = solve(free, "wct", solver="cpsat", isolate=False, time_limit_s=60.0).plan
    assert plan is not None
    closed = instance(Window(nodes=("a", "b"), from_s=from_s, to_s=20.0), jobs=free.jobs)
    assert verify(closed, plan).ok == is_sound
