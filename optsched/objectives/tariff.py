"""What a unit of something costs over time."""

from dataclasses import dataclass

from .costs import Numbers


@dataclass(frozen=True)
class Tariff:
    """A step function of time: `rates[k]` from `times_s[k]` on; the first also before."""

    rates: tuple[float, ...] = (1.0,)
    times_s: tuple[float, ...] = (0.0,)

    def integral(self, start_s: Numbers, seconds: Numbers) -> Numbers:
        """Return what a unit costs that is held for `seconds` from `start_s` on."""
        if len(self.rates) == 1:
            return self.rates[0] * seconds
        import numpy as np

        times, rates = np.array(self.times_s), np.array(self.rates)
        whole = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])

        def until(at_s: Numbers) -> Numbers:
            k = np.maximum(np.searchsorted(times, at_s, side="right") - 1, 0)
            return whole[k] + rates[k] * (at_s - times[k])

        cost = until(start_s + seconds) - until(start_s)
        return cost if isinstance(cost, np.ndarray) else float(cost)
