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
rounded. With
  `all_pods` those that never were scheduled, or for no time, are kept as well, with a duration of 1
  s: where only what pods ask for matters, as in `optsched pack`.

Source: Q. Weng et al., Beware of fragmentation: scheduling GPU-sharing workloads with fragmentation
gradient descent, USENIX ATC'23.
"""

import math
from pathlib import Path
from typing import Annotated

from ...errors import InputError
from ...model.cluster import Cluster, Node
from ...model.job import Job
from ...model.profile import Profile
from ...plugins.options import Flag
from ..imported import At, FirstDate, Format, Imported, LastDate, Track
from ..tables.streamed_table import first_row, table
from ..usable import Window, imported, window
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

POD_COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
NODE_LISTS = ("openb_node_list_all_node.csv", "openb_node_list_all_node.csv.gz")
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
    first_row(path)  # a wrong source is worse than a missing node list
    cluster = Cluster(nodes=tuple(_nodes(_node_list(path, nodes), 1000 if whole_cores else 1)))
    profiles: dict[Request, Profile] = {}
    pods = (
        _pod(at, cells, span, profiles, 1000 if whole_cores else 1, with_times)
        for at, cells in table(path, POD_COLUMNS, track=track)
    )
    return imported(path, cluster, pods, jobs, twice=NAMED_TWICE)


def _pod(
    at: At,
    cells: list[str],
    span: Window,
    profiles: dict[Request, Profile],
    core_milli: int,
    with_times: bool,
) -> Job | str:
    """The job of a row, or why it is left out."""
    name, *_, qos, created, deleted, scheduled = cells
    submit_s = known(at, created, "creation_time")
    start_s, end_s = known(at, scheduled, "scheduled_time"), known(at, deleted, "deletion_time")
    request = _request(at, cells, core_milli)
    if not name or submit_s is None:
        at.fail("a name and a creation_time", ",".join(cells))
    if outside := span.outside(submit_s):
        return outside
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
        profiles,
        id=name,
        submit_s=submit_s,
        duration_s=duration_s,
        priority=int(qos != BEST_EFFORT),
    )


def _request(at: At, cells: list[str], core_milli: int) -> Request:
    cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec = cells[1:6]
    gpus = whole(at, num_gpu, "num_gpu")
    milli = known(at, gpu_milli, "gpu_milli")
    if gpus and milli is not None and not (0 < milli <= 1000):
        at.fail("gpu_milli above 0, at most 1000, beside num_gpu", gpu_milli)
    types = dict.fromkeys(gpu_type(part) for part in gpu_spec.split("|"))
    return Request(
        gpus=gpus,
        cores=(known(at, cpu_milli, "cpu_milli") or 0.0) / core_milli,
        memory_gib=(known(at, memory_mib, "memory_mib") or 0.0) / 1024,
        fraction=milli / 1000 if gpus and milli is not None and milli < 1000 else None,
        gpu_types=tuple(name for name in types if name is not None),
        one_node=True,
    )


def _node_list(pods: Path, given: str | Path | None) -> Path:
    if given is not None:
        return Path(given)
    for name in NODE_LISTS:
        if (pods.parent / name).is_file():
            return pods.parent / name
    raise InputError(
        f"{pods}: no {NODE_LISTS[0]} (or .gz) beside it; name the node list with --nodes PATH"
    )


def _nodes(path: Path, core_milli: int) -> list[Node]:
    found: dict[str, Node] = {}
    for at, (name, cpu_milli, memory_mib, gpu, model) in table(path, NODE_COLUMNS):
        cpus, memory = known(at, cpu_milli, "cpu_milli"), known(at, memory_mib, "memory_mib")
        if name in found:
            at.fail("each node once", name)
        found[name] = node(
            at,
            name,
            gpu_type(model),
            whole(at, gpu, "gpu"),
            None if cpus is None else math.floor(cpus) / core_milli,
            None if memory is None else memory / 1024,
        )
    if not found:
        raise InputError(f"{path}: lists no node")
    return list(found.values())


FORMAT = Format(
    title="Alibaba 2023 GPU sharing, list of pods (openb_pod_list_*.csv, .csv.gz)", read=read
)
