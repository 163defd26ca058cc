"""Standard output kept for what is meant for it."""

import os
import sys
from contextlib import suppress


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
