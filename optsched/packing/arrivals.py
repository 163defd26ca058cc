"""In which order jobs arrive, and until when: as in the published experiment."""

import numpy as np

from ..errors import InputError
from .problem import WHOLE, Array, Problem


def arrivals(problem: Problem, load: float, seed: int) -> Array:
    """Return the jobs that arrive one by one, as positions in `problem.names`; one may arrive
    several times.

    All jobs come once in random order, and then jobs drawn at random, with replacement, until one
    asks on each of its GPUs for more than is left to `load` times the GPUs of the cluster; where
    all jobs together ask for more than that already, random ones are left out until they do not.
    Source: TunePodsByNodeTotalResource of the simulator of FGD (ATC'23); its random numbers are
    Go's, these numpy's. Raises InputError for a load that is not above 0.
    """
    if not 0 < load <= 100:
        raise InputError(
            f"--load {load:g}: give a number above 0 and at most 100, as 1.3 for jobs that ask for "
            "130 % of the GPUs"
        )
    random = np.random.default_rng(seed)
    most = load * problem.gpu_units
    order = [int(i) for i in random.permutation(len(problem.names))]
    asked = int(problem.job_units.sum())
    while asked > most:
        asked -= int(problem.job_units[order.pop(int(random.integers(len(order))))])
    drawn = asked < most and len(order) == len(problem.names)
    while drawn:
        job = int(random.integers(len(problem.names)))
        units = int(problem.job_units[job])
        if asked + min(units, WHOLE) > most:
            break
        asked += units
        order.append(job)
    return np.array(order, dtype=np.int64)
