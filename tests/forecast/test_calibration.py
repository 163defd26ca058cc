"""Intervals come to cover what they say, however wrong the draws are."""

import json
import math
import random

import pytest

from optsched.forecast.calibration import SHARE, Calibration


def lived(
    calibration: Calibration, seed: int, off: float, spread: float, jobs: int = 1500
) -> float:
    """The draws are off by a factor, and by another in each case; return the share of the last
    1,000 starts that came in time."""
    rng, held = random.Random(seed), []
    for i in range(jobs):
        p50_s = rng.choice([300.0, 3000.0, 30000.0])
        took_s = p50_s * off * math.exp(spread * rng.gauss(0, 1))
        calibration.given(f"j{i}", "start", 0.0, p50_s, 1.5 * p50_s)
        held.append(took_s <= calibration.told("start", p50_s, 1.5 * p50_s)[1])
        calibration.came(f"j{i}", "start", took_s)
    return sum(held[-1000:]) / 1000


@pytest.mark.parametrize("off", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("spread", [0.2, 1.5])
def test_it_covers_what_it_says(off: float, spread: float) -> None:
    calibration = Calibration()
    assert lived(calibration, 1, off, spread) == pytest.approx(SHARE, abs=0.02)
    told = calibration.coverage("start")
    assert told.compared == 1500 and told.held / told.compared == pytest.approx(SHARE, abs=0.03)
    assert calibration.told("start", 3000.0, 4500.0)[0] == pytest.approx(3000.0 * off, rel=0.3)
    assert calibration.coverage("end").compared == 0


def test_it_follows_a_change() -> None:
    calibration = Calibration()
    lived(calibration, 1, 0.5, 0.5)
    assert lived(calibration, 2, 5.0, 0.5) == pytest.approx(SHARE, abs=0.03)


def test_until_enough_is_known_the_draws_are_told() -> None:
    calibration = Calibration()
    for i in range(29):
        calibration.given(f"j{i}", "end", 0.0, 600.0, 900.0)
        calibration.came(f"j{i}", "end", 9000.0)
    assert calibration.told("end", 600.0, 900.0) == (600.0, 900.0)
    calibration.given("x", "end", 0.0, 600.0, 900.0)
    calibration.came("x", "end", 9000.0)
    assert calibration.told("end", 600.0, 900.0) == (9000.0, 9000.0)


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


def test_what_is_overdue_widens_what_is_told() -> None:
    calibration = Calibration()
    for i in range(40):
        calibration.given(f"j{i}", "start", 0.0, 100.0, 200.0)
    calibration.late(3000.0)
    assert calibration.told("start", 100.0, 200.0) == (100.0, 3000.0)
    for i in range(40):
        calibration.came(f"j{i}", "start", 4000.0)
    calibration.late(4000.0)
    assert calibration.told("start", 100.0, 200.0) == (4000.0, 4000.0)
    assert calibration.coverage("start").compared == 40


def test_what_was_learned_is_kept() -> None:
    calibration = Calibration()
    lived(calibration, 1, 2.0, 1.0, 400)
    again = Calibration.of_plain(json.loads(json.dumps(calibration.plain())))
    assert again.plain() == calibration.plain()
    assert again.told("start", 300.0, 450.0) == calibration.told("start", 300.0, 450.0)
    for faulty in ({}, {"aim": {"start": 1, "end": 1}, "held": {}}, {"aim": []}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Calibration.of_plain(faulty)
