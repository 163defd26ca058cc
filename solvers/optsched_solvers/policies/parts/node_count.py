"""How many nodes stay powered: the periodic check of Helios' cluster energy saving, on a series of
nodes in use."""

from dataclasses import dataclass, field

import numpy as np

DAY_STEPS = 144
"""Steps of ten minutes in a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """`history` and `future` are steps over which means are taken, `fall_before` and `fall_after`
    how many nodes fewer must be in use than then, `least` how many nodes a power-off must save,
    `buffer` how many idle ones stay on, `keep` for how many steps none goes off after nodes were
    lacking, `begin` for how many the count follows the use."""

    history: int = 6
    future: int = 18
    fall_before: float = 1.0
    fall_after: float = 1.0
    least: int = 1
    buffer: int = 5
    keep: int = 12
    begin: int = 6


@dataclass(slots=True)
class NodeCount:
    """The number of powered nodes, step by step.

    Source: the public code of Helios (Hu et al., SC 2021), framework/CES Service. Its LightGBM
    forecast is replaced by `forecast`.
    """

    total: int
    constants: Constants
    active: int = 0
    stable_until: int = 0
    used: list[int] = field(default_factory=list)

    def step(self, used: int, expected: list[float] | None = None) -> int:
        """One more step in which at most so many nodes were in use; how many stay on. `expected`
        are those of this and the coming steps (default: `forecast`)."""
        own, i = self.constants, len(self.used)
        self.used.append(used)
        if i < own.begin:
            self.active = min(self.total, used + own.buffer)
            return self.active
        if self.active < used:
            self.active = used + own.buffer
            self.stable_until = i + own.keep
        self.active = min(self.active, self.total)
        soon = forecast(self.used, 2 * own.future) if expected is None else expected
        next_mean = float(np.mean(soon[: own.future]))
        falls_from = float(np.mean(self.used[i - own.history : i])) - used
        falls_to = used - next_mean
        if (
            falls_from >= own.fall_before
            and falls_to >= own.fall_after
            and i >= self.stable_until
            and next_mean >= float(np.mean(soon[: 2 * own.future]))
            and self.active - (used + own.buffer) >= own.least
        ):
            self.active = used + own.buffer
        return self.active


def forecast(used: list[int], steps: int) -> list[float]:
    """Nodes in use now and in the steps to come: as a day ago, shifted to what is in use now;
    within the first day the trend of the last three hours goes on."""
    now = used[-1]
    i = len(used) - 1
    if i >= DAY_STEPS:
        shift = now - used[i - DAY_STEPS]
        return [max(0.0, float(used[i - DAY_STEPS + k % DAY_STEPS] + shift)) for k in range(steps)]
    latest = used[-18:]
    slope = float(np.polyfit(range(len(latest)), latest, 1)[0]) if len(latest) > 1 else 0.0
    return [max(0.0, now + slope * k) for k in range(steps)]
