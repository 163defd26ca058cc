"""A clock that never jumps: Unix time as it was when the controller began, and the seconds since
then."""

import time
from typing import Protocol

from ..executors.base import LAST_S

JUMP_S = 5.0
"""So far may the host's clock be from ours before it is worth a note."""


class Clock(Protocol):
    """What the controller asks the time of."""

    def now_s(self) -> float:
        """Return steady Unix time."""
        ...

    def steady_s(self, wall_s: float) -> float:
        """Return what this clock showed when the host's clock showed `wall_s`."""
        ...

    def jump_s(self) -> float | None:
        """Return how far the host's clock has jumped since it was last asked, None where it has
        not."""
        ...


class SteadyClock:
    """Never behind `not_before_s`, the last time that the journal holds, and never begun so late
    that decades of turns could leave the range of instants (see `quantity`), whatever the host's
    clock says."""

    def __init__(self, not_before_s: float) -> None:
        self._begun_s = max(min(time.time(), LAST_S), not_before_s) - time.monotonic()
        self._off_s = time.time() - self.now_s()

    def now_s(self) -> float:
        """Return steady Unix time."""
        return self._begun_s + time.monotonic()

    def steady_s(self, wall_s: float) -> float:
        """Return what this clock showed when the host's clock showed `wall_s`, the present at the
        latest."""
        now_s = self.now_s()
        return min(now_s, now_s - (time.time() - wall_s))

    def jump_s(self) -> float | None:
        """Return how far the host's clock has jumped since it was last asked, None where it has
        not."""
        off_s = time.time() - self.now_s()
        jumped_s = off_s - self._off_s
        if abs(jumped_s) < JUMP_S:
            return None
        self._off_s = off_s
        return jumped_s
