"""Jobs of Shanghai AI Laboratory's Acme clusters Seren and Kalos, March to August 2023.

`trace_seren.csv` has the columns job_id, user, node_num, gpu_num, cpu_num, type, state,
submit_time, start_time, end_time, duration, queue, gpu_time; `trace_kalos.csv` has mem_per_pod_GB,
shared_mem_per_pod, fail_time and stop_time besides.

- `duration_s` is end - start whatever the state: failed and cancelled jobs held their GPUs so long.
  (Kalos' `duration` has the time in the queue in it, against its description.) Jobs that never
  started, ran for no time, or were still running are dropped.
- `type` (Pretrain, SFT, MLLM, Eval, Debug, Other) is the job's `command`. - `cpu_num` / `gpu_num`,
rounded up, are the cores held beside each GPU; in Kalos `mem_per_pod_GB` * `node_num` /
  `gpu_num` is the host memory beside it, a GB taken as a GiB. A job without GPUs becomes a CPU-only
  job with all that on one node, or is left out.
- There are no tenants. Queue and GPU time, fail_time, stop_time and shared memory are not used.

Nodes have 8 A100 of 80 GB and 128 threads; Seren has 286 with 1,024 GB, Kalos 302 with 2,048 GB
(table 1 of the paper).

Source: Q. Hu et al., Characterization of large language model development in the datacenter,
NSDI'24; github.com/InternLM/AcmeTrace.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..clusters import cluster_of
from ..imported import (
    At,
    ClusterText,
    FirstDate,
    Format,
    GpuCount,
    Imported,
    LastDate,
    Track,
    WithCpuJobs,
    read_text,
)
from ..submitted import Submitted, chosen, held_beside, instance_of
from ..tables.dates import MISSING
from ..tables.table import Table
from ..usable import stem
from .job_table import COLUMNS, count, submitted

GPUS_OF_NODE, CPUS_OF_NODE = 8, 128
SEREN, SEREN_NODE_GIB = "a100=2288", 1024.0
KALOS, KALOS_NODE_GIB = "a100=2416", 2048.0
MEMORY = "mem_per_pod_GB"


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    cluster: ClusterText | None = None,
    gpus_per_node: GpuCount | None = None,
    cpu_jobs: WithCpuJobs = True,
    start: FirstDate = None,
    end: LastDate = None,
) -> Imported:
    """Read a job table; `jobs` keeps the first so many that can run.

    A table with a column mem_per_pod_GB is of Kalos, another of Seren. `cluster` (`a100=512`, nodes
    of `gpus_per_node`, 8 by default) takes the place of the real one. `cpu_jobs` keeps jobs without
    GPUs. `start` and `end` are dates. Raises InputError with the line of the first fault.
    """
    path = Path(source)
    table = Table(str(path), read_text(path), (*COLUMNS, "type", "node_num"), (MEMORY,))
    specification, node_gib = (
        (KALOS, KALOS_NODE_GIB) if MEMORY in table.header else (SEREN, SEREN_NODE_GIB)
    )
    dropped: Counter[str] = Counter()
    entries = [_job(table.at(line), cells, cpu_jobs) for line, cells in table.rows(track)]
    kept = chosen(entries, dropped, start=start, end=end)
    nodes = cluster_of(
        cluster or specification,
        gpus_per_node or GPUS_OF_NODE,
        cpus_per_gpu=CPUS_OF_NODE // GPUS_OF_NODE,
    )
    nodes = replace(
        nodes,
        nodes=tuple(
            replace(node, memory_gib=node_gib * node.gpus / GPUS_OF_NODE) for node in nodes.nodes
        ),
    )
    return instance_of(path, stem(path, ".csv"), nodes, kept, dropped, read=len(entries), jobs=jobs)


def _job(at: At, cells: Sequence[str], cpu_jobs: bool) -> Submitted | str:
    """The job of a row, or why it is left out."""
    *common, kind, node_num, memory, _ = cells
    job = submitted(at, common, cpu_jobs=cpu_jobs)
    if isinstance(job, str):
        return job
    memory_gib = _gib(at, memory) * max(1, count(at, node_num, "node_num"))
    profile = held_beside(job.gpus, job.cpus, memory_gib) if job.gpus else job.profile
    return job._replace(memory_gib=memory_gib, command=kind or None, profile=profile)


def _gib(at: At, text: str) -> float:
    """The memory of a pod, 0 where it is not told."""
    gib = 0.0 if text in MISSING else at.number(text, MEMORY)
    if gib < 0:
        at.fail(f"a {MEMORY} >= 0", text)
    return gib


FORMAT = Format(
    title="Acme job table of Seren or Kalos (trace_seren.csv, trace_kalos.csv)", read=read
)
