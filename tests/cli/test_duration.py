"""Durations as people write and read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
