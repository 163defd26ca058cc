"""The instant at which to stop posing or solving a round."""

import math
import time


class OutOfTimeError(Exception):
    """The model of a round is not ready in time."""


class Deadline:
    """An instant of `time.monotonic`."""

    __slots__ = ("at_s",)

    def __init__(self, at_s: float = math.inf) -> None:
        self.at_s = at_s

    def left_s(self) -> float:
        """Return the seconds left, less than 0 once it has passed."""
        return self.at_s - time.monotonic()

    def check(self) -> None:
        """Raise OutOfTimeError once it has passed."""
        if time.monotonic() > self.at_s:
            raise OutOfTimeError


NEVER = Deadline()
