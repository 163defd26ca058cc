"""What the job tables of Helios and Acme share: requested GPUs and cores, a state, and three
times."""

from typing import Any

from ...model import Job
from ..tables.table import Row
from ..usable import NO_SUBMISSION, NOTHING, held_beside, ran_s

COLUMNS = ("job_id", "user", "gpu_num", "cpu_num", "state", "submit_time", "start_time", "end_time")
OPEN_STATES = frozenset(("RUNNING", "SUSPENDED", "PENDING"))
UNFINISHED = "still running, suspended or waiting when the log was taken"
CPU_ONLY = "asks for no GPU"


def submitted(row: Row, *, cpu_jobs: bool, memory_gib: float = 0.0, **own: Any) -> Job | str:
    """Return the job of a row, or why it cannot be used; one that failed or was cancelled held its
    GPUs like the others.

    How long is end - start: the column `duration` of one of these tables has the time in the queue
    in it.
    """
    gpus, cpus = row.count("gpu_num"), row.count("cpu_num")
    submit_s = row.time_s("submit_time")
    duration_s = ran_s(row.time_s("start_time"), row.time_s("end_time"))
    job_id = row.named("job_id")
    if not gpus and not cpu_jobs:
        return CPU_ONLY
    if not gpus and not cpus:
        return NOTHING
    if row["state"] in OPEN_STATES:
        return UNFINISHED
    if submit_s is None:
        return NO_SUBMISSION
    if isinstance(duration_s, str):
        return duration_s
    return Job(
        id=job_id,
        submit_s=submit_s,
        gpus=gpus,
        cpus=0 if gpus else cpus,
        memory_gib=0.0 if gpus else memory_gib,
        duration_s=duration_s,
        user=row["user"] or None,
        profile=held_beside(gpus, cpus, memory_gib),
        **own,
    )
