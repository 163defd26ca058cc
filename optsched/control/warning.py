"""Signals for jobs, as their users name them."""

import signal

SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "WINCH", "URG", "KILL")
"""Those that a user may send to a job of his."""
BEFORE_S = 60.0
"""So long before its time limit a job is warned where nobody says when."""
SIGNAL = rf"^(?:SIG)?(?:{'|'.join(SIGNALS)})$"
WARNING = r"^(?:SIG)?(?:HUP|INT|QUIT|USR1|USR2|TERM|CONT|WINCH|URG)(?:@[0-9]{1,6})?$"
"""A signal, and how many seconds before the limit it is sent."""


def warning_of(text: str) -> tuple[str, float]:
    """Return the signal and the seconds in `USR1@60`."""
    name, _, seconds = text.partition("@")
    return name.removeprefix("SIG"), float(seconds) if seconds else BEFORE_S


def number_of(name: str) -> int:
    """Return the number of a signal, with or without SIG before its name. Raises ValueError for one
    that no user may send."""
    short = name.upper().removeprefix("SIG")
    if short not in SIGNALS:
        raise ValueError(
            f"{name!r} is not a signal that a job is sent; there are {', '.join(SIGNALS)}"
        )
    return int(signal.Signals[f"SIG{short}"])
