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

from collections.abc import Iterator
from pathlib import Path

from ...errors import InputError
from ...model.cluster import Cluster, Node
from ...model.job import Job
from ...model.profile import Profile
from ..clusters import cluster_of
from ..imported import ClusterText, FirstDate, Format, GpuCount, Imported, LastDate, Track
from ..tables.streamed_table import table
from ..usable import Window, imported, stem, window
from . import pai_simulator
from .alibaba import (
    NAMED_TWICE,
    NO_TIME,
    NOTHING,
    SHORTEST_S,
    Request,
    gpu_type,
    job,
    known,
    node,
    whole,
)
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
    if not path.is_dir():
        pai_simulator.check_columns(path)
    machines = _cluster(path, cluster, gpus_per_node)
    entries = (_tables if path.is_dir() else pai_simulator.entries)(path, span, track)
    return imported(
        path, machines, entries, jobs, name=stem(path.resolve(), ".csv"), twice=NAMED_TWICE
    )


def _file(folder: Path, name: str) -> Path | None:
    candidates = (folder / f"{name}.csv", folder / f"{name}.csv.gz")
    return next((path for path in candidates if path.is_file()), None)


def _needed(folder: Path, name: str) -> Path:
    if (path := _file(folder, name)) is None:
        raise InputError(
            f"{folder}: has no {name}.csv (or .csv.gz); expected the unpacked tables of the trace"
        )
    return path


def _cluster(source: Path, given: str | None, gpus_per_node: int | None) -> Cluster:
    if given is not None:
        return cluster_of(given, gpus_per_node or 8)
    if gpus_per_node is not None:
        raise InputError(
            "--gpus-per-node goes with --cluster here: the machines have their own size"
        )
    place, folder = ("in", source) if source.is_dir() else ("beside", source.parent)
    if (path := _file(folder, "pai_machine_spec")) is None:
        raise InputError(
            f"{source}: no pai_machine_spec.csv (or .csv.gz) {place} it; name the GPUs with "
            "--cluster, as v100=1080,t4=994"
        )
    return Cluster(nodes=tuple(_machines(path)))


def _machines(path: Path) -> Iterator[Node]:
    names: set[str] = set()
    for at, (name, type_, cpus, memory, gpus) in table(
        path, MACHINE_COLUMNS, columns=MACHINE_COLUMNS
    ):
        if name in names:
            at.fail("each machine once", name)
        names.add(name)
        yield node(
            at,
            name,
            gpu_type(type_),
            whole(at, gpus, "cap_gpu"),
            known(at, cpus, "cap_cpu"),
            known(at, memory, "cap_mem"),
        )
    if not names:
        raise InputError(f"{path}: lists no machine")


# ------------------------------------------------------------------------------------------------
# the tables


def _tables(folder: Path, span: Window, track: Track) -> Iterator[Job | str]:
    """Yield the jobs of the tables, and for each of the others why it is left out."""
    job_table, task_table = _needed(folder, "pai_job_table"), _needed(folder, "pai_task_table")
    rows: dict[str, tuple[str, str, float | None]] = {}
    for at, (name, inst_id, user, status, begun, _) in table(
        job_table, JOB_COLUMNS, columns=JOB_COLUMNS, track=track
    ):
        submit_s = known(at, begun, "start_time") or None  # 0 stands for unknown
        if not name:
            at.fail("a job_name", name)
        if submit_s is not None and (outside := span.outside(submit_s)):
            yield outside
        elif status not in ENDED:
            yield NOT_ENDED.format(status or "no status")
        elif name in rows:
            yield NAMED_TWICE
        else:
            rows[name] = inst_id, user, submit_s
    roles = _roles(task_table, rows, track)
    tags = _tags(
        _file(folder, "pai_group_tag_table"), {inst_id for inst_id, _, _ in rows.values()}, track
    )
    profiles: dict[Request, Profile] = {}
    for name, (inst_id, user, submit_s) in rows.items():
        type_, group = tags.get(inst_id, ("", ""))
        job = _job(name, submit_s, roles.get(name, []), gpu_type(type_), user, group, profiles)
        outside = None if isinstance(job, str) or submit_s else span.outside(job.submit_s)
        yield outside or job


def _job(
    name: str,
    submit_s: float | None,
    roles: list[Role],
    type_: str | None,
    user: str,
    group: str,
    profiles: dict[Request, Profile],
) -> Job | str:
    """The job of its roles, or why it is left out."""
    on_gpus = [role for role in roles if role.gpus]
    timed = [
        role for role in on_gpus or roles if role.start_s is not None and role.end_s is not None
    ]
    if not timed:
        return NO_TIMES
    start_s = min(role.start_s or 0.0 for role in timed)
    duration_s = max(role.end_s or 0.0 for role in timed) - start_s
    if duration_s < SHORTEST_S:
        return NO_TIME
    request = request_of(on_gpus or roles, type_)
    if request.empty:
        return NOTHING
    return job(
        request,
        profiles,
        id=name,
        submit_s=start_s if submit_s is None else submit_s,
        duration_s=duration_s,
        user=user or None,
        command=group or None,
    )


def _roles(
    path: Path, wanted: dict[str, tuple[str, str, float | None]], track: Track
) -> dict[str, list[Role]]:
    found: dict[str, list[Role]] = {}
    for at, cells in table(path, TASK_COLUMNS, columns=TASK_COLUMNS, track=track):
        name, _, count, _, begun, ended, cpu, memory, gpu, _ = cells
        if name not in wanted:
            continue
        role = Role(
            instances=whole(at, count, "inst_num"),
            gpu_percent=known(at, gpu, "plan_gpu") or 0.0,
            cores=(known(at, cpu, "plan_cpu") or 0.0) / 100,
            memory_gib=known(at, memory, "plan_mem") or 0.0,
            start_s=known(at, begun, "start_time") or None,
            end_s=known(at, ended, "end_time") or None,
        )
        if role.gpus > 1_000_000:
            at.fail("inst_num times plan_gpu of at most 1000000 GPUs", f"{count} times {gpu}")
        if role.instances:
            found.setdefault(name, []).append(role)
    return found


def _tags(path: Path | None, wanted: set[str], track: Track) -> dict[str, tuple[str, str]]:
    """GPU type asked for and group tag of the wanted `inst_id`s; nothing without the table."""
    if path is None:
        return {}
    columns = ("inst_id", "gpu_type_spec", "group")
    rows = table(path, columns, columns=TAG_COLUMNS, track=track)
    return {inst_id: (type_, group) for _, (inst_id, type_, group) in rows if inst_id in wanted}


FORMAT = Format(
    title="Alibaba PAI 2020, folder of tables or the simulator's table (pai_*.csv, .csv.gz)",
    read=read,
)
