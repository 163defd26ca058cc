"""What the commands that look back have in common: which journal, and instants."""

import math
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def clock_text(at_s: float) -> str:
    """Return the local date and time."""
    if not math.isfinite(at_s):
        return "-"
    return datetime.fromtimestamp(at_s).strftime("%Y-%m-%d %H:%M:%S")
