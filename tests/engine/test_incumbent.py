"""What is kept of plans and bounds."""

import math
from dataclasses import replace

import pytest

from optsched import Instance, Job, JobPlan, Mode, Plan, Profile, Running, Segment, Slot
from optsched.bounds.yardstick import Yardstick
from optsched.engine import solve
from optsched.engine.incumbent import Incumbent, is_better
from optsched.engine.plan_class import outside_class
from optsched.model.plan_types import malformed
from optsched.objectives import parse
from optsched.verify import decision_now
from tests.clusters import one_node
from tests.engine import fakes
from tests.verified import checked

Values = tuple[float, ...]
MODE = Mode(gpu_type="a100", gpus=1)


@pytest.mark.parametrize(
    ("a", "b", "better"),
    [
        ((1.0,), (2.0,), True),
        ((2.0,), (1.0,), False),
        ((1.0, 9.0), (2.0, 0.0), True),
        ((1.0, 5.0), (1.0, 6.0), True),
        ((1e6 + 1e-5, 5.0), (1e6, 6.0), True),  # the first differs by rounding only
        ((1e6 + 1.0, 5.0), (1e6, 6.0), False),
        ((0.0, 0.0), (0.0, 0.0), False),
        ((-2.0,), (-1.0,), True),
    ],
)
def test_the_first_level_that_differs_decides(a: Values, b: Values, better: bool) -> None:
    assert is_better(a, b, [ROUNDED] * len(a)) is better


ROUNDED = Yardstick(certain=0.0, rounding=1e-4, forgiven=1e-3)


def test_a_gap_is_closed_to_a_millionth_of_what_plans_can_change() -> None:
    by = Yardstick(certain=9e5, rounding=1e-6, forgiven=1e-3)
    assert by.is_closed(1e6, 1e6 - 0.09) and not by.is_closed(1e6, 1e6 - 0.11)
    assert by.is_closed(9e5, 9e5) and not by.is_closed(9e5, 9e5 - 1e-3)
    assert by.is_closed(8e5, 8e5) and not by.is_closed(
        8e5, 8e5 - 1e-3
    )  # `certain` is above it by mistake
    assert (
        not by.is_closed(None, 1.0)
        and not by.is_closed(1.0, None)
        and not by.is_closed(1.0, math.nan)
    )
    assert by.refutes(1e6, 1e6 + 0.2) and not by.refutes(1e6, 1e6 + 0.05)


def test_a_wrong_combinatorial_bound_is_dropped_and_told() -> None:
    instance = fakes.two_gpus()
    incumbent = Incumbent(instance, parse("makespan"), any_plan=False)
    incumbent.prove(0, 6.5, "area")
    assert incumbent.offer(fakes.plan_from(instance, fakes.BEST_S), "fake") is None
    assert incumbent.levels()[0].bound is None
    assert (
        "the area bound of 6.5 for makespan is wrong, a verified plan has 6"
        in incumbent.refuted_bounds[0]
    )


def test_worse_plans_do_not_replace_better_ones() -> None:
    instance = fakes.two_gpus()
    incumbent = Incumbent(instance, parse("makespan"), any_plan=False)
    for starts_s in (fakes.BEST_S, fakes.BETTER_S):
        assert incumbent.offer(fakes.plan_from(instance, starts_s), "fake") is None
    assert incumbent.values == (6.0,)


def busy() -> Instance:
    """A job runs on the only GPU, another waits; to save takes a second."""
    return Instance(
        now_s=10.0,
        cluster=one_node("n0", gpu_type="a100", gpus=1),
        jobs=(
            Job(id="r", duration_s=20.0, profile=Profile(checkpoint_s=1.0)),
            Job(id="w", duration_s=2.0, profile=Profile(checkpoint_s=0.0)),
        ),
        running=(
            Running(job="r", mode=MODE, placement=(Slot(node="n0", gpus=1),), remaining_s=10.0),
        ),
    )


def pieces(instance: Instance, **times_s: tuple[tuple[float, float], ...]) -> Plan:
    entries = []
    for job in instance.jobs:
        segments = tuple(
            Segment(start_s=start_s, end_s=end_s, mode=MODE, placement=(Slot(node="n0", gpus=1),))
            for start_s, end_s in times_s[job.id]
        )
        entries.append(
            JobPlan(id=job.id, decision=decision_now(instance, job, segments), segments=segments)
        )
    plan = Plan(jobs=tuple(entries))
    checked(instance, plan)
    return plan


def test_what_belongs_to_the_plan_class() -> None:
    one = busy()
    assert outside_class(one, pieces(one, r=((10, 20),), w=((20, 22),))) is None
    assert outside_class(one, pieces(one, r=((10, 15), (15, 20)), w=((20, 22),))) is None  # goes on
    assert (
        outside_class(one, pieces(one, r=((10, 11), (13, 23)), w=((11, 13),))) is None
    )  # saves first
    later = outside_class(one, pieces(one, r=((10, 13), (15, 23)), w=((13, 15),)))
    assert later is not None and "job r runs in 2 pieces" in later
    twice = outside_class(
        one, pieces(one, r=((10, 11), (12, 14), (15, 24)), w=((11, 12), (14, 15)))
    )
    assert twice is not None and "job r runs in 3 pieces" in twice
    waiter = outside_class(one, pieces(one, r=((10, 11), (12, 22)), w=((11, 12), (22, 23))))
    assert waiter is not None and "job w runs in 2 pieces" in waiter


def test_a_plan_outside_the_class_would_refute_right_bounds() -> None:
    one = busy()
    plan = pieces(one, r=((10, 13), (15, 23)), w=((13, 15),))
    incumbent = Incumbent(one, parse("wct"), any_plan=False)
    assert "pieces" in str(incumbent.offer(plan, "srtf")) and incumbent.plan is None
    assert Incumbent(one, parse("wct"), any_plan=True).offer(plan, "srtf") is None


def test_a_preemptive_policy_by_name_may_preempt() -> None:
    instance = Instance(
        cluster=one_node("n0", gpu_type="a100", gpus=1),
        jobs=(Job(id="long", duration_s=20.0), Job(id="short", duration_s=1.0, submit_s=5.0)),
    )
    solution = solve(instance, solver="srtf")
    assert solution.plan is not None and outside_class(instance, solution.plan) is not None
    assert solution.value == 22.0 and solution.bound is not None and solution.bound <= 22.0


SLOT = Slot(node="n0", gpus=1)
GOOD = fakes.plan_from(fakes.two_gpus(), fakes.BEST_S)


def broken(**changes: object) -> Plan:
    """A plan whose first segment is changed."""
    entry = GOOD.jobs[0]
    segment = replace(entry.segments[0], **changes)  # type: ignore[arg-type]
    return Plan(jobs=(replace(entry, segments=(segment,)), *GOOD.jobs[1:]))


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (None, "the plan is NoneType, not Plan"),
        (Plan(jobs=[]), "jobs of the plan is list, not tuple"),  # type: ignore[arg-type]
        (Plan(jobs=(3,)), "jobs[0] of the plan is int, not JobPlan"),  # type: ignore[arg-type]
        (object.__new__(Plan), "jobs of the plan is missing, not tuple"),
        (broken(start_s="0"), "start_s of segments[0] of job a is str, not float"),
        (broken(start_s=True), "start_s of segments[0] of job a is bool, not float"),
        (
            broken(mode=replace(MODE, gpus=1.0)),
            "gpus of the mode of segments[0] of job a is float, not int",
        ),
        (
            broken(mode=replace(MODE, resources={"x": None})),
            "resources of the mode of segments[0] of job a",
        ),
        (
            broken(placement=(replace(SLOT, node=4),)),
            "node of placement[0] of segments[0] of job a is int",
        ),
    ],
)
def test_types_are_checked_before_the_verifier_relies_on_them(plan: object, fault: str) -> None:
    found = malformed(plan)
    assert found is not None and found.startswith(fault)


def test_a_good_plan_has_good_types() -> None:
    assert malformed(GOOD) is None
