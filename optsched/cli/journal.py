"""What the commands that look back have in common: which journal, and instants."""

import math
import time
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..duration import parse_duration
from .parts.arguments import path_option

if TYPE_CHECKING:
    from ..control.journal.journal import Journal as Journal
else:  # it is imported when it is used
    Journal = Any

JOURNAL = "journal"


def reads_journal(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--config`, turned into the argument `journal`, opened for reading; a controller may go
    on writing it."""

    @wraps(command)
    def reading(config: Path, **named: Any) -> int:
        from ..control.journal.journal import Journal
        from ..control.settings import read_settings

        journal = Journal(read_settings(config).state / JOURNAL, read_only=True)
        try:
            return command(journal=journal, **named)
        finally:
            journal.close()

    return path_option(
        "--config FILE",
        "The cluster.toml whose journal to read.",
        default="cluster.toml",
        envvar="OPTSCHED_CONFIG",
    )(reading)


class Instant(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An instant in Unix time: `2026-05-01`, `2026-05-01T14:30` (local time), or `2h` (so long
    ago)."""

    name = "instant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            pass
        try:
            ago_s = parse_duration(value)
        except ValueError:
            self.fail(
                f"{value!r} is no instant; write 2026-05-01, 2026-05-01T14:30, or 2h for so long "
                "ago",
                param,
                ctx,
            )
        return time.time() - ago_s


instant = Instant()


def clock_text(at_s: float, *, seconds: bool = True) -> str:
    """Return the local date and time."""
    if not math.isfinite(at_s):
        return "-"
    return datetime.fromtimestamp(at_s).strftime(
        "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    )
