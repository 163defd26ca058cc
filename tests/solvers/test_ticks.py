import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.physics import TIME_TOLERANCE_S
from optsched_solvers.scheduling.ticks import NICE_S, Tick, choose_tick


@pytest.mark.parametrize(
    ("times", "length_s"),
    [
        ([10, 15, 0], 5.0),
        ([0.5, 2], 0.5),
        ([3600, 7200], 3600.0),
        ([0.001, 7], 0.001),
        ([0.1, 0.2, 0.1 + 0.2], 0.1),
    ],
)
def test_tick_is_the_common_divisor(times: list[float], length_s: float) -> None:
    tick = choose_tick(times, max_ticks=10**9)
    assert tick.exact
    assert tick.length_s == pytest.approx(length_s, rel=1e-12)


def test_times_off_the_millisecond_grid_are_never_exact() -> None:
    tick = choose_tick([1 / 3, 2.0], horizon_s=100.0, max_ticks=1000)
    assert not tick.exact
    assert tick.length_s == 0.1


def test_too_many_ticks_give_a_nice_coarse_grid() -> None:
    tick = choose_tick([7.0, 10_007.0], horizon_s=20_000.0, max_ticks=100)
    assert not tick.exact
    assert tick.length_s == 300.0
    assert choose_tick([7.0], horizon_s=1e9, max_ticks=10).length_s == 86400.0 * 1158


def test_no_times_or_only_zeros_make_one_tick_of_the_horizon() -> None:
    only = choose_tick([0.0], horizon_s=12.0, max_ticks=5)
    assert only.length_s == 12.0 and only.exact
    assert choose_tick([], horizon_s=0.0, max_ticks=5).length_s == 0.001


def test_unix_times_keep_their_fractions() -> None:
    now_s = 1_700_000_000.1
    tick = choose_tick([(now_s + 0.3) - now_s, 0.5], horizon_s=5.0, max_ticks=1000, now_s=now_s)
    assert tick.exact
    assert tick.length_s == 0.1
    assert tick.floor((now_s + 0.3) - now_s) == 3


def test_floor_forgives_rounding_only() -> None:
    tick = Tick(1.0, False)
    assert tick.floor(math.nextafter(3.0, 0.0)) == tick.floor(0.1 * 3 / 0.1) == 3
    assert tick.floor(2.9999999999) == 2
    assert tick.ceil(math.nextafter(3.0, 4.0)) == tick.ceil(3 * (0.1 + 0.2) / 0.3) == 3
    assert tick.ceil(3.0000000001) == 4
    assert tick.floor(-0.5) == -1


def test_a_long_time_is_not_on_the_grid_for_being_long() -> None:
    length_s = 1759430 / 0.91  # 0.44 ms beyond a multiple of 10 ms
    tick = choose_tick([length_s, 4000.0, 0.01], max_ticks=10**9)
    assert tick.seconds(tick.ceil(length_s)) >= length_s - 1e-9
    assert not tick.exact


awkward = st.one_of(
    st.floats(1e-3, 1e10, allow_nan=False),
    st.builds(
        lambda work, a, b, c: work / (a * b * c),
        st.integers(1, 10**7).map(float),
        *[st.sampled_from((1.0, 0.9, 0.91, 0.31, 0.7, 1 / 3, 1.1, 0.1))] * 3,
    ),
    st.builds(
        lambda ms, ulps: max(1e-3, ms / 1e3 + ulps * math.ulp(ms / 1e3)),
        st.integers(1, 10**9),
        st.integers(-60, 60),
    ),
)


@given(
    st.sampled_from((0.0, 1e3, 1.7e9, 1_700_000_000.1, 9.9e9)),
    st.floats(0, 1e6),
    st.lists(awkward, min_size=1, max_size=8),
)
def test_the_verifier_forgives_what_a_ceiling_leaves_out(
    now_s: float, wait_s: float, lengths_s: list[float]
) -> None:
    submit_s = now_s + wait_s
    tick = choose_tick([submit_s - now_s, *lengths_s], 10**8, wait_s + math.fsum(lengths_s), now_s)
    at, end_s = tick.ceil(submit_s - now_s), submit_s
    for length_s in lengths_s:
        start_s = max(now_s + at * tick.length_s, submit_s)
        assert start_s >= end_s - TIME_TOLERANCE_S
        end_s = start_s + length_s
        if tick.exact:
            assert tick.floor(length_s) == tick.ceil(length_s)
        at += tick.ceil(length_s)
    assert now_s + at * tick.length_s >= end_s - TIME_TOLERANCE_S


seconds = st.floats(0, 1e6, allow_nan=False)


@given(st.sampled_from(NICE_S), seconds, seconds)
def test_floored_times_never_pass_the_true_completion(
    length_s: float, start: float, run: float
) -> None:
    tick = Tick(length_s, False)
    end = tick.floor(start) + tick.floor(run)
    assert end <= tick.floor(start + run)
    assert tick.seconds(end) <= (start + run) * (1 + 3e-9)


true_jobs = st.lists(st.tuples(seconds, st.floats(0.001, 1e5)), min_size=2, max_size=6)


@given(true_jobs, st.sampled_from(NICE_S[6:]))
def test_jobs_that_share_a_tick_overlap_in_truth(
    jobs: list[tuple[float, float]], length_s: float
) -> None:
    tick = Tick(length_s, False)
    floored = [(tick.floor(s), tick.floor(p)) for s, p in jobs]
    for at, _ in floored:
        together = [jobs[i] for i, (s, d) in enumerate(floored) if s <= at < s + d]
        instant = tick.seconds(at + 1)
        slack = 3e-9 * (instant + 1e5) + 1e-9
        assert all(s < instant + slack and s + p >= instant - slack for s, p in together)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=8), st.integers(1, 10**6))
def test_choice_keeps_its_promises(times_ms: list[int], max_ticks: int) -> None:
    horizon_s = sum(times_ms) / 1e3
    tick = choose_tick([ms / 1e3 for ms in times_ms], max_ticks)
    assert horizon_s / tick.length_s <= max_ticks * (1 + 1e-6)
    if tick.exact:
        for ms in times_ms:
            assert tick.floor(ms / 1e3) == tick.ceil(ms / 1e3)
            assert math.isclose(tick.seconds(tick.floor(ms / 1e3)), ms / 1e3, rel_tol=1e-9)
