"""Fixed rounds: decisions on the grid only, and none where nothing has happened."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Instance, Job, Plan
from optsched.driver.world import World
from optsched.errors import InputError
from optsched.model.plan import Segment
from optsched.objectives import parse
from optsched.physics import TIME_TOLERANCE_S
from optsched.plugins.registry import names, policy
from optsched.simulate.events import first_round_s
from optsched.simulate.run import simulate
from tests.clusters import one_node
from tests.verified import checked

from .random_instances import instances
from .sharing_policy import StartsBeside
from .test_beside import sharing_instances

WCT = parse("wct")
ONE = one_node("n0", gpus=1)


def off_grid_s(instance: Instance, round_s: float, time_s: float) -> float:
    """How long after a round."""
    return (time_s - instance.now_s + 1e-6) % round_s - 1e-6


def check(instance: Instance, plan: Plan, round_s: float) -> None:
    """Sound, and whatever begins, but for going on with another partner, begins at a round (or
    after the pause without which a job that comes back to its GPUs would seem never to have left
    them)."""
    checked(instance, plan)
    for entry in plan.jobs:
        last: Segment | None = None
        for segment in entry.segments:
            goes_on = (
                last is not None
                and last.end_s == segment.start_s
                and last.placement == segment.placement
            )
            assert (
                goes_on
                or off_grid_s(instance, round_s, segment.start_s) <= 2 * TIME_TOLERANCE_S + 1e-6
            )
            last = segment


@given(
    instance=instances(),
    name=st.sampled_from(names("policies")),
    round_s=st.sampled_from([1.0, 7.3, 60.0]),
)
@settings(max_examples=60)
def test_nothing_starts_off_the_grid(instance: Instance, name: str, round_s: float) -> None:
    plan = simulate(instance, policy(name), round_s=round_s)
    check(instance, plan, round_s)
    assert simulate(instance, policy(name), round_s=round_s) == plan


@given(instance=sharing_instances(), round_s=st.sampled_from([1.0, 7.3]))
@settings(max_examples=50)
def test_nor_do_pairs(instance: Instance, round_s: float) -> None:
    check(instance, simulate(instance, StartsBeside(), round_s=round_s), round_s)


class Counted:
    """Starts what fits, in order, and remembers when it was asked."""

    name = title = "counted"

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    def decide(self, world: World) -> None:
        self.asked_s.append(world.now_s)
        for job_id in list(world.waiting):
            if (found := world.fit(job_id)) is not None:
                world.start(job_id, *found)


def test_gpus_that_come_free_wait_for_the_next_round() -> None:
    jobs = (
        Job(id="a", duration_s=25.0),
        Job(id="b", duration_s=10.0),
        Job(id="c", duration_s=1.0, submit_s=141.0),
    )
    instance = Instance(now_s=100.0, cluster=ONE, jobs=jobs)
    plan = simulate(instance, Counted(), round_s=10.0)
    assert [(e.segments[0].start_s, e.completion_s) for e in plan.jobs] == [
        (100, 125),
        (130, 140),
        (150, 151),
    ]


def test_rounds_without_an_event_are_skipped() -> None:
    rule = Counted()
    jobs = (Job(id="a", duration_s=1000.5), Job(id="b", duration_s=1.0, submit_s=1e9))
    plan = simulate(Instance(cluster=ONE, jobs=jobs), rule, round_s=0.25)
    assert rule.asked_s == [0.0, 1000.5, 1e9, 1e9 + 1.0]
    assert plan.jobs[1].completion_s == 1e9 + 1.0


@given(instance=instances(), round_s=st.sampled_from([0.01, 2.0, 1e5]))
@settings(max_examples=50)
def test_no_more_decisions_than_events(instance: Instance, round_s: float) -> None:
    rule = Counted()
    simulate(instance, rule, round_s=round_s)
    assert len(rule.asked_s) <= 1 + 2 * len(instance.jobs)  # the start, arrivals and completions
    assert all(
        before < after for before, after in zip(rule.asked_s, rule.asked_s[1:], strict=False)
    )


def test_a_wake_up_is_heard_in_the_next_round() -> None:
    class Wakes(Counted):
        def decide(self, world: World) -> None:
            if world.now_s == 0.0:
                world.wake_at(13.0)
            elif world.now_s >= 20.0:
                super().decide(world)

    plan = simulate(
        Instance(cluster=ONE, jobs=(Job(id="a", duration_s=1.0),)), Wakes(), round_s=10.0
    )
    assert plan.jobs[0].segments[0].start_s == 20.0


@given(
    start_s=st.sampled_from([0.0, -3.3, 1.7e9, 1e10]),
    round_s=st.floats(TIME_TOLERANCE_S, 1e6),
    rounds=st.integers(0, 10**6),
    part=st.floats(0, 1),
)
def test_the_first_round_not_before_an_instant(
    start_s: float, round_s: float, rounds: int, part: float
) -> None:
    at_s = start_s + rounds * round_s
    assert first_round_s(start_s, round_s, at_s) == at_s
    time_s = at_s + part * round_s
    found = first_round_s(start_s, round_s, time_s)
    number = round((found - start_s) / round_s)
    assert found == start_s + number * round_s >= time_s > start_s + (number - 1) * round_s


@pytest.mark.parametrize("round_s", [0.0, -1.0, math.nan, math.inf, 1e-6])
def test_what_is_no_round(round_s: float) -> None:
    with pytest.raises(InputError, match="must be a length of time"):
        simulate(Instance(cluster=ONE), Counted(), round_s=round_s)


def test_progress_counts_completed_jobs() -> None:
    told: list[int] = []
    jobs = tuple(Job(id=f"j{i}", duration_s=1.0) for i in range(3))
    simulate(Instance(cluster=ONE, jobs=jobs), Counted(), on_progress=told.append)
    assert told == [0, 1, 2, 3]
