"""Durations and shares as command line arguments."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import click

from ...duration import parse_duration
from ...plugins.options import parse_share


def duration(value: str) -> float:
    """Read an option that is a length of time above zero, in seconds."""
    seconds = cost(value)
    if seconds <= 0:
        raise click.BadParameter(f"{value!r} must be above zero")
    return seconds


def cost(value: str) -> float:
    """Read an option that is a length of time or zero, in seconds."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def share(value: str) -> float:
    """Read an option that is a share, as `1%` or `0.01`."""
    try:
        return parse_share(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def instant_s(text: str, since_s: float, direction: int = 1) -> float:
    """Return the Unix time of a clock time (18:00), a date or a length of time after an instant
    (2h, +2h, now+2h, now), or before it where `direction` is -1: dates go first there. Raises
    ValueError."""

    def distance(text: str) -> float:
        if text == "now":
            return since_s
        return since_s + direction * parse_duration(text.removeprefix("now").removeprefix("+"))

    def date(text: str) -> float:
        at = datetime.fromisoformat(text)
        if not 1970 <= at.year <= 2200:
            raise ValueError(text)
        return at.timestamp()

    def clock(text: str) -> float:
        since = datetime.fromtimestamp(since_s)
        at = datetime.combine(since, datetime.strptime(text, "%H:%M").time())
        late = at <= since if direction > 0 else at > since
        return (at + timedelta(days=direction) if late else at).timestamp()

    for read in (*(distance, date)[::direction], clock):
        with suppress(ValueError, OverflowError, OSError):
            return read(text.strip())
    raise ValueError(text)


def _instant(direction: int, wrong: str) -> Callable[[str], float]:
    """Return what reads an option that is an instant to come (1) or past (-1), as Unix time."""

    def instant(value: str) -> float:
        try:
            return instant_s(value, time.time(), direction)
        except ValueError:
            raise click.BadParameter(f"{value!r} {wrong}") from None

    return instant


deadline = _instant(
    1, "is neither a time from now (2h), a clock time (18:00) nor a date (2030-01-31T18:00)"
)
past = _instant(
    -1, "is not an instant; write 2026-05-01, 2026-05-01T14:30, 14:30, or 2h for so long ago"
)
