"""What a caller may ask of a solve: a plan to start from, a gap that is enough, a log, side
constraints."""

import random
from dataclasses import replace
from typing import Any

import pytest

from optsched.engine import solve
from optsched.errors import InputError
from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.model.plan import Plan
from optsched.objectives import parse
from optsched.verify import verify

INSTANCE = Instance(
    cluster=Cluster(nodes=tuple(Node(name=name, gpu_type="x", gpus=4) for name in "ab")),
    jobs=tuple(Job(id=f"j{i}", gpus=1 + i % 4, duration_s=600.0 * (1 + i % 3)) for i in range(8)),
)


def apart(model: Any, variables: Any) -> None:
    """`j1` starts 20 min after `j0` has ended, which does not start before 10 min and runs on b."""
    model.add(variables["j1"].start >= variables["j0"].end + variables.ticks(1200))
    model.add(variables["j0"].start >= variables.tick(600))
    model.add(variables["j0"].on["b"] == 1)


def together_or_never(model: Any, variables: Any) -> None:
    model.add(variables["j0"].start >= variables["j1"].end)
    model.add(variables["j1"].start >= variables["j0"].end)


def slow_plan() -> Plan:
    """A valid plan that no policy gives: every job after the one before."""
    chained = replace(
        INSTANCE,
        jobs=tuple(
            replace(job, after=(INSTANCE.jobs[i - 1].id,) if i else ())
            for i, job in enumerate(INSTANCE.jobs)
        ),
    )
    plan = solve(chained, solver="fifo").plan
    assert plan is not None
    return plan


def test_a_better_initial_plan_is_the_answer() -> None:
    best = solve(INSTANCE, time_limit_s=5)
    again = solve(INSTANCE, time_limit_s=0.3, solver="milp", initial=best)
    assert again.value is not None and best.value is not None
    assert again.value <= best.value
    assert not any("initial plan" in note for note in again.notes)


def test_an_initial_plan_is_verified_and_of_another_job_set_used_for_its_order() -> None:
    plan = slow_plan()
    values = verify(INSTANCE, plan, parse("wct")).values
    assert values is not None
    part = solve(INSTANCE, time_limit_s=0.3, initial=Plan(jobs=plan.jobs[2:]))
    assert any("gives only the order of jobs: it plans 6 of 8 jobs" in note for note in part.notes)
    assert part.value is not None and part.value <= values[0]
    early = replace(plan.jobs[1], segments=plan.jobs[0].segments)
    wrong = solve(INSTANCE, time_limit_s=0.3, initial=Plan(jobs=(plan.jobs[0], early)))
    assert any(note.startswith("the initial plan gives only") for note in wrong.notes)
    with pytest.raises(InputError, match="the initial plan"):
        solve(INSTANCE, initial="plan.json")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="policy fifo takes no plan to start from"):
        solve(INSTANCE, initial=plan, solver="fifo")


def test_the_search_ends_at_the_gap_asked_for() -> None:
    solution = solve(INSTANCE, time_limit_s=60, gap=0.5)
    assert solution.gap is not None and 0 < solution.gap <= 0.5 and solution.status == "feasible"
    assert solution.wall_s is not None and solution.wall_s < 30
    assert any("ended at a gap of at most 0.5" in note for note in solution.notes)
    with pytest.raises(InputError, match="gap -1"):
        solve(INSTANCE, gap=-1)


def test_the_log_has_the_lines_of_engine_and_solver() -> None:
    lines: list[str] = []
    solve(INSTANCE, "makespan", time_limit_s=5, log=lines.append)
    assert any("makespan: value " in line for line in lines)
    assert any("CP-SAT solver" in line for line in lines)


@pytest.mark.parametrize("here", [False, True])
def test_side_constraints_hold_and_their_bound_is_not_the_instance_s(here: bool) -> None:
    def in_closure(model: Any, variables: Any) -> None:
        apart(model, variables)

    free = solve(INSTANCE, time_limit_s=10)
    solution = solve(INSTANCE, time_limit_s=10, constrain=in_closure if here else apart)
    assert solution.plan is not None and solution.value is not None
    jobs = {entry.id: entry for entry in solution.plan.jobs}
    first = jobs["j0"].segments[0]
    assert first.start_s >= 600 and {slot.node for slot in first.placement} == {"b"}
    assert jobs["j1"].segments[0].start_s >= jobs["j0"].completion_s + 1200
    assert free.value is not None and solution.value > free.value
    assert solution.bound is not None and solution.bound <= free.value
    assert solution.status == "feasible"
    assert any("with the side constraints wct is at least" in note for note in solution.notes)
    assert any("cannot be sent to another process" in note for note in solution.notes) == here


def test_under_side_constraints_an_initial_plan_is_a_hint() -> None:
    plan = slow_plan()
    whole = solve(INSTANCE, time_limit_s=10, constrain=apart, initial=plan)
    part = solve(INSTANCE, time_limit_s=10, constrain=apart, initial=Plan(jobs=plan.jobs[2:]))
    assert whole.value == part.value is not None
    assert not any("initial plan" in note for note in whole.notes)
    assert "the initial plan is not used: it plans 6 of 8 jobs" in part.notes


def test_side_constraints_that_nothing_meets_leave_no_plan_and_prove_nothing() -> None:
    solution = solve(INSTANCE, time_limit_s=10, constrain=together_or_never)
    assert solution.plan is None and solution.status == "unknown"
    assert solution.fallback is not None and "no plan meets the side constraints" in (
        solution.fallback
    )
    for solver in ("milp", "fifo"):
        with pytest.raises(InputError, match="side constraints cannot be used here"):
            solve(INSTANCE, solver=solver, constrain=apart)


@pytest.mark.parametrize("seed", range(4))
def test_a_precedence_as_a_side_constraint_costs_what_it_costs_as_a_rule(seed: int) -> None:
    rng = random.Random(seed)
    jobs = tuple(
        Job(id=str(i), gpus=rng.randint(1, 4), duration_s=60.0 * rng.randint(1, 5), weight=1.0 + i)
        for i in range(5)
    )
    a, b = rng.sample(range(5), 2)
    ruled = replace(jobs[b], after=(str(a),))
    rule = solve(replace(INSTANCE, jobs=(*jobs[:b], ruled, *jobs[b + 1 :])), time_limit_s=10)

    def precede(model: Any, variables: Any) -> None:
        model.add(variables[str(b)].start >= variables[str(a)].end)

    side = solve(replace(INSTANCE, jobs=jobs), time_limit_s=10, constrain=precede)
    assert rule.status == "optimal" and side.value == rule.value
    assert any(f"wct is at least {rule.value:.10g}" in note for note in side.notes)
