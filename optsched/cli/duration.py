"""Durations as command line arguments."""

import click

from ..duration import parse_duration


def duration(value: str) -> float:
    """The type of an option that is a length of time above zero; the command gets seconds."""
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if seconds <= 0:
        raise click.BadParameter(f"{value!r} must be above zero")
    return seconds
