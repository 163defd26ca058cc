"""Durations and shares as command line arguments."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

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


def _instant(direction: int, wrong: str) -> Callable[[str], float]:
    """Return what reads an option that is a date, or a time before (-1) or from (1) now, as Unix
    time: dates first where they lie in the past."""

    def from_now(value: str) -> float:
        return time.time() + direction * parse_duration(value.removeprefix("+"))

    def date(value: str) -> float:
        return datetime.fromisoformat(value).timestamp()

    def instant(value: str) -> float:
        for read in (from_now, date)[::direction]:
            with suppress(ValueError, OverflowError, OSError):
                return read(value)
        raise click.BadParameter(f"{value!r} {wrong}")

    return instant


deadline = _instant(1, "is neither a time from now (2h) nor a date (2030-01-31T18:00)")
past = _instant(-1, "is not an instant; write 2026-05-01, 2026-05-01T14:30, or 2h for so long ago")
