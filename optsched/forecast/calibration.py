"""Forecasts compared with what came, and intervals made as wide as that says."""

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..frozen import record

Event = Literal["start", "end"]
SHARE = 0.9
"""So often what comes is to come by the time that is named."""
NEWEST = 300
"""So many outcomes of each kind are kept."""
FEW = 30
"""With fewer outcomes of forecasts as far ahead, those of all are taken."""
AHEAD_S = (600.0, 3600.0, 4 * 3600.0, 86400.0)
"""Forecasts are compared with others that look about as far ahead: limits of their medians."""
LEAST_S = 60.0
"""Times less than that are not told apart."""
STEP = 0.02
"""How far one outcome moves the share that is aimed at."""
LEAST_AIM, MOST_AIM = 0.5, 0.995
MOST_PENDING = 20_000
"""So many forecasts wait for their outcome; of more none is kept."""


@record
class Given:
    """A forecast that was given: when, by what the draws said and by what was told, in seconds from
    then; `missed` once it has been counted as one that did not hold."""

    made_s: float
    event: Event
    p50_s: float
    p90_s: float
    told_p90_s: float
    missed: bool = False


@dataclass(slots=True)
class Outcomes:
    """Ratios of what came to what the draws said, the newest last; whether it came in time."""

    p50: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))
    p90: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))


@record
class Coverage:
    """How many of the forecasts that have been compared with what came held, and how many that
    were."""

    held: int
    compared: int


class Calibration:
    """Bounded statistics of forecasts and what came, for the start and the end of jobs.

    Of each event the ratios of the time that it took to the median and the 90 % quantile of the
    draws are kept, for forecasts that look about as far ahead (conformal prediction: Vovk,
    Gammerman and Shafer, Algorithmic Learning in a Random World, 2005). What is told is what the
    draws say times the median of the first, and times the quantile of the second at a share that
    rises by `STEP` x `SHARE` with each forecast that did not hold and falls by `STEP` x (1 -
    `SHARE`) with each that did (adaptive conformal inference: Gibbs and Candes, NeurIPS 2021).
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[str, Event], list[Given]] = {}
        self._waiting = 0
        self._overdue: dict[tuple[Event, int], list[float]] = {}
        self._of: dict[tuple[Event, int], Outcomes] = {}
        self._aim: dict[Event, float] = {"start": SHARE, "end": SHARE}
        self._held: dict[Event, deque[bool]] = {
            "start": deque(maxlen=10 * NEWEST),
            "end": deque(maxlen=10 * NEWEST),
        }

    def told(self, event: Event, p50_s: float, p90_s: float) -> tuple[float, float]:
        """Return the median and the 90 % quantile to tell where the draws say these."""
        median = p50_s * self._factor(event, p50_s, "p50", 0.5)
        most = max(p90_s, LEAST_S) * self._factor(event, p50_s, "p90", self._aim[event])
        return median, max(median, most)

    def _factor(self, event: Event, p50_s: float, which: str, share: float) -> float:
        ratios = self._ratios((event, _ahead(p50_s)), which)
        if len(ratios) < FEW:
            kinds = [kind for kind in {*self._of, *self._overdue} if kind[0] == event]
            ratios = [ratio for kind in kinds for ratio in self._ratios(kind, which)]
        if len(ratios) < FEW:
            return 1.0
        ratios.sort()
        return ratios[min(len(ratios) - 1, math.ceil(share * (len(ratios) + 1)) - 1)]

    def _ratios(self, kind: tuple[Event, int], which: str) -> list[float]:
        """Return the ratios of forecasts that look about as far ahead, those of what is overdue as
        they are at least."""
        own = self._of.get(kind)
        known: list[float] = [] if own is None else list(getattr(own, which))
        return known + (self._overdue.get(kind, []) if which == "p90" else [])

    def given(self, job: str, event: Event, made_s: float, p50_s: float, p90_s: float) -> None:
        """Note a forecast that is to be compared with what comes; one that looks beyond the
        horizon cannot be."""
        if math.isfinite(p90_s) and self._waiting < MOST_PENDING:
            told_s = self.told(event, p50_s, p90_s)[1]
            own = self._pending.setdefault((job, event), [])
            own.append(Given(made_s, event, p50_s, p90_s, told_s))
            self._waiting += 1

    def came(self, job: str, event: Event, at_s: float) -> None:
        """Compare the forecasts of an event with when it came."""
        for own in self._taken(job, event):
            self._compare(own, max(0.0, at_s - own.made_s))

    def forget(self, job: str) -> None:
        """Drop the forecasts of a job that was cancelled, held or changed."""
        self._taken(job, "start")
        self._taken(job, "end")

    def late(self, now_s: float) -> None:
        """Count forecasts that can hold no more, though what they are of is yet to come: it has
        taken as long as this at least."""
        self._overdue = {}
        for given in self._pending.values():
            for i, own in enumerate(given):
                if now_s - own.made_s <= own.told_p90_s:
                    continue
                if not own.missed:
                    self._count(own.event, held=False)
                    given[i] = replace(own, missed=True)
                ratio = (now_s - own.made_s) / max(own.p90_s, LEAST_S)
                self._overdue.setdefault((own.event, _ahead(own.p50_s)), []).append(ratio)

    def _taken(self, job: str, event: Event) -> list[Given]:
        given = self._pending.pop((job, event), [])
        self._waiting -= len(given)
        return given

    def _compare(self, own: Given, took_s: float) -> None:
        if not own.missed:
            self._count(own.event, held=took_s <= own.told_p90_s)
        outcomes = self._of.setdefault((own.event, _ahead(own.p50_s)), Outcomes())
        outcomes.p50.append(max(took_s, LEAST_S) / max(own.p50_s, LEAST_S))
        outcomes.p90.append(max(took_s, LEAST_S) / max(own.p90_s, LEAST_S))

    def _count(self, event: Event, *, held: bool) -> None:
        self._held[event].append(held)
        aim = self._aim[event] + STEP * (SHARE - held)
        self._aim[event] = min(MOST_AIM, max(LEAST_AIM, aim))

    def coverage(self, event: Event) -> Coverage:
        """Return how often what came came by the time that was told."""
        return Coverage(sum(self._held[event]), len(self._held[event]))

    def plain(self) -> dict[str, Any]:
        """Return what was learned, to be written as JSON; forecasts that wait for their outcome are
        left out."""
        return {
            "aim": self._aim,
            "held": {event: list(held) for event, held in self._held.items()},
            "ratios": [
                [event, ahead, list(own.p50), list(own.p90)]
                for (event, ahead), own in self._of.items()
            ],
        }

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> "Calibration":
        """Return what `plain` says. Raises ValueError, TypeError or KeyError where that is
        faulty."""
        own = cls()
        for event in own._aim:
            own._aim[event] = min(MOST_AIM, max(LEAST_AIM, float(plain["aim"][event])))
            own._held[event].extend(bool(held) for held in plain["held"][event])
        for event, ahead, p50, p90 in plain["ratios"]:
            outcomes = own._of.setdefault((event, int(ahead)), Outcomes())
            for kept, ratios in ((outcomes.p50, p50), (outcomes.p90, p90)):
                kept.extend(ratio for ratio in map(float, ratios) if 0 < ratio < math.inf)
        return own


def _ahead(p50_s: float) -> int:
    return bisect_right(AHEAD_S, p50_s)
