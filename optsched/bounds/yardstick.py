"""The parts of a value that no plan can change, and that rounding can: how near a bound must come
to prove an optimum."""

import math
from typing import assert_never

import numpy as np

from ..errors import InputError
from ..frozen import record
from ..model import CLOSED_GAP, Instance
from ..objectives import Inverse, Objective, RankOfJobs, SumOfJobs, Term, Usage
from ..physics import TIME_TOLERANCE_S
from .mode_table import tabulate
from .terms import Outlook, alone, cheapest, look, usage

INSTANT_S, CLOCK_ULPS = 1e-9, 4
"""Rounding of an instant in a plan: so many seconds, and so many of the steps in which the clock
can be read."""
SUMS = 1e-15
"""Relative rounding of a sum of floats."""


@record
class Yardstick:
    """The comparison of values of one level. Every plan costs at least `certain`, each job alone on
    the cluster; `rounding` is what the rounding of instants may change, `forgiven` what instants
    that the verifier forgives may."""

    certain: float
    rounding: float
    forgiven: float

    def differ(self, a: float, b: float) -> bool:
        """Return whether two values differ by more than rounding."""
        return abs(a - b) > self._rounding(max(abs(a), abs(b)))

    def keeps(self, value: float) -> float:
        """Return the largest value that differs from `value` by rounding alone."""
        return value + self._rounding(abs(value))

    def is_closed(self, value: float | None, bound: float | None) -> bool:
        """Return whether `bound` proves that no plan is better than `value`: by more than a
        millionth of what plans can change of it, and rounding."""
        return value is not None and bound is not None and value - bound <= self._slack(value)

    def refutes(self, value: float, bound: float) -> bool:
        """Return whether a plan of `value` shows that `bound` is wrong, whatever the verifier
        forgives."""
        return bound > value + self._slack(value) + self.forgiven

    def _slack(self, value: float) -> float:
        return CLOSED_GAP * max(0.0, value - self.certain) + self._rounding(abs(value))

    def _rounding(self, magnitude: float) -> float:
        return self.rounding + SUMS * magnitude


def yardsticks(instance: Instance, objective: Objective, any_plan: bool) -> tuple[Yardstick, ...]:
    """Return one for each level, for plans of the plan class or for any plan."""
    if not instance.jobs:
        return tuple(Yardstick(0.0, 0.0, 0.0) for _ in objective.levels)
    try:
        outlook = look(instance, tabulate(instance, preemptive=any_plan))
    except InputError:  # a job fits nowhere, so that there is no plan to judge
        return tuple(Yardstick(math.inf, 0.0, 0.0) for _ in objective.levels)
    last_s = float(outlook.ends_s.sum())
    instant_s = INSTANT_S + CLOCK_ULPS * math.ulp(abs(instance.now_s) + last_s)
    by_level = []
    for level in objective.levels:
        certain = rounding = forgiven = 0.0
        for weight, term in level:
            least, per_s = _term(term, instance, outlook, last_s)
            certain += weight * least
            rounding += weight * per_s * instant_s
            forgiven += weight * per_s * 2 * TIME_TOLERANCE_S
        by_level.append(Yardstick(certain, rounding, forgiven))
    return tuple(by_level)


def _term(term: Term, instance: Instance, outlook: Outlook, last_s: float) -> tuple[float, float]:
    """Return what every plan pays, and what a second is worth by which all jobs complete later or
    hold more."""
    if isinstance(term, Usage):
        modes = outlook.modes
        per_s = usage(term, instance, modes).starting * max(term.tariff(instance.cluster).rates)
        most_per_s = np.maximum.reduceat(per_s, modes.first)
        return cheapest(term, instance, modes), float(most_per_s.sum())
    counted, cost = term.costs(instance, instance.jobs)
    ends_s = outlook.ends_s[counted]
    least = term.combine(alone(cost, ends_s, instance.now_s).tolist())
    forgiven_s = 2 * TIME_TOLERANCE_S  # by which a plan may pass a kink at its very end
    slopes = cost.steepest(ends_s + instance.now_s, instance.now_s + last_s + forgiven_s)
    match term:
        case SumOfJobs():
            return least, math.fsum(slopes.tolist())
        case RankOfJobs():
            if isinstance(cost, Inverse):  # where it costs less it does not count
                slopes = np.minimum(slopes, least**2 / cost.scale)
            return least, max(slopes.tolist(), default=0.0)
        case _:
            assert_never(term)
