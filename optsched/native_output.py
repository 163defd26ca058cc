"""Standard output kept for what is meant for it."""

import os
import sys
from contextlib import suppress


def fill_closed_streams() -> None:
    """Have streams that are closed (`>&-`) read and write nothing: else the next file that is
    opened, a journal even, would get what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def own_stdout() -> None:
    """Have what libraries print from native code, to file descriptor 1, go to stderr: HiGHS prints
    now and then, whatever it is told."""
    with suppress(OSError, ValueError, AttributeError):  # where one of the two is closed
        sys.stdout.flush()
        own = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        buffering = 1 if os.isatty(own) else -1
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        sys.stdout = open(own, "w", buffering, encoding, errors)  # noqa: SIM115
        sys.__stdout__ = sys.stdout  # type: ignore[misc]
