"""Times as traces write them: `2017-10-09 07:01:47`, with a zone or without."""

from datetime import UTC, datetime, tzinfo

from ...errors import InputError

PLAIN = len("2017-10-09 07:01:47")


def unix_s(text: str, zone: tzinfo = UTC) -> float:
    """Return the Unix time of a time, which is of `zone` where it names none. Raises ValueError."""
    if len(text) == PLAIN and zone is UTC:
        text += "+00:00"  # the common case: several times faster than a zone set later
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def given_s(flag: str, text: str, zone: tzinfo) -> float:
    """Return the Unix time of what a user gave as `flag`, in `zone` where it names none. Raises
    InputError."""
    try:
        return unix_s(text.strip(), zone)
    except ValueError:
        raise InputError(
            f"{flag} {text!r}: expected a date, as 2017-10-03 or 2017-10-03T12:00"
        ) from None
