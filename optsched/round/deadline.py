"""When to stop posing a round."""

import math
import time


class OutOfTimeError(Exception):
    """The model of a round is not ready in time."""


class Deadline:
    """An instant of `time.monotonic`."""

    __slots__ = ("_at_s",)

    def __init__(self, at_s: float = math.inf) -> None:
        self._at_s = at_s

    def check(self) -> None:
        """Raise OutOfTimeError once it has passed."""
        if time.monotonic() > self._at_s:
            raise OutOfTimeError


NEVER = Deadline()
