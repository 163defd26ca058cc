"""The time grid of integer models: whole ticks after `now_s`, rounded so that bounds stay bounds.

Why rounding down is sound. Take any feasible schedule and floor every start and every duration to
the grid; releases and checkpoint holds are floored too. Then

- no release is broken; a successor still starts after its predecessor: floor(S) + floor(p) <=
floor(S + p); - no capacity is broken: a job that holds tick t after flooring has S < t + 1 <= S + p
in units of a tick, so
  all jobs that hold tick t also hold their resources together just before instant t + 1 in the true
  schedule;
- no completion grows.

So the optimum of the floored model is a lower bound of the true optimum, and is the optimum where
every time is a multiple of the tick. A job that starts at tick t truly starts at t * length_s or
later, so its true completion is at least t * length_s plus its *unrounded* duration: models should
price completions so. Deadlines are not rounded.

Why the verifier accepts a plan whose lengths are rounded up. Times round as floats, so a ceiling
must forgive a little: it covers a length but for a slack. A job that starts at tick a ends at
fl(fl(now + fl(a L)) + s), where its start may wait for its release, which is rounded with the same
slack; whatever comes next starts at fl(now + fl(b L)) with b >= a + ceil(s). Each of these
operations, and the division in `ceil`, rounds by at most half of `clock_ulp_s`, the distance of
floats at the end of the horizon. So the job ends at most 2 slack + 6 clock_ulp_s after the next one
starts, and as each start is put on the grid anew, nothing adds up along a chain. `ceil` keeps that
within `FORGIVEN_S`, which is less than what the verifier forgives (`TIME_TOLERANCE_S`): where the
clock is so coarse that the rounding alone is more, the slack is negative and lengths are rounded up
by more. A grid is `exact` only where no such thing is needed.
"""

import math
from collections.abc import Iterable

from optsched.frozen import record
from optsched.physics import TIME_TOLERANCE_S

NICE_S = (
    *(float(f"{digit}e{power}") for power in range(-6, 1) for digit in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 14400.0, 21600.0, 43200.0, 86400.0),
)
"""Tick lengths a person reads easily; whole days above."""

RELATIVE_SLACK = 1e-14
"""A time this close to the next tick, relative to itself, is on it: the rounding of floats."""

FORGIVEN_S = 0.8 * TIME_TOLERANCE_S
"""By how much a job may end after the next one starts, all rounding included."""


@record
class Tick:
    """A grid of `length_s` seconds. `exact` says that every time it was chosen for lies on it.

    `slack_s` is the rounding of an instant read from the instance's clock (0.5 microseconds for
    Unix times), `clock_ulp_s` the distance of floats at the end of the horizon.
    """

    length_s: float
    exact: bool
    slack_s: float = 0.0
    clock_ulp_s: float = 0.0

    def floor(self, seconds: float) -> int:
        """Return the whole ticks in `seconds`, rounded down; 2.999999999999999 ticks count as 3."""
        return math.floor((seconds + self._slack(seconds)) / self.length_s)

    def ceil(self, seconds: float) -> int:
        """Return the whole ticks that cover `seconds`, but for what the verifier forgives;
        3.000000000000001 ticks count as 3."""
        return math.ceil((seconds - min(self._slack(seconds), self._forgiven())) / self.length_s)

    def seconds(self, ticks: int) -> float:
        """Return the length of `ticks` ticks."""
        return ticks * self.length_s

    def _slack(self, seconds: float) -> float:
        return RELATIVE_SLACK * abs(seconds) + self.slack_s

    def _forgiven(self) -> float:
        return FORGIVEN_S / 2 - 3 * self.clock_ulp_s

    def holds(self, seconds: float) -> bool:
        """Return whether `seconds` is a whole number of ticks, for the rounding of floats, both
        down and up."""
        return (
            self.floor(seconds) == self.ceil(seconds) and self._slack(seconds) <= self._forgiven()
        )


def choose_tick(
    seconds: Iterable[float], max_ticks: int, horizon_s: float | None = None, now_s: float = 0.0
) -> Tick:
    """Return the longest tick of which all `seconds` are multiples, if the horizon has at most
    `max_ticks` of them.

    Times are taken in whole milliseconds; the horizon is their sum where none is given. Otherwise
    the shortest length of `NICE_S` (or whole days) that keeps the horizon within `max_ticks`; it is
    not exact. `now_s` is the clock reading that was subtracted to get these times; only its
    rounding matters.
    """
    values = list(seconds)
    if horizon_s is None:
        horizon_s = math.fsum(values)
    slack_s = 2 * math.ulp(now_s) if now_s else 0.0
    clock_ulp_s = math.ulp(abs(now_s) + 2 * horizon_s)
    common_ms = math.gcd(*(round(value * 1e3) for value in values))
    if common_ms == 0:
        common_ms = max(1, math.ceil(horizon_s * 1e3))
    shortest_s = max(horizon_s, 1e-3) / max_ticks
    common = Tick(common_ms / 1e3, True, slack_s, clock_ulp_s)
    if common.length_s >= shortest_s * (1 - 1e-9) and all(common.holds(value) for value in values):
        return common
    for length_s in NICE_S:
        if length_s >= shortest_s:
            return Tick(length_s, False, slack_s, clock_ulp_s)
    return Tick(86400.0 * math.ceil(shortest_s / 86400.0), False, slack_s, clock_ulp_s)
