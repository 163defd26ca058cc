"""When jobs are submitted: bursts, the hours of the day, the days of the week, busy and quiet
days."""

import math
from itertools import accumulate

import numpy as np

from .distribution import Floats
from .model import HOURS, WEEKDAYS, Rhythm

HOUR_S, DAY_S = 3600.0, 86400.0


def relative_gaps(rhythm: Rhythm, jobs: int, rng: np.random.Generator) -> Floats:
    """Return the interval before each job, in mean intervals, as it would be if all hours were
    alike.

    Bursts: the rank of an interval follows a slow first-order autoregression, its values the fitted
    distribution.
    """
    slow = _autoregression(rng.standard_normal(jobs), rhythm.gap_memory)
    score = math.sqrt(rhythm.gap_burst) * slow + math.sqrt(
        1 - rhythm.gap_burst
    ) * rng.standard_normal(jobs)
    gaps = rhythm.gaps.at(stratified(score, rng))
    relative: Floats = gaps / gaps.mean()
    return relative


def submit_times(rhythm: Rhythm, gaps: Floats, span_s: float, rng: np.random.Generator) -> Floats:
    """Return instants of submission, whole seconds, the last at `span_s`; second 0 is midnight
    before a Monday."""
    edges_s, passed = _clock(rhythm, span_s, rng)
    done = np.cumsum(gaps)
    return np.asarray(
        np.floor(np.interp(done / done[-1] * passed[-1], passed, edges_s)), dtype=np.float64
    )


def stratified(score: Floats, rng: np.random.Generator) -> Floats:
    """Return levels between 0 and 1 in the order of the scores, one in each of as many equal strata
    as there are scores."""
    levels = np.empty(len(score))
    levels[np.argsort(score, kind="stable")] = (
        np.arange(len(score)) + rng.random(len(score))
    ) / len(score)
    return levels


def _clock(rhythm: Rhythm, span_s: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return edges of the hours, and how many jobs (up to a factor) are due by each."""
    hours = np.arange(max(1, math.ceil(span_s / HOUR_S)))
    edges_s = np.append(hours * HOUR_S, span_s)
    days = hours // HOURS
    spread = (
        _autoregression(rng.standard_normal(int(days[-1]) + 1), rhythm.day_memory)
        * rhythm.day_spread
    )
    rate = (
        np.array(rhythm.hours)[hours % HOURS]
        * np.array(rhythm.weekdays)[days % WEEKDAYS]
        * np.exp(spread)[days]
    )
    return edges_s, np.append(0.0, np.cumsum(rate * np.diff(edges_s)))


def _autoregression(noise: Floats, memory: float) -> Floats:
    """Return a stationary first-order autoregression of variance 1 with this correlation from one
    value to the next."""
    noise[1:] *= math.sqrt(1 - memory**2)
    return np.fromiter(
        accumulate(noise.tolist(), lambda level, new: memory * level + new), float, len(noise)
    )
