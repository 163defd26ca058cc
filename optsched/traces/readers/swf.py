"""Workload logs and models in the Standard Workload Format (SWF) of the Parallel Workloads Archive.

A line is a job: 18 numbers separated by blanks, -1 where unknown. Lines that start with `;` are
comments; those of the form `; MaxProcs: 256` describe the machine.

- A processor is a GPU without a type, a job a gang of the processors allocated to it, or requested
  where that is unknown. Gangs run at rate 1 on any processors that are free. The machine has
  MaxProcs of them, or MaxNodes where that is all the header says, in nodes of `gpus_per_node`;
  `cluster` replaces the machine.
- `duration_s` is the run time. A completed job that ran for 0 s ran for less than half a second:
0.5 s. - User, group and executable are `user`, `tenant` and `command`: the group is who pays, where
anybody does. - The preceding job is `after`; the think time between them is in the submission time
already. An order against that of
  the submissions is left out, so is one after a job that is left out.
- Failed jobs, and those cancelled while they ran, held their processors and are kept. Lines with
  status 2, 3 or 4 are parts of a job that has a line of its own.
- Not kept: wait time, CPU time, memory, requested time, queue, partition. An instance has no field
  for the time a user asked for; the others say what another scheduler did, or nothing of
  processors.

Source: S. Chapin et al., Benchmarks and standards for the evaluation of parallel job schedulers,
JSSPP'99; version 2.2: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.
"""

import re
from dataclasses import replace
from pathlib import Path

from ...errors import InputError
from ...model import Cluster, Job, Node
from ..clusters import MAX_GPUS, cluster_of, sizes
from ..imported import (
    ClusterText,
    FirstDate,
    Format,
    GpuCount,
    Imported,
    LastDate,
    Track,
    read_text,
)
from ..tables.table import Row, lines
from ..usable import NEVER_RAN, SHORTEST_S, imported, stem, window

COLUMNS = (
    "job submit wait run allocated cpu memory requested requested_time requested_memory status "
    "user group executable queue partition preceding_job think_time"
)
COMPLETED, CANCELLED = 1, 5
PARTS = (2, 3, 4)
LESS_THAN_A_SECOND_S = 0.5

UNKNOWN = "of unknown run time or processors"
PART = "parts of a job that has a line of its own (status 2, 3, 4)"


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    cluster: ClusterText | None = None,
    gpus_per_node: GpuCount = 8,
    start: FirstDate = None,
    end: LastDate = None,
) -> Imported:
    """Read a workload; `jobs` keeps the first so many, by submission, of those that can run.

    `start` and `end` are dates where the header has UnixStartTime, or seconds of the workload.
    Raises InputError with the line of the first fault.
    """
    path = Path(source)
    header = _header(read_text(path))
    unix_start_s = header.get("UnixStartTime", 0)
    span = window(start, end, unix_start_s if unix_start_s > 0 else None)
    rows = lines(path, COLUMNS, separator=None, comment=";", track=track)
    entries = [_job(row) for row in rows]
    machine = (
        _machine(path, header, gpus_per_node)
        if cluster is None
        else cluster_of(cluster, gpus_per_node)
    )
    made = imported(path, machine, entries, jobs, name=stem(path, ".swf"), span=span)
    ordered = _after_earlier_ones(made.instance.jobs)
    return replace(made, instance=replace(made.instance, jobs=ordered))


def _header(text: str) -> dict[str, int]:
    """Return the comments `; Name: number`, by name; the first of a name counts."""
    comments = re.findall(r"^[^\S\n]*;[^\S\n]*(\w+):[^\S\n]*(\d{1,12})\b", text, re.MULTILINE)
    return {name: int(number) for name, number in reversed(comments)}


def _machine(path: Path, header: dict[str, int], gpus_per_node: int) -> Cluster:
    processors = header.get("MaxProcs") or header.get("MaxNodes") or 0
    if not 1 <= processors <= MAX_GPUS:
        raise InputError(
            f"{path}: no comment '; MaxProcs: N' or '; MaxNodes: N' with N from 1 to {MAX_GPUS}; "
            "say how many processors there are with --cluster, as cpu=256"
        )
    each = sizes(processors, gpus_per_node)
    return Cluster(nodes=tuple(Node(name=f"node-{i}", gpus=gpus) for i, gpus in enumerate(each)))


def _job(row: Row) -> Job | str:
    """Return the job of a line, or why it is left out."""
    run_s, status = row.number("run"), _whole(row, "status")
    number, submit_s = _whole(row, "job", least=0), row.number("submit", least=0)
    allocated, requested = _whole(row, "allocated"), _whole(row, "requested")
    if status in PARTS:
        return PART
    if run_s <= 0 and (status == CANCELLED or (run_s == 0 and status != COMPLETED)):
        return NEVER_RAN
    processors = allocated if allocated > 0 else requested
    if run_s < 0 or processors < 1:
        return UNKNOWN
    if processors > MAX_GPUS:
        row.refuse(f"at most {MAX_GPUS} processors", "allocated", "requested")
    preceding = _whole(row, "preceding_job")
    return Job(
        id=_id(number),
        submit_s=submit_s,
        tenant=_named(row, "group"),
        user=_named(row, "user"),
        command=_named(row, "executable"),
        after=() if preceding < 0 else (_id(preceding),),
        gpus=processors,
        duration_s=max(run_s, SHORTEST_S) if run_s else LESS_THAN_A_SECOND_S,
    )


def _whole(row: Row, column: str, least: float = -1e10) -> int:
    value = row.number(column, least=least)
    if value != int(value):
        row.refuse(f"{column} as a whole number", column)
    return int(value)


def _named(row: Row, column: str) -> str | None:
    number = _whole(row, column)
    return None if number < 0 else f"{column}-{number}"


def _id(number: int) -> str:
    return f"job-{number}"


def _after_earlier_ones(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return the jobs, each after those before it only: order then has no cycle."""
    seen: set[str] = set()
    ordered: list[Job] = []
    for job in jobs:
        ordered.append(job if not job.after or job.after[0] in seen else replace(job, after=()))
        seen.add(job.id)
    return tuple(ordered)


FORMAT = Format(
    title="Standard Workload Format of the Parallel Workloads Archive (.swf, .swf.gz)",
    read=read,
    profiled=True,
)
