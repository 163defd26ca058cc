"""The utility of what is done of jobs, over time."""

import math

import numpy as np

from ..record import Floats
from .classes import classes
from .losses import saving_s
from .measure import Metrics

FLAT = 1e-9
"""A share of the work that is no progress."""


def mean_utility(metrics: Metrics) -> float | None:
    """Return the mean over time, until the last release, of the sum over the jobs released by then
    of weight x log2(1 + share of the work that is done), as a share of what that sum would be if
    they were done at once; None where all are released at the same time.

    Work that is lost later counts until then.
    """
    instance, rows, release_s = metrics.instance, metrics.rows, metrics.release_s
    weight = np.array([job.weight for job in instance.jobs])
    until_s = float(release_s.max(initial=instance.now_s))
    whole = float((weight * (until_s - release_s)).sum())
    if not whole > 0:
        return None
    work_s = np.array([job.work_s for job in instance.jobs])
    begun_s = work_s - np.array([instance.remaining_s(job) for job in instance.jobs])
    first = np.append(True, rows.job[1:] != rows.job[:-1])
    last = np.append(first[1:], True)
    length_s = rows.end_s - rows.start_s
    overhead_s = np.clip(rows.overhead_s, 0.0, length_s)
    save_s = saving_s(rows, metrics.stays, classes(instance), overhead_s)
    kept_s = rows.work_s - rows.lost_s
    before_s = np.cumsum(kept_s) - kept_s
    before_s += begun_s[rows.job] - before_s[first][np.cumsum(first) - 1]
    share = _shares(before_s, work_s[rows.job])
    worked = _shares(before_s + rows.work_s, work_s[rows.job])
    kept = _shares(before_s + kept_s, work_s[rows.job])

    def seconds(from_s: Floats, to_s: Floats) -> Floats:
        return np.minimum(to_s, until_s) - np.minimum(from_s, until_s)

    works_from_s = rows.start_s + overhead_s - save_s
    works_to_s = rows.end_s - save_s
    leaves_s = np.append(rows.start_s[1:], until_s)
    leaves_s[last] = max(until_s, float(rows.end_s.max()))
    area = (
        np.log2(1 + share) * seconds(rows.start_s, works_from_s)
        + _rising(share, worked, works_to_s - works_from_s, seconds(works_from_s, works_to_s))
        + np.log2(1 + worked) * seconds(works_to_s, rows.end_s)
        + np.log2(1 + kept) * seconds(rows.end_s, leaves_s)
    )
    area[first] += np.log2(1 + share[first]) * seconds(
        release_s[rows.job[first]], rows.start_s[first]
    )
    return math.fsum((weight[rows.job] * area).tolist()) / whole


def _shares(done_s: Floats, work_s: Floats) -> Floats:
    return np.clip(done_s / work_s, 0.0, 1.0)


def _rising(from_share: Floats, to_share: Floats, length_s: Floats, seconds: Floats) -> Floats:
    """Return the integral of log2(1 + share) over the first `seconds` of a stretch of `length_s` in
    which the share rises evenly."""
    rise = to_share - from_share
    rises = (rise > FLAT) & (length_s > 0)
    slope = np.divide(rise, length_s, out=np.zeros(len(rise)), where=rises)
    reached = from_share + slope * seconds
    area = _antiderivative(reached) - _antiderivative(from_share)
    flat = np.log2(1 + from_share) * seconds
    return np.divide(area, slope, out=flat, where=rises)


def _antiderivative(share: Floats) -> Floats:
    """Return the integral of log2(1 + x) from 0 to each share."""
    return np.asarray(((1 + share) * np.log1p(share) - share) / math.log(2))
