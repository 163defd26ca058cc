"""Times as traces write them: `2017-10-09 07:01:47`, with a zone or without."""

from datetime import UTC, datetime, tzinfo

from ...errors import InputError
from ..imported import At

MISSING = frozenset(("", "None", "none", "null", "NULL", "NaT", "nan", "NaN"))
"""How traces say that there is no time."""
PLAIN = len("2017-10-09 07:01:47")


def unix_s(text: str) -> float | None:
    """Unix time of a time, which is UTC where it names no zone; None where there is none.

    Raises ValueError for what is no time.
    """
    if (
        len(text) == PLAIN
    ):  # the common case, and the zone in the text is several times faster than one set later
        return datetime.fromisoformat(text + "+00:00").timestamp()
    if text in MISSING:
        return None
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def time_at(at: At, text: str, what: str) -> float | None:
    """Unix time of a cell, None where it is missing. Raises InputError for what is no time."""
    try:
        return unix_s(text)
    except ValueError:
        at.fail(f"{what} as 2017-10-09 07:01:47, or nothing", text)


def given_s(flag: str, text: str, zone: tzinfo) -> float:
    """Unix time of what a user gave as `flag`, in `zone` where it names none. Raises InputError."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(
            f"{flag} {text!r}: expected a date, as 2017-10-03 or 2017-10-03T12:00"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
