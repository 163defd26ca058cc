"""Alibaba's 2023 trace of GPU sharing: a list of pods and a list of nodes, both CSV (gzip or not).

- A pod is a job: `duration_s` from `scheduled_time` to `deletion_time`, submitted at
  `creation_time`, whatever its phase: failed pods held their GPUs too, and those still running at
  the end of the trace are cut there. Pods that were never scheduled (Pending) are dropped.
- `gpu_milli` below 1000 asks for a part of one GPU. The job takes one GPU, `sharing.duty` is that
  part: two such jobs may share a GPU.
- A pod is one container: several GPUs, up to 8, make progress on one node only (`locality`). -
`gpu_spec` allows these GPU types: they are the keys of `rate`, all at 1; nothing says how fast each
is. - Cores for each GPU are `cpu_milli` / GPUs, rounded up (`cpus_per_gpu`), memory likewise but
not rounded. A pod
  without GPUs is a CPU-only job.
- Best-effort pods (`qos` BE) have priority 0, the others 1: best effort is what is left over. -
With `millicores` cores are counted in thousandths, of nodes and pods alike, so that nothing is
rounded. With `all_pods` those that never were scheduled, or for no time, are kept as well, with a
duration of 1 s: where only what pods ask for matters, as in `optsched pack`. A list without times,
GPU types and classes of service (that of more jobs of several GPUs) is read with `all_pods` only.

Source: Q. Weng et al., Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
gradient descent, USENIX ATC'23.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from ...errors import InputError
from ...model import Job, Node
from ...plugins.options import Flag
from ..imported import FirstDate, Format, Imported, LastDate, Track, found_beside
from ..tables.table import Row, Table
from ..usable import NO_TIME, NOTHING, SHORTEST_S, imported, window
from .alibaba import Request, cluster_of_machines, gpu_type, job, machine

POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
OF_RUNS = ("gpu_spec", "qos", "creation_time", "deletion_time", "scheduled_time")
"""Columns that a list of what pods ask for need not have."""
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
NODE_LIST = "openb_node_list_all_node.csv"
BEST_EFFORT = "BE"
UNKNOWN_S = 1.0
"""Duration of a pod that never ran."""
NEVER_SCHEDULED = "never scheduled or without an end, so of unknown duration"


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    nodes: Annotated[
        Path | None, "The node list (default: openb_node_list_all_node.csv or .gz beside the pods)."
    ] = None,
    start: FirstDate = None,
    end: LastDate = None,
    whole_cores: Annotated[
        bool,
        Flag("--millicores"),
        "Count cores in thousandths, of nodes and pods alike, so that nothing is rounded.",
    ] = True,
    with_times: Annotated[
        bool,
        Flag("--all-pods"),
        "Keep pods that never ran as well, with a duration of 1 s (for pack).",
    ] = True,
) -> Imported:
    """Read a pod list; `jobs` keeps the first so many, by creation, of those that can run.

    Without `whole_cores` cores are thousandths; without `with_times` pods that never ran are kept.

    `nodes` is the node list, by default `openb_node_list_all_node.csv` (or `.gz`) beside the pod
    list. `start` and `end` are seconds of the trace. Raises InputError with the line of the first
    fault.
    """
    path = Path(source)
    span = window(start, end)
    core_milli = 1000 if whole_cores else 1
    pods = Table(path, POD_COLUMNS + (OF_RUNS if with_times else ()), OF_RUNS)
    node_list = nodes or found_beside(NODE_LIST, path.parent)
    if node_list is None:
        raise InputError(
            f"{path}: no {NODE_LIST} (or .gz) beside it; name the node list with --nodes PATH"
        )
    cluster = cluster_of_machines(node_list, _machines(Path(node_list), core_milli))
    entries = (_pod(row, core_milli, with_times) for row in pods.rows(track))
    return imported(path, cluster, entries, jobs, span=span)


def _pod(row: Row, core_milli: int, with_times: bool) -> Job | str:
    """Return the job of a row, or why it is left out."""
    without_times = row.places["creation_time"] is None
    submit_s = 0.0 if without_times else row.known("creation_time")
    start_s, end_s = row.known("scheduled_time"), row.known("deletion_time")
    request = _request(row, core_milli)
    if not row["name"] or submit_s is None:
        row.refuse("a name and a creation_time")
    duration_s = 0.0 if start_s is None or end_s is None else end_s - start_s
    if not with_times:
        duration_s = duration_s if duration_s >= SHORTEST_S else UNKNOWN_S
    elif start_s is None or end_s is None:
        return NEVER_SCHEDULED
    elif duration_s < SHORTEST_S:
        return NO_TIME
    if request.empty:
        return NOTHING
    return job(
        request,
        id=row["name"],
        submit_s=submit_s,
        duration_s=duration_s,
        priority=int(row["qos"] != BEST_EFFORT),
    )


def _request(row: Row, core_milli: int) -> Request:
    gpus, milli = row.count("num_gpu"), row.known("gpu_milli")
    if gpus and milli is not None and not (0 < milli <= 1000):
        row.refuse("gpu_milli above 0, at most 1000, beside num_gpu", "gpu_milli")
    types = dict.fromkeys(map(gpu_type, row["gpu_spec"].split("|")))
    return Request(
        gpus=gpus,
        cores=(row.known("cpu_milli") or 0.0) / core_milli,
        memory_gib=(row.known("memory_mib") or 0.0) / 1024,
        fraction=milli / 1000 if gpus and milli is not None and milli < 1000 else None,
        gpu_types=tuple(name for name in types if name is not None),
        one_node=True,
    )


def _machines(path: Path, core_milli: int) -> Iterator[tuple[Row, str, Node]]:
    for row in Table(path, NODE_COLUMNS).rows():
        cpus, memory = row.known("cpu_milli"), row.known("memory_mib")
        yield (
            row,
            "sn",
            machine(
                row["sn"],
                row["model"],
                row.count("gpu"),
                None if cpus is None else math.floor(cpus) / core_milli,
                None if memory is None else memory / 1024,
            ),
        )


FORMAT = Format(
    title="Alibaba 2023 GPU sharing, list of pods (openb_pod_list_*.csv, .csv.gz)", read=read
)
