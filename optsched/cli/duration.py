"""Durations as command line arguments."""

from typing import Any

import click

from ..duration import parse_duration


class Duration(click.ParamType):
    """A length of time above zero on the command line, in seconds for the command."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"{value!r} must be above zero", param, ctx)
        return seconds
