"""What supervisors may say of how a command ended, and how a gang ended by that."""

from collections.abc import Mapping
from typing import Any

from ..base import SAVED_AND_STOPPED

NUMBERS = ("started_s", "ended_s", "peak_memory_gib", "cpu_s")
MOST_CHARACTERS = 1000


def checked(ending: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ending, with None for what makes no sense."""
    status, reason = ending.get("status"), ending.get("reason")
    return {
        "status": status if isinstance(status, int) and -128 < status < 256 else None,
        "reason": reason[:MOST_CHARACTERS] if isinstance(reason, str) else None,
        **{name: number(ending.get(name)) for name in NUMBERS},
    }


def number(value: Any) -> float | None:
    """Return a number that can be a time, a size or an amount."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return float(value) if good else None


def exit_status(statuses: list[int | None]) -> int | None:
    """Return that of a gang nothing of which failed by itself: saved if one command saved, else the
    first not 0, else 0."""
    if SAVED_AND_STOPPED in statuses:
        return SAVED_AND_STOPPED
    return next((status for status in statuses if status != 0), 0)
