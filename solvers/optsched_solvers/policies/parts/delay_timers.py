"""Delay timers that tune themselves: how long gangs of a size wait for a narrow place."""

from collections import deque

from optsched.physics import Span

from .locality_gate import Patience


class DelayTimers:
    """For each gang size the moving average of the last waits after which such gangs got one node,
    or one rack.

    Until a size has a history its timers are `machine_s` and `rack_s`. The timer for a rack is
    never shorter than that for a machine.
    """

    def __init__(self, machine_s: float, rack_s: float, history: int) -> None:
        self._first_s: dict[Span, float] = {"node": machine_s, "rack": rack_s}
        self._history = history
        self._waits: dict[tuple[int, Span], deque[float]] = {}

    def patience(self, gpus: int) -> Patience:
        """Return how long a gang of this size waits now."""
        machine_s = self._timer_s(gpus, "node")
        return Patience(rack_s=machine_s, cluster_s=max(machine_s, self._timer_s(gpus, "rack")))

    def _timer_s(self, gpus: int, level: Span) -> float:
        waits = self._waits.get((gpus, level))
        return sum(waits) / len(waits) if waits else self._first_s[level]

    def accepted(self, gpus: int, level: Span, wait_s: float) -> None:
        """A gang of this size has got a place of this level after such a wait; one over racks
        teaches nothing."""
        if level != "cluster":
            self._waits.setdefault((gpus, level), deque(maxlen=self._history)).append(wait_s)

    def facts(self) -> dict[str, float]:
        """The timers as they stand, in seconds, of every gang size with a history."""
        names: dict[Span, str] = {"node": "machine", "rack": "rack"}
        known = sorted(self._waits)
        return {
            f"timer_{names[level]}_{gpus}_s": round(self._timer_s(gpus, level), 3)
            for gpus, level in known
        }
