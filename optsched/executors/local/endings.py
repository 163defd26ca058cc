"""How a command ended, as supervisors say it that run as the user of the job, who may have written
anything."""

from collections.abc import Mapping
from typing import Any

NUMBERS = ("started_s", "ended_s", "peak_memory_gib", "cpu_s")
MOST_CHARACTERS = 1000


def checked(ending: Mapping[str, Any]) -> dict[str, Any]:
    """The ending, with None for what makes no sense."""
    status, reason = ending.get("status"), ending.get("reason")
    return {
        "status": status if isinstance(status, int) and -128 < status < 256 else None,
        "reason": reason[:MOST_CHARACTERS] if isinstance(reason, str) else None,
        **{name: number(ending.get(name)) for name in NUMBERS},
    }


def number(value: Any) -> float | None:
    """A number that can be a time, a size or an amount."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return float(value) if good else None
