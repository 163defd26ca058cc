"""Electric energy of the GPUs held, what it costs, and what it emits."""

import numpy as np

from ...objectives import TERMS, Usage
from ..record import Floats, Record
from .classes import Classes
from .use import Parts


def power_parts_w(rows: Record, part: Parts, job_classes: Classes) -> Floats:
    """Return the power of each part of a row: `power_w` of the job on its GPU type, times the power
    of the row's clock, and GPUs. Two jobs that share GPUs are each charged their own."""
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
    return power_w * part.gpus


def used(name: str, rows: Record, part: Parts, power_w: Floats) -> Floats | None:
    """Return what each part of a row uses by the objective of this name: `energy`, or what that
    costs or emits; None where the cluster does not say."""
    term, cluster = TERMS[name], rows.instance.cluster
    assert isinstance(term, Usage)
    if term.over_time is not None and getattr(cluster, term.over_time) is None:
        return None
    start_s, seconds = rows.start_s[part.row], (rows.end_s - rows.start_s)[part.row]
    return np.asarray(term.per_s(power_w, 0.0) * term.tariff(cluster).integral(start_s, seconds))
