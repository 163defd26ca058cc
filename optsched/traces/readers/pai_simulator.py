"""The one table that the simulator beside the PAI trace reads: a job a row, columns by name.

`num_inst` instances (1 where the column is missing), each of `num_gpu` GPUs and `num_cpu` cores.
`user_dur` and its kin are estimates of the simulator and are not read, nor is `gpu_type`, the type
that the job was given.
"""

from collections.abc import Iterator
from pathlib import Path

from ...errors import InputError
from ...model import Job
from ..imported import Track
from ..tables.table import Table
from ..usable import NO_TIME, NOTHING, SHORTEST_S
from .alibaba import job
from .pai_roles import Role, request_of

COLUMNS = ("job_id", "submit_time", "duration", "num_gpu")
OPTIONAL = ("num_inst", "num_cpu", "user", "group")
NO_DURATION = "of unknown duration"


def opened(path: Path) -> Table:
    """Return the table in a file. Raises InputError where it is not this one."""
    if not set(COLUMNS) <= set(header := Table(path, ()).header):
        raise InputError(
            f"{path}: line 1: expected the folder of the pai_*_table.csv files, or a table with "
            f"the columns {', '.join(COLUMNS)}, found {', '.join(header)[:60]!r}"
        )
    return Table(path, COLUMNS, OPTIONAL)


def entries(table: Table, track: Track) -> Iterator[Job | str]:
    """Yield the job of each row, or why it is left out."""
    for row in table.rows(track):
        submit_s, duration_s = row.known("submit_time"), row.known("duration")
        if submit_s is None:
            row.refuse("a job_id and a submit_time")
        request = request_of(
            [
                Role.of(
                    row,
                    "num_gpu",
                    instances=row.count("num_inst") if row["num_inst"] else 1,
                    gpu_percent=100 * (row.known("num_gpu") or 0.0),
                    cores=row.known("num_cpu") or 0.0,
                )
            ],
            None,
        )
        if duration_s is None:
            yield NO_DURATION
        elif duration_s < SHORTEST_S:
            yield NO_TIME
        elif request.empty:
            yield NOTHING
        else:
            yield job(
                request,
                id=row.named("job_id"),
                submit_s=submit_s,
                duration_s=duration_s,
                user=row["user"],
                command=row["group"],
            )
