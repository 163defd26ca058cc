"""Intervals come to cover what they say, however wrong the draws are."""

import heapq
import json
import math
import random
from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.forecast.calibration import (
    LEAST_S,
    MOST_STEPS,
    OCCASION_S,
    SHARES,
    STEP,
    Calibration,
    censored_quantile,
)

SHARE = SHARES[-1]
FARTHEST = math.exp(STEP * MOST_STEPS)


def lived(
    calibration: Calibration, seed: int, off: float, spread: float, jobs: int = 1500
) -> float:
    """The draws are off by a factor, and by another in each case; return the share of the last
    1,000 starts that came in time."""
    rng, held = random.Random(seed), []
    for i in range(jobs):
        p50_s = rng.choice([300.0, 3000.0, 30000.0])
        took_s = p50_s * off * math.exp(spread * rng.gauss(0, 1))
        made_s = 2 * OCCASION_S * i
        calibration.given(f"j{i}", "start", made_s, p50_s, 1.5 * p50_s)
        held.append(took_s <= calibration.told("start", p50_s, 1.5 * p50_s)[1])
        calibration.came(f"j{i}", "start", made_s + took_s)
    return sum(held[-1000:]) / 1000


@pytest.mark.parametrize("off", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("spread", [0.2, 1.5])
def test_it_covers_what_it_says(off: float, spread: float) -> None:
    calibration = Calibration()
    assert lived(calibration, 1, off, spread) == pytest.approx(SHARE, abs=0.02)
    told = calibration.coverage("start")
    assert told.compared == 1500 and told.held / told.compared == pytest.approx(SHARE, abs=0.03)
    assert calibration.told("start", 3000.0, 4500.0)[0] == pytest.approx(3000.0 * off, rel=0.5)
    assert calibration.coverage("end").compared == 0


def test_it_follows_a_change() -> None:
    calibration = Calibration()
    lived(calibration, 1, 0.5, 0.5)
    assert lived(calibration, 2, 5.0, 0.5) == pytest.approx(SHARE, abs=0.03)


@settings(max_examples=6, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    drift=st.floats(-2.0, 2.0),
    spread=st.floats(0.2, 1.0),
    every_s=st.sampled_from([120.0, 600.0]),
)
def test_it_covers_what_it_says_though_it_learns_late_and_times_drift(
    seed: int, drift: float, spread: float, every_s: float
) -> None:
    """A job comes now and then, up to dozens before those that came earlier start; by how much the
    draws are off rises or falls by a factor of up to e^2 on the way."""
    rng, calibration, jobs, held = random.Random(seed), Calibration(), 500, []
    to_start: list[tuple[float, str]] = []
    for i in range(jobs):
        now_s = i * every_s
        while to_start and to_start[0][0] <= now_s:
            at_s, job = heapq.heappop(to_start)
            calibration.came(job, "start", at_s)
        calibration.late(now_s)
        took_s = 1800.0 * math.exp(drift * i / jobs + spread * rng.gauss(0, 1))
        held.append(took_s <= calibration.told("start", 1200.0, 1800.0)[1])
        calibration.given(f"j{i}", "start", now_s, 1200.0, 1800.0)
        heapq.heappush(to_start, (now_s + took_s, f"j{i}"))
    assert sum(held[100:]) / len(held[100:]) == pytest.approx(SHARE, abs=0.06)


@given(st.lists(st.integers(1, 9).map(float), min_size=1, max_size=30), st.sampled_from([0.5, 0.9]))
def test_where_all_is_known_it_is_the_conformal_quantile(came: list[float], share: float) -> None:
    place = math.ceil(share * (len(came) + 1)) - 1
    assert censored_quantile(came, [], share) == sorted(came)[min(place, len(came) - 1)]


@given(
    came=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20),
    so_far=st.lists(st.floats(0.01, 100.0), max_size=20),
    share=st.sampled_from([0.5, 0.9]),
)
def test_what_is_yet_to_come_makes_it_larger_or_is_not_known(
    came: list[float], so_far: list[float], share: float
) -> None:
    """Each that is yet to come hands its weight on to those that are larger (Efron, 1967)."""
    events = sorted([*((value, False) for value in came), *((value, True) for value in so_far)])
    weights = [1.0] * (len(events) + 1)
    for i, (_, censored) in enumerate(events):
        if censored:
            for larger in range(i + 1, len(weights)):
                weights[larger] += weights[i] / (len(weights) - i - 1)
            weights[i] = 0.0
    sums = [sum(weights[: i + 1]) for i in range(len(events))]
    place = bisect_left(sums, share * len(weights) - 1e-6)
    assert censored_quantile(came, so_far, share) == events[min(place, len(events) - 1)][0]


def test_until_enough_is_known_the_draws_are_told() -> None:
    calibration = Calibration()
    calibration.given("x", "end", 0.0, 600.0, 900.0)
    assert calibration.told("end", 600.0, 900.0) == (600.0, 900.0)
    assert calibration.told("end", 0.0, 5.0) == (0.0, LEAST_S)
    for i in range(8):
        calibration.given(f"j{i}", "end", 0.0, 600.0, 900.0)
        calibration.came(f"j{i}", "end", 9000.0)
    told_s = calibration.told("end", 600.0, 900.0)
    assert 600.0 < told_s[0] < 1000.0 and 900.0 < told_s[1] < 900.0 * FARTHEST
    calibration.came("x", "end", 9000.0)
    assert calibration.told("end", 600.0, 900.0)[1] >= 9000.0


def test_many_that_start_soon_at_once_are_little_evidence() -> None:
    calibration = Calibration()
    for i in range(40):
        made_s = 1e6 + OCCASION_S * i / 40
        calibration.given(f"j{i}", "start", made_s, 3000.0, 4500.0)
        calibration.came(f"j{i}", "start", made_s + 300.0)
    assert calibration.told("start", 3000.0, 4500.0)[1] > 4500.0 * math.exp(-0.5)
    for i in range(8):
        made_s = 2e6 + 1.1 * OCCASION_S * i
        calibration.given(f"k{i}", "start", made_s, 3000.0, 4500.0)
        calibration.came(f"k{i}", "start", made_s + 300.0)
    assert calibration.told("start", 3000.0, 4500.0)[1] < 450.0


def test_short_waits_that_hold_say_nothing_of_long_ones() -> None:
    calibration = Calibration()
    for i in range(100):
        calibration.given(f"j{i}", "start", 0.0, 0.0, 0.0)
        calibration.came(f"j{i}", "start", 5.0)
    assert calibration.told("start", 3000.0, 4500.0) == (3000.0, 4500.0)
    assert calibration.told("start", 0.0, 0.0)[1] < LEAST_S


def test_what_is_late_counts_before_it_comes() -> None:
    calibration = Calibration()
    calibration.given("x", "start", 0.0, 100.0, 200.0)
    calibration.given("y", "start", 0.0, 100.0, math.inf)
    calibration.late(200.0)
    assert calibration.coverage("start").compared == 0
    for now_s in (201.0, 1000.0):
        calibration.late(now_s)
        told = calibration.coverage("start")
        assert (told.compared, told.held) == (1, 0)
    calibration.came("x", "start", 2000.0)
    calibration.came("y", "start", 2000.0)
    assert calibration.coverage("start").compared == 1
    calibration.given("z", "start", 0.0, 100.0, 200.0)
    calibration.forget("z")
    calibration.came("z", "start", 100.0)
    assert calibration.coverage("start").compared == 1


def test_what_is_overdue_widens_what_is_told_at_once() -> None:
    calibration = Calibration()
    for i in range(40):
        calibration.given(f"j{i}", "start", 0.0, 100.0, 200.0)
    calibration.late(3000.0)
    assert 3000.0 < calibration.told("start", 100.0, 200.0)[1] <= 3000.0 * FARTHEST
    for i in range(40):
        calibration.came(f"j{i}", "start", 4000.0)
    calibration.late(4000.0)
    assert 4000.0 < calibration.told("start", 100.0, 200.0)[1] <= 4000.0 * FARTHEST
    assert calibration.coverage("start").compared == 40


def test_what_was_learned_is_kept() -> None:
    calibration = Calibration()
    lived(calibration, 1, 2.0, 1.0, 400)
    again = Calibration.of_plain(json.loads(json.dumps(calibration.plain())))
    assert again.plain() == calibration.plain()
    assert again.told("start", 300.0, 450.0) == calibration.told("start", 300.0, 450.0)
    one = {"steps": [0.0], "held": [], "ratios": []}
    for faulty in ({}, {"start": [one] * 2, "end": [one] * 2}, {"start": [], "end": []}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Calibration.of_plain(faulty)


def test_what_was_written_wrong_does_no_harm() -> None:
    ratios = [[0.0, ratio] for ratio in (math.nan, math.inf, -1.0, 0.0)]
    quantile = {"steps": [math.nan] * 5, "held": [], "ratios": [[0, ratios]]}
    calibration = Calibration.of_plain({"start": [quantile] * 2, "end": [quantile] * 2})
    assert calibration.told("start", 600.0, 900.0) == (600.0, 900.0)
