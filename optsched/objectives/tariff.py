"""The cost of a unit of something over time."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from ..model import Steps
from .costs import Numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Tariff:
    """A step function of time: `rates[k]` from `times_s[k]` on; the first also before."""

    rates: tuple[float, ...] = (1.0,)
    times_s: tuple[float, ...] = (0.0,)

    @staticmethod
    @cache
    def of(rates: float | Steps) -> "Tariff":
        """Return the tariff of a rate that always holds, or of one from each instant on."""
        if not isinstance(rates, tuple):
            return Tariff((rates,))
        times_s, amounts = zip(*rates, strict=True)
        return Tariff(amounts, times_s)

    @property
    def is_constant(self) -> bool:
        return len(self.rates) == 1

    def changes_s(self, now_s: float) -> list[float]:
        """Return the instants after now at which it changes, in seconds from now."""
        return [time_s - now_s for time_s in self.times_s[1:] if time_s > now_s]

    def integral(self, start_s: Numbers, seconds: Numbers) -> Numbers:
        """Return what a unit costs that is held for `seconds` from `start_s` on."""
        if self.is_constant:
            return self.rates[0] * seconds
        import numpy as np

        times, rates, whole = self._columns

        def until(at_s: Numbers) -> Numbers:
            k = np.maximum(np.searchsorted(times, at_s, side="right") - 1, 0)
            return whole[k] + rates[k] * (at_s - times[k])

        cost = until(start_s + seconds) - until(start_s)
        return cost if isinstance(cost, np.ndarray) else float(cost)

    def least(self, now_s: float, seconds: Numbers) -> Numbers:
        """Return the least that a unit costs that is held for `seconds` in all, at any times from
        now on."""
        import numpy as np

        first = max(0, bisect_right(self.times_s, now_s) - 1)
        times_s = [now_s, *self.times_s[first + 1 :]]
        last = self.rates[-1]
        lengths = (later - time_s for time_s, later in pairwise(times_s))
        cheaper = sorted(
            (rate, length)
            for rate, length in zip(self.rates[first:-1], lengths, strict=True)
            if rate < last
        )
        held_s = np.cumsum([0.0, *(length for _, length in cheaper)])
        paid = np.cumsum([0.0, *(rate * length for rate, length in cheaper)])
        return np.interp(seconds, held_s, paid) + last * np.maximum(0.0, seconds - held_s[-1])

    @cached_property
    def _columns(self) -> "tuple[NDArray[np.float64], ...]":
        """Return instants, rates, and the cost of a unit held from the first instant to each."""
        import numpy as np

        times, rates = np.array(self.times_s), np.array(self.rates)
        return times, rates, np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
