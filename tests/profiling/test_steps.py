"""Step times, against sums done by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.profiling.steps import quantile, step_times


def test_the_first_step_is_warm_up() -> None:
    marks = [(0.0, 0), (5.0, 1), *((5.0 + i, 1 + i) for i in range(1, 11))]
    found = step_times(marks)
    assert found is not None and found.warm
    assert (found.steps, found.mean_s, found.median_s, found.p90_s) == (10, 1.0, 1.0, 1.0)
    assert (found.from_s, found.to_s, found.per_mark) == (5.0, 15.0, 1)


def test_a_fifth_of_the_time_is_warm_up() -> None:
    """Ten steps of 2 s, then ten of 1 s: 30 s, so the first 6 s, three steps, are left out."""
    marks = [(2.0 * i, i) for i in range(11)] + [(20.0 + i, 10 + i) for i in range(1, 11)]
    found = step_times(marks)
    assert found is not None
    assert found.from_s == 6.0
    assert found.steps == 17
    assert found.mean_s == pytest.approx((30 - 6) / 17)
    assert found.median_s == 1.0  # ten of 17
    assert found.p90_s == 2.0


def test_reports_of_several_steps_weigh_as_many() -> None:
    marks = [(0.0, 0), (1.0, 1), (2.0, 11), (5.0, 12), (6.0, 13)]
    found = step_times(marks)
    assert found is not None
    assert found.from_s == 2.0  # 20 % of 6 s are 1.2 s
    assert (found.steps, found.mean_s) == (2, 2.0)
    found = step_times(
        [*marks, (7.0, 23), (8.0, 33)]
    )  # still from 2 s: 20 steps of 0.1 s, one of 3 s, one of 1 s
    assert found is not None
    assert (found.per_mark, found.median_s, found.p90_s) == (10, 0.1, 0.1)


def test_too_few_steps_keep_the_warm_up_and_say_so() -> None:
    found = step_times([(0.0, 0), (4.0, 1), (5.0, 2)])
    assert found is not None and not found.warm
    assert found.mean_s == 2.5


@pytest.mark.parametrize(
    "marks", [[], [(1.0, 1)], [(1.0, 1), (2.0, 1)], [(2.0, 3), (1.0, 4)], [(1.0, 5), (2.0, 2)]]
)
def test_without_two_marks_there_is_no_step_time(marks) -> None:
    assert step_times(marks) is None


def test_marks_that_go_back_are_left_out() -> None:
    found = step_times(
        [(0.0, 0), (1.0, 1), (1.5, 0), (2.0, 2), (3.0, 3), (3.0, 4), (4.0, 4), (5.0, 5)]
    )
    assert found is not None
    assert (found.mean_s, found.median_s, found.to_s) == (1.0, 1.0, 5.0)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 9)), min_size=1, max_size=30),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
)
def test_quantile_is_that_of_the_values_written_out(weighted, level) -> None:
    written_out = sorted(value for value, weight in weighted for _ in range(weight))
    assert (
        quantile(sorted(weighted), level)
        == written_out[max(0, math.ceil(level * len(written_out) - 1e-9) - 1)]
    )
