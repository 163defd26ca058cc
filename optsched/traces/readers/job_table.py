"""What the job tables of Helios and Acme share: requested GPUs and cores, a state, and three
times."""

from collections.abc import Sequence

from ...model.profile import UNMEASURED
from ..imported import At
from ..submitted import NO_SUBMISSION, Submitted, held_beside, ran_s
from ..tables.dates import MISSING, time_at

COLUMNS = ("job_id", "user", "gpu_num", "cpu_num", "state", "submit_time", "start_time", "end_time")
OPEN_STATES = frozenset(("RUNNING", "SUSPENDED", "PENDING"))
UNFINISHED = "still running, suspended or waiting when the log was taken"
NOTHING = "asks for neither GPUs nor cores"
CPU_ONLY = "asks for no GPU"


def submitted(at: At, cells: Sequence[str], *, cpu_jobs: bool) -> Submitted | str:
    """Return the job of a row, from the cells of `COLUMNS`, or why it cannot be used; one that
    failed or was cancelled held its GPUs like the others.

    How long is end - start: the column `duration` of one of these tables has the time in the queue
    in it.
    """
    job_id, user, gpu_num, cpu_num, state, submit_time, start_time, end_time = cells
    gpus, cpus = count(at, gpu_num, "gpu_num"), count(at, cpu_num, "cpu_num")
    submit_s = time_at(at, submit_time, "the submit_time")
    duration_s = ran_s(
        time_at(at, start_time, "the start_time"), time_at(at, end_time, "the end_time")
    )
    if not job_id:
        at.fail("a job_id", job_id)
    if not gpus and not cpu_jobs:
        return CPU_ONLY
    if not gpus and not cpus:
        return NOTHING
    if state in OPEN_STATES:
        return UNFINISHED
    if submit_s is None:
        return NO_SUBMISSION
    if isinstance(duration_s, str):
        return duration_s
    return Submitted(
        id=job_id,
        submit_s=submit_s,
        gpus=gpus,
        cpus=cpus,
        duration_s=duration_s,
        user=user or None,
        profile=held_beside(gpus, cpus) if gpus else UNMEASURED,
    )


def count(at: At, text: str, what: str) -> int:
    """A whole number, which may be written as 8.0; 0 where there is none. Raises InputError."""
    if len(text) < 10 and text.isdecimal() and text.isascii():
        return int(text)
    if text in MISSING:
        return 0
    value = at.number(text, what)
    if value != int(value) or not 0 <= value < 1e9:
        at.fail(f"{what} as a whole number", text)
    return int(value)
