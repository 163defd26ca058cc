"""Alibaba's 2020 trace of its Platform for AI: a folder of tables, or the one table of its
simulator.

The folder holds `pai_job_table.csv`, `pai_task_table.csv`, `pai_machine_spec.csv` and, if it is
there, `pai_group_tag_table.csv` (each also as `.csv.gz`, with or without a header line).

- A job is a job: submitted at the job's `start_time`, it runs from the first start to the last end
  of its roles (tasks) with GPUs, or of all its roles where none has GPUs.
- Every instance of a role asks for `plan_gpu` percent of a GPU. An instance holds whole GPUs, so
  the gang is the sum of `inst_num` * ceil(`plan_gpu` / 100) over the roles with GPUs; where all
  their instances ask for parts of a GPU, `sharing.duty` is the mean part: such jobs may share GPUs
  with others. A job of one instance makes progress on one node only.
- Cores and memory of the roles with GPUs are spread evenly over the gang (cores rounded up). Roles
  without GPUs (parameter servers, evaluators) beside such ones are left out: what they hold is not
  tied to the GPUs' nodes.
- A job without GPUs is a CPU-only job with all its cores and memory on one node. - The group tag,
which recurring jobs share, is the `command`. `gpu_type_spec` allows one GPU type, the only key of
  `rate`. The `gpu_type` of a task is what it was given, not what it asked for, and restricts
  nothing.
- Jobs that failed held their GPUs too and are kept; those still running or waiting at the end have
  no duration.

`pai_instance_table` (7.5 million rows) is not read: its machines were another scheduler's choice,
its times are those of single instances. Those of their task span all of them, restarts included,
and any wait of instances for a machine once the first of the job's tasks was launched.

The simulator's table has a job a row (`num_inst` instances of `num_gpu` GPUs and `num_cpu` cores).

Source: Q. Weng et al., MLaaS in the wild: workload analysis and scheduling in large-scale
heterogeneous GPU clusters, NSDI'22.
"""

from collections.abc import Container, Iterator
from pathlib import Path

from ...errors import InputError
from ...model import Job, Node
from ..clusters import own_or
from ..imported import (
    ClusterText,
    FirstDate,
    Format,
    GpuCount,
    Imported,
    LastDate,
    Track,
    found_beside,
)
from ..tables.table import Row, Table
from ..usable import NAMED_TWICE, NO_TIME, NOTHING, SHORTEST_S, imported, stem, window
from . import pai_simulator
from .alibaba import cluster_of_machines, gpu_type, job, machine
from .pai_roles import Role, request_of

JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
MACHINE_COLUMNS = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
TAG_COLUMNS = ("inst_id", "user", "gpu_type_spec", "group", "workload")
ENDED = ("Terminated", "Failed")

NOT_ENDED = "not ended in the trace ({}), so of unknown duration"
NO_TIMES = "without start and end of its tasks"


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    cluster: ClusterText | None = None,
    gpus_per_node: GpuCount | None = None,
    start: FirstDate = None,
    end: LastDate = None,
) -> Imported:
    """Read the folder of tables, or the simulator's table; `jobs` keeps the first so many, by
    submission.

    The machines are those of `pai_machine_spec.csv`, in the folder or beside the table, unless
    `cluster` names others (`v100=288,misc=96` in nodes of `gpus_per_node`, 8 by default). `start`
    and `end` are seconds of the trace. Raises InputError with the line of the first fault.
    """
    path = Path(source)
    span = window(start, end)
    folder = path if path.is_dir() else path.parent
    simulated = None if path.is_dir() else pai_simulator.opened(path)
    machines = own_or(cluster, gpus_per_node) or cluster_of_machines(
        folder, _machines(_needed(folder, "pai_machine_spec", "; name the GPUs with --cluster"))
    )
    entries = _tables(path, track) if simulated is None else pai_simulator.entries(simulated, track)
    return imported(path, machines, entries, jobs, name=stem(path.resolve(), ".csv"), span=span)


def _needed(folder: Path, name: str, remedy: str = "") -> Path:
    if (path := found_beside(f"{name}.csv", folder)) is None:
        raise InputError(
            f"{folder}: has no {name}.csv (or .csv.gz); expected the unpacked tables of the "
            f"trace{remedy}"
        )
    return path


def _rows(path: Path, columns: tuple[str, ...], track: Track = iter) -> Iterator[Row]:
    return Table(path, columns, headless=columns).rows(track)


def _machines(path: Path) -> Iterator[tuple[Row, str, Node]]:
    for row in _rows(path, MACHINE_COLUMNS):
        cpus, memory_gib = row.known("cap_cpu"), row.known("cap_mem")
        gpus = row.count("cap_gpu")
        yield row, "machine", machine(row["machine"], row["gpu_type"], gpus, cpus, memory_gib)


# ------------------------------------------------------------------------------------------------
# the tables


def _tables(folder: Path, track: Track) -> Iterator[Job | str]:
    """Yield the jobs of the tables, and for each of the others why it is left out."""
    job_table, task_table = _needed(folder, "pai_job_table"), _needed(folder, "pai_task_table")
    jobs: dict[str, tuple[Row, float | None]] = {}
    for row in _rows(job_table, JOB_COLUMNS, track):
        submit_s = row.known("start_time") or None  # 0 stands for unknown
        name = row.named("job_name")
        if row["status"] not in ENDED:
            yield NOT_ENDED.format(row["status"] or "no status")
        elif name in jobs:
            yield NAMED_TWICE
        else:
            jobs[name] = row, submit_s
    roles = _roles(task_table, jobs, track)
    tags = _tags(folder, {row["inst_id"] for row, _ in jobs.values()}, track)
    for name, (row, submit_s) in jobs.items():
        yield _job(name, row, submit_s, roles.get(name, []), *tags.get(row["inst_id"], ("", "")))


def _job(
    name: str, row: Row, submit_s: float | None, roles: list[Role], type_: str, group: str
) -> Job | str:
    """Return the job of its roles, or why it is left out."""
    asking = [role for role in roles if role.gpus] or roles
    times = [
        (role.start_s, role.end_s)
        for role in asking
        if role.start_s is not None and role.end_s is not None
    ]
    if not times:
        return NO_TIMES
    start_s = min(start_s for start_s, _ in times)
    duration_s = max(end_s for _, end_s in times) - start_s
    if duration_s < SHORTEST_S:
        return NO_TIME
    request = request_of(asking, gpu_type(type_))
    if request.empty:
        return NOTHING
    return job(
        request,
        id=name,
        submit_s=start_s if submit_s is None else submit_s,
        duration_s=duration_s,
        user=row["user"],
        command=group,
    )


def _roles(path: Path, wanted: Container[str], track: Track) -> dict[str, list[Role]]:
    roles: dict[str, list[Role]] = {}
    for row in _rows(path, TASK_COLUMNS, track):
        name = row["job_name"]
        if name not in wanted:
            continue
        role = Role.of(
            row,
            "plan_gpu",
            instances=row.count("inst_num"),
            gpu_percent=row.known("plan_gpu") or 0.0,
            cores=(row.known("plan_cpu") or 0.0) / 100,
            memory_gib=row.known("plan_mem") or 0.0,
            start_s=row.known("start_time") or None,
            end_s=row.known("end_time") or None,
        )
        if role.instances:
            roles.setdefault(name, []).append(role)
    return roles


def _tags(folder: Path, wanted: Container[str], track: Track) -> dict[str, tuple[str, str]]:
    """Return GPU type asked for and group tag of the wanted `inst_id`s; nothing without the
    table."""
    if (path := found_beside("pai_group_tag_table.csv", folder)) is None:
        return {}
    return {
        row["inst_id"]: (row["gpu_type_spec"], row["group"])
        for row in _rows(path, TAG_COLUMNS, track)
        if row["inst_id"] in wanted
    }


FORMAT = Format(
    title="Alibaba PAI 2020, folder of tables or the simulator's table (pai_*.csv, .csv.gz)",
    read=read,
)
