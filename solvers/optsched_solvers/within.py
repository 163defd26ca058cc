"""A call that is given up when its time is over, since native solvers overrun their limits."""

import threading
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def within(seconds: float, call: Callable[[], Found]) -> Found | None:
    """The result of `call`, or None if it takes longer: its thread is then left alone, and what it raises is lost.

    Raises what `call` raises in time.
    """
    found: list[Found] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if raised:
        raise raised[0]
    return found[0] if found else None
