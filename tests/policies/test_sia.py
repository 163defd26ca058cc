"""Sia: the integer program by brute force, and its rule by hand on small clusters."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Job, Node, Profile
from optsched.model.job import Elastic
from optsched_solvers.policies.parts.configuration_choice import Configuration, choose
from tests.policies.verified import plan_of, times, where

ROWS = 2


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[Configuration]], list[int]]:
    rows = draw(st.integers(1, ROWS))
    jobs = []
    for _ in range(draw(st.integers(1, 4))):
        ways = [
            Configuration(
                draw(st.integers(1, 40)) / 8,
                ((draw(st.integers(0, rows - 1)), draw(st.integers(1, 4))),),
            )
            for _ in range(draw(st.integers(0, 4)))
        ]
        jobs.append([*ways, Configuration(draw(st.integers(1, 80)) / 8)])
    return jobs, draw(st.lists(st.integers(0, 6), min_size=rows, max_size=rows))


def total(
    jobs: list[list[Configuration]], room: list[int], chosen: tuple[int, ...]
) -> float | None:
    """The cost of a choice; None where there is no room for it."""
    left = list(room)
    for ways, i in zip(jobs, chosen, strict=True):
        for row, amount in ways[i].use:
            left[row] -= amount
    return (
        None if min(left) < 0 else sum(ways[i].cost for ways, i in zip(jobs, chosen, strict=True))
    )


@given(problem=problems())
@settings(max_examples=60)
def test_the_choice_is_the_best_of_all(
    problem: tuple[list[list[Configuration]], list[int]],
) -> None:
    jobs, room = problem
    every = itertools.product(*(range(len(ways)) for ways in jobs))
    least = min(cost for chosen in every if (cost := total(jobs, room, chosen)) is not None)
    found = choose(jobs, room)
    assert found.proven
    assert total(jobs, room, found.chosen) == pytest.approx(least, abs=1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_prices_rule_out_nothing_that_is_needed(seed: int) -> None:
    # Large enough for prices. A second row that cannot bind changes nothing, so that dynamic
    # programming over the first says what is best.
    draw = np.random.default_rng(seed)
    jobs = []
    for _ in range(45):
        bend, speed = draw.uniform(0.02, 0.5), draw.choice([0.5, 1.0, 2.0])
        ways = [
            Configuration(
                float((speed * gpus / (1 + bend * (gpus - 1))) ** -0.5), ((0, gpus), (1, 1))
            )
            for gpus in (1, 2, 3, 4, 6, 8, 12, 16, 24)
        ]
        jobs.append([*ways, Configuration(1.6)])
    single = [[Configuration(way.cost, way.use[:1]) for way in ways] for ways in jobs]
    best, found = choose(single, [70]), choose(jobs, [70, 1000])
    assert best.proven
    assert found.proven
    cost, least = total(jobs, [70, 1000], found.chosen), total(single, [70], best.chosen)
    assert least is not None
    assert cost == pytest.approx(least, abs=1e-4)


def elastic(
    name: str, work_s: float, rates: dict[int, float], kinds: dict[str, float] | None = None
) -> Job:
    return Job(
        id=name,
        duration_s=work_s,
        gpus=Elastic(min=min(rates), max=max(rates)),
        profile=Profile(gpus=rates, rate=kinds or {}),
    )


def test_counts_are_powers_of_two_that_double() -> None:
    nodes = (Node(name="n0", gpus=4),)
    found = plan_of("sia", elastic("a", 1000.0, {1: 1.0, 2: 1.9, 3: 2.7, 4: 3.4}), nodes=nodes)["a"]
    # At 60 s a restart counts 60 / 90 (no start-up was measured: 30 s) of 1.9, at 120 s (120 - 30)
    # / 150 of 3.4 against 1.9; three GPUs are no configuration.
    assert [sum(slots.values()) for slots in where(found)] == [1, 2, 4]
    assert [start for start, _ in times(found)] == [0, 60, 120]


def test_it_weighs_gpu_types_by_goodput() -> None:
    nodes = (Node(name="k0", gpu_type="k80", gpus=1), Node(name="v0", gpu_type="v100", gpus=1))
    a = elastic("a", 60.0, {1: 1.0}, {"k80": 1.0, "v100": 2.0})
    b = elastic("b", 60.0, {1: 1.0}, {"k80": 1.0, "v100": 5.0})
    found = plan_of("sia", a, b, nodes=nodes)
    # a on k80, b on v100: 1 + 5^-0.5 = 1.45; the other way round 2^-0.5 + 1 = 1.71.
    assert [where(found[name])[0] for name in "ab"] == [{"k0": 1}, {"v0": 1}]


def test_a_rigid_job_counts_with_its_gpus() -> None:
    nodes = (Node(name="n0", gpus=2),)
    rigid, small = Job(id="r", gpus=2, duration_s=60.0), elastic("s", 60.0, {1: 1.0})
    found = plan_of("sia", rigid, small, Job(id="t", gpus=1, duration_s=60.0), nodes=nodes)
    # The two small ones cost 1 + 1 + 1.1 without the rigid one; with it alone 2^-0.5 + 2 x 1.1 =
    # 2.91 is less than 3.1.
    assert times(found["r"])[0][0] == 0
    assert times(found["s"])[0][0] >= 60


def test_somebody_is_left_out_where_gpus_are_short() -> None:
    nodes = (Node(name="n0", gpus=2),)
    found = plan_of("sia", *(elastic(name, 50.0, {1: 1.0, 2: 2.0}) for name in "abc"), nodes=nodes)
    assert sum(times(found[name])[0][0] == 0 for name in "abc") == 2
