"""Electric energy of the GPUs held."""

import numpy as np

from ..record import Floats, Record
from .classes import Classes
from .use import Parts

WS_PER_KWH = 3.6e6


def energy_parts_kwh(rows: Record, part: Parts, job_classes: Classes) -> Floats:
    """Return energy of each part of a row: `power_w` of the job on its GPU type, times the power of
    the row's clock, GPUs and time, as in the objective `energy`. Two jobs that share GPUs are each
    charged their own."""
    types = rows.instance.cluster.gpu_types
    watts = np.zeros((len(job_classes.examples), len(types)))
    for k, job in enumerate(job_classes.examples):
        if job.profile.power_w:
            watts[k] = [
                0.0 if name is None else job.profile.power_w.get(name, 0.0) for name in types
            ]
    of_row = job_classes.of_job[rows.job]
    power_w = watts[of_row[part.row], part.gpu_type]
    clocks = [mode.clock_mhz for mode in rows.modes]
    if any(clock is not None for clock in clocks):
        set_at = np.array([clock is not None for clock in clocks])[rows.mode]
        for i in np.flatnonzero(set_at[part.row]):
            row = part.row[i]
            profile = job_classes.examples[of_row[row]].profile
            clock = profile.clocks.get(clocks[rows.mode[row]])
            if clock is not None:
                power_w[i] *= clock.power
    return power_w * part.gpus * (rows.end_s - rows.start_s)[part.row] / WS_PER_KWH
