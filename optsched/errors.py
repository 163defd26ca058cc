"""Errors whose message is written for the person who caused or can mend them."""

from collections.abc import Iterable, Sequence


class OptschedError(Exception):
    """Base of all errors that are shown without a traceback."""


class InputError(OptschedError):
    """The input is wrong; the message says what, where, and what would be right."""


class SolverUnavailableError(OptschedError):
    """A solver or policy cannot be used here; the message says what is missing."""


def listed(words: Sequence[str], last: str = "and") -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def perhaps(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean srsf?)`, with the known name that is nearest to `name`; empty where
    none is near."""
    import difflib

    by_letters = {word.lower(): word for word in known}
    close = difflib.get_close_matches(name.lower(), by_letters, n=1)
    return f" (did you mean {by_letters[close[0]]}?)" if close else ""
