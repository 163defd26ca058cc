"""Calls of native solvers: given up when their time is over, since they overrun their limits, and
kept from printing on standard output, where results go, or anywhere else."""

import atexit
import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

Found = TypeVar("Found")

LAST_S = 5.0
"""Seconds that the end of the process waits for calls that were given up: native code must not run
on meanwhile."""


def within(seconds: float, call: Callable[[], Found]) -> Found | None:
    """Return the result of `call`, or None if it takes longer: its thread is then left alone, and
    what it raises is lost.

    Raises what `call` raises in time.
    """
    results: list[Found] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    with _prints_nowhere():
        thread.start()
        thread.join(max(0.0, seconds))
    if raised:
        raise raised[0]
    if results:
        return results[0]
    atexit.register(thread.join, LAST_S)
    return None


@contextlib.contextmanager
def _prints_nowhere() -> Iterator[None]:
    """Hide what is printed: HiGHS has a line that it prints whatever its settings."""
    try:
        sys.stdout.flush()
        saved = os.dup(1)
    except (OSError, ValueError, AttributeError):  # no standard output
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        with contextlib.suppress(OSError, TypeError):
            ctypes.CDLL(None).fflush(
                None
            )  # what is left in its buffer goes where it was printed to
        os.dup2(saved, 1)
        os.close(saved)
