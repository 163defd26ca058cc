"""Durations and shares as command line arguments."""

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
