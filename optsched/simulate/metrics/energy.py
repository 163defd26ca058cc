"""Electric energy of the GPUs held."""

import numpy as np

from ..record import Floats, Record
from .classes import Classes

WS_PER_KWH = 3.6e6


def energy_kwh(rows: Record, found: Classes) -> Floats:
    """Energy of each row: `power_w` of the job on the row's GPU type, times the power of its clock, GPUs and time, as
    in the objective `energy`. Two jobs that share GPUs are each charged their own."""
    types = rows.instance.cluster.gpu_types
    watts = np.zeros((len(found.examples), len(types) + 1))  # the last column is that of rows without GPUs
    for k, job in enumerate(found.examples):
        if job.profile.power_w:
            watts[k, :-1] = [0.0 if name is None else job.profile.power_w.get(name, 0.0) for name in types]
    of_row = found.of_job[rows.job]
    power_w = watts[of_row, rows.gpu_type]
    clocks = [mode.clock_mhz for mode in rows.modes]
    if any(clock is not None for clock in clocks):
        for row in np.flatnonzero(np.array([clock is not None for clock in clocks])[rows.mode]):
            profile = found.examples[of_row[row]].profile
            clock = profile.clocks.get(clocks[rows.mode[row]])
            if clock is not None:
                power_w[row] *= clock.power
    return power_w * rows.gpus * (rows.end_s - rows.start_s) / WS_PER_KWH
