"""Durations as people write and read them."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.cli.parts.duration import instant_s
from optsched.duration import human, parse_duration

GOOD = {
    "90": 90,
    "90s": 90,
    "5m": 300,
    "5min": 300,
    "2h": 7200,
    "1.5h": 5400,
    "500ms": 0.5,
    "1d": 86400,
    "1h30m": 5400,
    "1h 30m 5s": 5405,
    " 10 s ": 10,
    ".5s": 0.5,
    "0": 0,
}
BAD = [
    "",
    " ",
    "s",
    "h2",
    "-5",
    "-5s",
    "5x",
    "nan",
    "inf",
    "1e3",
    "5m30",
    "5 5",
    "1,5h",
    "10 seconds",
    "٣s",
    "1h-5m",
]


@pytest.mark.parametrize(("text", "seconds"), GOOD.items())
def test_good(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", BAD)
def test_bad_says_what_would_be_right(text):
    with pytest.raises(ValueError, match="90, 90s, 5m, 2h"):
        parse_duration(text)


def test_three_centuries_are_the_limit():
    with pytest.raises(ValueError, match="three centuries"):
        parse_duration("9" * 400 + "d")


@given(st.text("0123456789smhdine.- +", max_size=8))
def test_anything_is_a_duration_or_a_value_error(text):
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.012, "12 ms"),
        (1.5, "1.5 s"),
        (45, "45 s"),
        (59.99, "1 min"),
        (60, "1 min"),
        (80, "1 min 20 s"),
        (3599.6, "1 h"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400, "1 d"),
        (360000, "4 d 4 h"),
        (-90, "-1 min 30 s"),
        (10**8, "1,157 d 10 h"),
    ],
)
def test_human(seconds, text):
    assert human(seconds) == text


@given(st.floats(0.001, 1e9))
def test_human_is_right_to_its_smaller_unit(seconds):
    shown = human(seconds)
    parts = shown.replace(",", "").split()
    length = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400}
    total = sum(
        float(number) * length[unit] for number, unit in zip(parts[::2], parts[1::2], strict=True)
    )
    assert total == pytest.approx(seconds, rel=0.03)


NOON = datetime(2026, 8, 3, 12, 0)


@pytest.mark.parametrize(
    ("text", "to_come", "past"),
    [
        ("now", NOON, NOON),
        ("2h", NOON + timedelta(hours=2), NOON - timedelta(hours=2)),
        ("+2h", NOON + timedelta(hours=2), NOON - timedelta(hours=2)),
        ("now+30m", NOON + timedelta(minutes=30), NOON - timedelta(minutes=30)),
        ("18:00", datetime(2026, 8, 3, 18), datetime(2026, 8, 2, 18)),
        ("07:30", datetime(2026, 8, 4, 7, 30), datetime(2026, 8, 3, 7, 30)),
        ("12:00", datetime(2026, 8, 4, 12), NOON),
        ("2026-08-05 18:00", datetime(2026, 8, 5, 18), datetime(2026, 8, 5, 18)),
        ("2026-08-05", datetime(2026, 8, 5), datetime(2026, 8, 5)),
    ],
)
def test_instants_are_read_as_people_write_them(text, to_come, past):
    assert instant_s(text, NOON.timestamp()) == to_come.timestamp()
    assert instant_s(text, NOON.timestamp(), -1) == past.timestamp()


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize(
    "text", ["", "25:00", "tomorrow", "nan", "1e300", "9999-01-01", "now-2h", "nownow", "12:00x"]
)
def test_what_is_no_instant(text, direction):
    with pytest.raises(ValueError):
        instant_s(text, NOON.timestamp(), direction)
