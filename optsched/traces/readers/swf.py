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

import math
import re
from dataclasses import replace
from pathlib import Path

from ...errors import InputError
from ...model.cluster import Cluster, Node
from ...model.job import Job
from ..clusters import MAX_GPUS, cluster_of
from ..imported import (
    At,
    ClusterText,
    FirstDate,
    Format,
    GpuCount,
    Imported,
    LastDate,
    Track,
    read_text,
)
from ..usable import Window, imported, stem, window

COLUMNS = 18
COMPLETED, CANCELLED = 1, 5
PARTS = (2, 3, 4)
LESS_THAN_A_SECOND_S = 0.5

UNKNOWN = "of unknown run time or processors"
NEVER_RAN = "never ran (failed or cancelled before)"
PART = "parts of a job that has a line of its own (status 2, 3, 4)"
TWICE = "a job of this number came before"


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
    lines = read_text(path).split("\n")
    header = _header(lines)
    unix_start_s = header.get("UnixStartTime", 0)
    span = window(start, end, unix_start_s if unix_start_s > 0 else None)
    entries = [
        _job(At(str(path), number), line, span)
        for number, line in enumerate(track(lines), start=1)
        if line.strip() and not line.lstrip().startswith(";")
    ]
    if not entries:
        raise InputError(
            f"{path}: has no job; expected one a line, {COLUMNS} numbers separated by blanks"
        )
    machine = (
        _machine(path, header, gpus_per_node)
        if cluster is None
        else cluster_of(cluster, gpus_per_node)
    )
    made = imported(path, machine, entries, jobs, name=stem(path, ".swf"), twice=TWICE)
    ordered = _after_earlier_ones(made.instance.jobs)
    return replace(made, instance=replace(made.instance, jobs=ordered))


def _header(lines: list[str]) -> dict[str, int]:
    """The comments `; Name: number`, by name; the first of a name counts."""
    found: dict[str, int] = {}
    for line in lines:
        if matched := re.match(r"\s*;\s*(\w+):\s*(\d{1,12})\b", line):
            found.setdefault(matched[1], int(matched[2]))
    return found


def _machine(path: Path, header: dict[str, int], gpus_per_node: int) -> Cluster:
    processors = header.get("MaxProcs") or header.get("MaxNodes") or 0
    if not 1 <= processors <= MAX_GPUS:
        raise InputError(
            f"{path}: no comment '; MaxProcs: N' or '; MaxNodes: N' with N from 1 to {MAX_GPUS}; "
            "say how many "
            "processors there are with --cluster, as cpu=256"
        )
    sizes = [gpus_per_node] * (processors // gpus_per_node)
    if rest := processors % gpus_per_node:
        sizes.append(rest)
    return Cluster(nodes=tuple(Node(name=f"node-{i}", gpus=size) for i, size in enumerate(sizes)))


def _job(at: At, line: str, span: Window) -> Job | str:
    """The job of a line, or why it is left out."""
    cells = line.split()
    if len(cells) != COLUMNS:
        at.fail(f"{COLUMNS} numbers separated by blanks, not {len(cells)}", line.strip())
    values = [at.number(cell, f"field {i}") for i, cell in enumerate(cells, start=1)]
    number, allocated, requested, status = (_whole(at, values, i) for i in (1, 5, 8, 11))
    user, group, executable, preceding = (_whole(at, values, i) for i in (12, 13, 14, 17))
    submit_s, run_s = values[1], values[3]
    if number < 0 or submit_s < 0:
        at.fail("a job number and a submission time >= 0", line.strip())
    if outside := span.outside(submit_s):
        return outside
    if status in PARTS:
        return PART
    if run_s <= 0 and (status == CANCELLED or (run_s == 0 and status != COMPLETED)):
        return NEVER_RAN
    processors = allocated if allocated > 0 else requested
    if run_s < 0 or processors < 1:
        return UNKNOWN
    if processors > MAX_GPUS:
        at.fail(f"at most {MAX_GPUS} processors", str(processors))
    return Job(
        id=_id(number),
        submit_s=submit_s,
        tenant=None if group < 0 else f"group-{group}",
        user=None if user < 0 else f"user-{user}",
        command=None if executable < 0 else f"executable-{executable}",
        after=() if preceding < 0 else (_id(preceding),),
        gpus=processors,
        duration_s=max(run_s, 1e-3) if run_s else LESS_THAN_A_SECOND_S,
    )


def _whole(at: At, values: list[float], field: int) -> int:
    value = values[field - 1]
    if math.floor(value) != value:
        at.fail(f"field {field} as a whole number", f"{value:g}")
    return int(value)


def _id(number: int) -> str:
    return f"job-{number}"


def _after_earlier_ones(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The jobs, each after those before it only: order then has no cycle."""
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
