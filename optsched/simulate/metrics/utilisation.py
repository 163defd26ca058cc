"""How well jobs use the GPUs that they hold, and what gangs lose to the network."""

import math

import numpy as np

from ..record import Record
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
    held_s = gpus_held(rows) * (rows.end_s - rows.start_s)
    needed, held = [], []
    of_row = job_classes.of_job[rows.job]
    for i in np.flatnonzero(rows.gpus > 0).tolist():
        rate = best.get((int(of_row[i]), int(rows.gpu_type[i]), int(rows.gpus[i])))
        ideal_s = held_s[i] if not rate else rows.gpus[i] * rows.work_s[i] / rate
        needed.append(float(ideal_s))
        held.append(float(held_s[i]))
    return math.fsum(needed) / math.fsum(held) if math.fsum(held) > 0.0 else None


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
    length_s = rows.end_s - rows.start_s
    worked_s = rows.gpus * (length_s - np.clip(rows.overhead_s, 0.0, length_s))
    of_row = job_classes.of_job[rows.job]
    worked, needed = [], []
    for i in np.flatnonzero((rows.gpus > 1) & (rows.partner < 0) & (rows.work_s > 0)).tolist():
        rate = best.get((int(of_row[i]), rows.modes[rows.mode[i]]))
        if rate:
            worked.append(float(worked_s[i]))
            needed.append(float(rows.gpus[i] * rows.work_s[i] / rate))
    return max(0.0, math.fsum(worked) / math.fsum(needed) - 1.0) if needed else None
