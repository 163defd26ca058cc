"""The Gittins index against its definition, on small and on published distributions, and the order
that it makes."""

from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Instance, Job, Node
from optsched.estimates.lengths import Lengths
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched_solvers.policies.gittins import Gittins
from tests.data import DATA, needs_data
from tests.policies.verified import plan_of, times
from tests.simulate.random_instances import instances
from tests.verified import checked

ONE = (Node(name="n0", gpus=1),)


def index(services: list[float], attained: float, step: float) -> float:
    """What the rule takes it for."""
    known = Lengths(services, [1.0] * len(services))
    return float(known.index(np.array([attained]), step)[0])


def defined(services: list[float], attained: float, step: float) -> float:
    """P(S - a <= step | S > a) / E[min(S - a, step) | S > a], one job after the other."""
    left = [service - attained for service in services if service > attained]
    if not left or not any(one <= step for one in left):
        return 0.0
    return fmean(float(one <= step) for one in left) / fmean(min(one, step) for one in left)


@given(
    services=st.lists(st.integers(1, 60).map(float), min_size=1, max_size=25),
    attained=st.integers(0, 70).map(float),
    step=st.integers(1, 40).map(float),
)
@settings(max_examples=200)
def test_the_index_is_that_of_the_definition(
    services: list[float], attained: float, step: float
) -> None:
    found = index(services, attained, step)
    assert found == pytest.approx(defined(services, attained, step))


@needs_data("tiresias")
@pytest.mark.parametrize("attained", [0.0, 3250.0, 32500.0, 1e9])
def test_the_index_on_the_published_distribution(attained: float) -> None:
    rows = (DATA / "tiresias" / "yarn-gput1000.csv").read_text().split()
    services = [float(row) for row in rows if row[0].isdigit()]
    assert len(services) > 900
    found = index(services, attained, 3250.0)
    assert found == pytest.approx(defined(services, attained, 3250.0))


def history(*services_s: float) -> list[Job]:
    """Jobs that have completed by 1000, whose lengths the rule then knows."""
    return [
        Job(id=f"h{i}", duration_s=service_s, submit_s=0.01 * i)
        for i, service_s in enumerate(services_s)
    ]


def test_a_job_that_is_likely_to_end_soon_comes_first() -> None:
    # Of ten jobs nine took 10 s and one 100 s. A job that has had 20 s is one of the long ones: its
    # index falls to 0 in the steps in which none ends, so that a new one (9 / 10 to end within 20
    # s) evicts it; after 80 s it rises again.
    jobs = [
        *history(*[10.0] * 9, 100.0),
        Job(id="long", duration_s=100.0, submit_s=1000.0),
        Job(id="new", duration_s=10.0, submit_s=1030.0),
        Job(id="late", duration_s=10.0, submit_s=1095.0),
    ]
    found = plan_of("gittins", *jobs, nodes=ONE, options={"step": "20"})
    assert times(found["new"]) == [(1030, 1040)]
    # When late comes, long is in the step from 80 s, in which it ends: 1 / 20; late's index is
    # (9/10) / (9 + 2).
    assert defined([*[10.0] * 9, 100.0], 0.0, 20.0) == pytest.approx(0.9 / 11) and 0.9 / 11 > 1 / 20
    assert times(found["late"]) == [(1095, 1105)] and times(found["long"]) == [
        (1000, 1030),
        (1040, 1095),
        (1105, 1120),
    ]


def test_a_long_job_near_its_end_is_not_evicted() -> None:
    # Five jobs took 10 s and five 30 s. A new job: (5/10) / (10 x 5/10 + 10 x 5/10) = 0.05 for a
    # step of 10 s. One that has had 20 s ends within the next 10 s, 1 / 10 = 0.1. One that has had
    # 10 s: nobody ends in the next step, 0.
    base = history(*[10.0] * 5, *[30.0] * 5)
    late, early = (
        plan_of(
            "gittins",
            *base,
            Job(id="long", duration_s=30.0, submit_s=1000.0),
            Job(id="new", duration_s=10.0, submit_s=1000.0 + at_s),
            nodes=ONE,
            options={"step": "10"},
        )
        for at_s in (25.0, 15.0)
    )
    assert times(late["new"]) == [(1030, 1040)] and times(late["long"]) == [(1000, 1030)]
    assert times(early["new"]) == [(1015, 1025)]


def test_until_ten_jobs_have_completed_they_are_served_in_order_of_arrival() -> None:
    found = plan_of(
        "gittins",
        Job(id="a", duration_s=50.0),
        Job(id="b", duration_s=5.0, submit_s=1.0),
        nodes=ONE,
    )
    assert times(found["b"]) == [(50, 55)]


@given(instance=instances(), step=st.sampled_from(["2", "15"]))
@settings(max_examples=25)
def test_plans_are_sound_with_short_times(instance: Instance, step: str) -> None:
    rule = policy("gittins", options={"step": step})
    assert isinstance(rule, Gittins)
    rule.refresh_at = 2  # completions; the instances are small
    plan = simulate(instance, rule)
    checked(instance, plan)
