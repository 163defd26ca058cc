"""How well jobs use the GPUs that they hold, and what gangs lose to the network."""

import math

import numpy as np

from ..record import Ints, Record
from .classes import Classes
from .use import gpus_held


def gpu_utilisation(rows: Record, job_classes: Classes) -> float | None:
    """Return how many of the GPU-seconds held the same work takes at the best rate that its job has
    on as many GPUs of that type; None where nobody held any.

    What is missing to 1: too few cores or a lower clock, a spread gang, contention, overheads. More
    than 1 is what jobs that share GPUs do together. A gang on several types counts as it was.
    """
    best: dict[tuple[int, int, int], float] = {}
    number = {name: k for k, name in enumerate(rows.instance.cluster.gpu_types)}
    for k, options in enumerate(job_classes.options):
        for option in options:
            gpu_type = number.get(option.mode.gpu_type, -1)
            key = k, gpu_type, option.mode.gpus
            best[key] = max(option.rate, best.get(key, 0.0))
    first, of_row = _ways(rows, job_classes)
    of_class = job_classes.of_job[rows.job]
    keys = zip(of_class[first], rows.gpu_type[first], rows.gpus[first], strict=True)
    rate = np.array([best.get(key, 0.0) for key in keys])[of_row]
    held_s = gpus_held(rows) * (rows.end_s - rows.start_s)
    needed_s = np.divide(rows.gpus * rows.work_s, rate, out=held_s.copy(), where=rate > 0)
    holds = rows.gpus > 0
    held = math.fsum(held_s[holds].tolist())
    return math.fsum(needed_s[holds].tolist()) / held if held > 0.0 else None


def communication_overhead(rows: Record, job_classes: Classes) -> float | None:
    """Return how much more GPU time gangs worked than the same work takes in the same mode at its
    best place, as a share of that: what spreading and crowded channels took. Rows on shared GPUs
    are left out; None where no gang worked.
    """
    best = {
        (k, option.mode): max(other.rate for other in options if other.mode == option.mode)
        for k, options in enumerate(job_classes.options)
        for option in options
    }
    first, of_row = _ways(rows, job_classes)
    ways = zip(job_classes.of_job[rows.job[first]], rows.mode[first], strict=True)
    rate = np.array([best.get((k, rows.modes[m]), 0.0) for k, m in ways])[of_row]
    works = (rows.gpus > 1) & (rows.partner < 0) & (rows.work_s > 0) & (rate > 0)
    length_s = (rows.end_s - rows.start_s)[works]
    gpus, overhead_s = rows.gpus[works], rows.overhead_s[works]
    worked = gpus * (length_s - np.clip(overhead_s, 0.0, length_s))
    needed = gpus * rows.work_s[works] / rate[works]
    if not works.any():
        return None
    return max(0.0, math.fsum(worked.tolist()) / math.fsum(needed.tolist()) - 1.0)


def _ways(rows: Record, job_classes: Classes) -> tuple[Ints, Ints]:
    """Return the first row of each pair of a class and a mode in which its jobs ran, and the number
    of the pair of each row."""
    pair = job_classes.of_job[rows.job] * len(rows.modes) + rows.mode
    _, first, of_row = np.unique(pair, return_index=True, return_inverse=True)
    return first, of_row
