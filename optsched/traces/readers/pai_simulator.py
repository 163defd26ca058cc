"""The one table that the simulator beside the PAI trace reads: a job a row, columns by name.

`num_inst` instances (1 where the column is missing), each of `num_gpu` GPUs and `num_cpu` cores.
`user_dur` and its kin are estimates of the simulator and are not read, nor is `gpu_type`, the type
that the job was given.
"""

from collections.abc import Iterator
from pathlib import Path

from ...errors import InputError
from ...model.job import Job
from ...model.profile import Profile
from ..imported import Track
from ..tables.streamed_table import first_row, table
from ..usable import Window
from .alibaba import NO_TIME, NOTHING, SHORTEST_S, Request, job, known, whole
from .pai_roles import Role, request_of

COLUMNS = ("job_id", "submit_time", "duration", "num_gpu")
OPTIONAL = ("num_inst", "num_cpu", "user", "group")
NO_DURATION = "of unknown duration"


def check_columns(path: Path) -> None:
    """Raises InputError where a file is not this table."""
    if not set(COLUMNS) <= set(head := first_row(path)):
        raise InputError(
            f"{path}: line 1: expected the folder of the pai_*_table.csv files, or a table with "
            "the columns "
            f"{', '.join(COLUMNS)}, found {', '.join(head)[:60]!r}"
        )


def entries(path: Path, span: Window, track: Track) -> Iterator[Job | str]:
    """Yield the job of each row, or why it is left out."""
    profiles: dict[Request, Profile] = {}
    for at, cells in table(path, COLUMNS, optional=OPTIONAL, track=track):
        name, submit, duration, gpu, instances, cpu, user, group = cells
        submit_s, duration_s = known(at, submit, "submit_time"), known(at, duration, "duration")
        if not name or submit_s is None:
            at.fail("a job_id and a submit_time", ",".join(cells))
        role = Role(
            instances=whole(at, instances, "num_inst") if instances else 1,
            gpu_percent=100 * (known(at, gpu, "num_gpu") or 0.0),
            cores=known(at, cpu, "num_cpu") or 0.0,
        )
        if role.gpus > 1_000_000:
            at.fail("num_inst times num_gpu of at most 1000000 GPUs", f"{instances} times {gpu}")
        request = request_of([role], None)
        yield (
            span.outside(submit_s)
            or (NO_DURATION if duration_s is None else NO_TIME if duration_s < SHORTEST_S else None)
            or (NOTHING if request.empty else None)
            or job(
                request,
                profiles,
                id=name,
                submit_s=submit_s,
                duration_s=duration_s or 0.0,
                user=user or None,
                command=group or None,
            )
        )
