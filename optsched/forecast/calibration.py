"""Forecasts compared with what came, and times made as long as that says."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from ..frozen import record

Event = Literal["start", "end"]
EVENTS: tuple[Event, ...] = ("start", "end")
SHARES = 0.5, 0.9
"""So often what comes is to come by the two times that are named."""
NEWEST = 300
"""So many outcomes of forecasts that look about as far ahead are kept."""
FEW = 9
"""With fewer outcomes of forecasts as far ahead those of all are taken: of fewer there is no 90 %
quantile."""
OCCASION_S = 3600.0
"""Outcomes of forecasts that were made within so long count as one: jobs that come at once wait for
one reason. To be cautious, what came later than a 90 % quantile counts even so."""
AHEAD_S = (600.0, 3600.0, 4 * 3600.0, 86400.0)
"""Forecasts are compared with others that look about as far ahead: limits of their medians."""
LEAST_S = 60.0
"""Times less than that are not told apart."""
STEP = 0.1
"""How far one outcome moves the logarithm of the factor on what is told."""
MOST_STEPS = 10
"""The factor is at most e to so many steps, and at least one by that: jobs that come at once and
wait for the same reason are many outcomes, but little evidence."""
MOST_PENDING = 10_000
"""So many forecasts wait for their outcome; of more none is kept."""


@record
class Given:
    """A forecast that was given: when, how far ahead (a place among `AHEAD_S`), the time that the
    draws said and the time that was told, in seconds from then; `missed` once it has been counted
    as one that did not hold."""

    made_s: float
    ahead: int
    drawn_s: float
    told_s: float
    missed: bool = False


class Quantile:
    """The time by which an event comes with a probability of `share`, made right by what came.

    What the draws say is told times the quantile of the ratios of what came to what the draws said,
    for forecasts that look about as far ahead (conformal prediction: Vovk, Gammerman and Shafer,
    Algorithmic Learning in a Random World, 2005); events that are yet to come have taken as long as
    they have at least (Kaplan and Meier, Journal of the American Statistical Association 53, 1958).
    As times change it is told times another factor for forecasts that look about as far ahead. Its
    logarithm rises by `STEP` x `share` with each of them that did not hold and falls by `STEP` x (1
    - `share`) with each that did (quantile tracking: Angelopoulos, Candès and Tibshirani, NeurIPS
    2023). A forecast that can hold no more counts at once.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.steps = [0.0] * (len(AHEAD_S) + 1)
        self.held: deque[bool] = deque(maxlen=10 * NEWEST)
        self._ratios: dict[int, deque[tuple[float, float]]] = {}
        self._pending: dict[str, list[Given]] = {}
        self._waiting = 0
        self._now_s = -math.inf
        self._factors: dict[int, float] = {}

    def told_s(self, ahead: int, drawn_s: float) -> float:
        """Return the time to tell where the draws say `drawn_s`."""
        if ahead not in self._factors:
            self._factors[ahead] = self._factor(ahead)
        return max(drawn_s, LEAST_S) * self._factors[ahead] * math.exp(STEP * self.steps[ahead])

    def _factor(self, ahead: int) -> float:
        for kinds in ((ahead,), range(len(AHEAD_S) + 1)):
            came = [own for kind in kinds for own in self._ratios.get(kind, ())]
            pending = [own for own in self._all_pending() if own.ahead in kinds]
            if self._evidence(came, [own.made_s for own in pending if own.missed]) >= FEW:
                so_far = [max(0.0, self._now_s - own.made_s) / own.drawn_s for own in pending]
                return censored_quantile([ratio for _, ratio in came], so_far, self.share)
        return 1.0

    def _evidence(self, came: list[tuple[float, float]], overdue_s: list[float]) -> int:
        """Return how many outcomes count: one for each occasion, and each that is later than the
        draws say where that is not to happen often."""
        late = [*overdue_s, *(made_s for made_s, ratio in came if ratio > 1)]
        in_time = (made_s for made_s, ratio in came if ratio <= 1)
        if self.share > 0.5:
            return len(late) + occasions(in_time)
        return occasions((*late, *in_time))

    def _all_pending(self) -> Iterator[Given]:
        return (own for given in self._pending.values() for own in given)

    def given(self, job: str, made_s: float, ahead: int, drawn_s: float) -> None:
        """Note a forecast that is to be compared with what comes; one that looks beyond the
        horizon cannot be."""
        if math.isfinite(drawn_s) and self._waiting < MOST_PENDING:
            own = Given(made_s, ahead, max(drawn_s, LEAST_S), self.told_s(ahead, drawn_s))
            self._pending.setdefault(job, []).append(own)
            self._waiting += 1

    def came(self, job: str, at_s: float) -> None:
        """Compare the forecasts of a job with when it came."""
        for own in self.forget(job):
            took_s = max(0.0, at_s - own.made_s)
            if not own.missed:
                self._count(own, held=took_s <= own.told_s)
            ratios = self._ratios.setdefault(own.ahead, deque(maxlen=NEWEST))
            ratios.append((own.made_s, max(took_s, LEAST_S) / own.drawn_s))

    def forget(self, job: str) -> list[Given]:
        """Drop and return the forecasts of a job."""
        given = self._pending.pop(job, [])
        self._waiting -= len(given)
        if given:
            self._factors = {}
        return given

    def late(self, now_s: float) -> None:
        """Count forecasts that can hold no more, though what they are of is yet to come."""
        self._now_s, self._factors = now_s, {}
        for given in self._pending.values():
            for i, own in enumerate(given):
                if not own.missed and now_s - own.made_s > own.told_s:
                    self._count(own, held=False)
                    given[i] = replace(own, missed=True)

    def _count(self, own: Given, *, held: bool) -> None:
        self.held.append(held)
        self.steps[own.ahead] = _within(self.steps[own.ahead] + self.share - held)

    def plain(self) -> dict[str, Any]:
        """Return what was learned, to be written as JSON; forecasts that wait for their outcome are
        left out."""
        ratios = [[ahead, list(own)] for ahead, own in self._ratios.items()]
        return {"steps": self.steps, "held": list(self.held), "ratios": ratios}

    def learn(self, plain: dict[str, Any]) -> None:
        """Take up what `plain` says."""
        steps = [_within(float(own)) for own in plain["steps"]]
        if len(steps) != len(self.steps):
            raise ValueError(f"{len(steps)} factors")
        self.steps = steps
        self.held.extend(bool(held) for held in plain["held"])
        for ahead, ratios in plain["ratios"]:
            kept = self._ratios.setdefault(int(ahead), deque(maxlen=NEWEST))
            known = ((float(made_s), float(ratio)) for made_s, ratio in ratios)
            kept.extend(own for own in known if 0 < own[1] < math.inf)


def _within(steps: float) -> float:
    return min(MOST_STEPS, max(-MOST_STEPS, steps if math.isfinite(steps) else 0.0))


def occasions(made_s: Iterable[float]) -> int:
    """Return on how many occasions forecasts were made, at most `OCCASION_S` long each."""
    count, since_s = 0, -math.inf
    for at_s in sorted(made_s):
        if at_s > since_s + OCCASION_S:
            count, since_s = count + 1, at_s
    return count


def censored_quantile(came: Iterable[float], so_far: Iterable[float], share: float) -> float:
    """Return a value that the next is at most with a probability of `share`, where some `came`, and
    others are more than they are `so_far`. Where nobody knows, it is the largest of all.

    That is the quantile of Kaplan and Meier's distribution; the next counts as one of them, and as
    larger than all. There is one value at least.
    """
    values = sorted([*((value, False) for value in came), *((value, True) for value in so_far)])
    beyond = 1.0
    for at_least, (value, censored) in zip(range(len(values) + 1, 1, -1), values, strict=True):
        if not censored:
            beyond *= 1 - 1 / at_least
            if beyond <= 1 - share + 1e-9:
                return value
    return values[-1][0]


@record
class Coverage:
    """How many of the forecasts that have been compared with what came held, and how many that
    were."""

    held: int
    compared: int


class Calibration:
    """Bounded statistics of forecasts and what came, for the median and the 90 % quantile of when
    jobs start and end (see `Quantile`)."""

    def __init__(self) -> None:
        self._of = {event: [Quantile(share) for share in SHARES] for event in EVENTS}

    def told(self, event: Event, p50_s: float, p90_s: float) -> tuple[float, float]:
        """Return the median and the 90 % quantile to tell where the draws say these."""
        ahead = bisect_right(AHEAD_S, p50_s)
        both = zip(self._of[event], (p50_s, p90_s), strict=True)
        median_s, most_s = (quantile.told_s(ahead, drawn_s) for quantile, drawn_s in both)
        if median_s <= LEAST_S:
            median_s = min(median_s, p50_s)
        return median_s, max(median_s, most_s)

    def given(self, job: str, event: Event, made_s: float, p50_s: float, p90_s: float) -> None:
        """Note a forecast that is to be compared with what comes."""
        ahead = bisect_right(AHEAD_S, p50_s)
        for quantile, drawn_s in zip(self._of[event], (p50_s, p90_s), strict=True):
            quantile.given(job, made_s, ahead, drawn_s)

    def came(self, job: str, event: Event, at_s: float) -> None:
        """Compare the forecasts of an event with when it came."""
        for quantile in self._of[event]:
            quantile.came(job, at_s)

    def forget(self, job: str) -> None:
        """Drop the forecasts of a job that was cancelled, held or changed."""
        for quantile in self._all():
            quantile.forget(job)

    def late(self, now_s: float) -> None:
        """Count forecasts that can hold no more, though what they are of is yet to come."""
        for quantile in self._all():
            quantile.late(now_s)

    def _all(self) -> Iterator[Quantile]:
        return (quantile for own in self._of.values() for quantile in own)

    def coverage(self, event: Event) -> Coverage:
        """Return how often what came came by the 90 % quantile that was told."""
        held = self._of[event][-1].held
        return Coverage(sum(held), len(held))

    def plain(self) -> dict[str, Any]:
        """Return what was learned, to be written as JSON."""
        return {event: [quantile.plain() for quantile in own] for event, own in self._of.items()}

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> "Calibration":
        """Return what `plain` says. Raises ValueError, TypeError or KeyError where that is
        faulty."""
        own = cls()
        for event, quantiles in own._of.items():
            for quantile, learned in zip(quantiles, plain[event], strict=True):
                quantile.learn(learned)
        return own
