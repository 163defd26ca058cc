"""What the job tables of Helios and Acme share: requested GPUs and cores, a state, and three
times."""

from typing import NamedTuple

from ...model.profile import UNMEASURED, Profile
from ..imported import At
from ..submitted import NO_SUBMISSION, held_beside, ran_s
from ..tables.dates import MISSING, time_at

COLUMNS = ("job_id", "user", "gpu_num", "cpu_num", "state", "submit_time", "start_time", "end_time")
OPEN_STATES = frozenset(("RUNNING", "SUSPENDED", "PENDING"))
UNFINISHED = "still running, suspended or waiting when the log was taken"
NOTHING = "asks for neither GPUs nor cores"
CPU_ONLY = "asks for no GPU"


class Ran(NamedTuple):
    """What a job asked for, when it was submitted, and for how long it held what it asked for."""

    gpus: int
    cpus: int
    submit_s: float
    duration_s: float

    def profile(self, memory_gib: float = 0.0) -> Profile:
        """The cores and the host memory beside each GPU; nothing else is known."""
        return held_beside(self.gpus, self.cpus, memory_gib) if self.gpus else UNMEASURED


def ran(
    at: At,
    gpu_num: str,
    cpu_num: str,
    state: str,
    submit_time: str,
    start_time: str,
    end_time: str,
    *,
    cpu_jobs: bool,
) -> Ran | str:
    """The job of a row, or why it cannot be used; one that failed or was cancelled held its GPUs
    like the others.

    How long is end - start: the column `duration` of one of these tables has the time in the queue
    in it.
    """
    gpus, cpus = count(at, gpu_num, "gpu_num"), count(at, cpu_num, "cpu_num")
    submit_s = time_at(at, submit_time, "the submit_time")
    duration_s = ran_s(
        time_at(at, start_time, "the start_time"), time_at(at, end_time, "the end_time")
    )
    if not gpus and not cpu_jobs:
        return CPU_ONLY
    if not gpus and not cpus:
        return NOTHING
    if state in OPEN_STATES:
        return UNFINISHED
    if submit_s is None:
        return NO_SUBMISSION
    return duration_s if isinstance(duration_s, str) else Ran(gpus, cpus, submit_s, duration_s)


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
