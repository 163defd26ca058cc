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

from pathlib import Path

from ..clusters import cluster_of, with_each
from ..imported import (
    ClusterText,
    FirstDate,
    Format,
    GpuCount,
    Imported,
    LastDate,
    Track,
    WithCpuJobs,
)
from ..tables.table import Table
from ..usable import imported, window
from .job_table import COLUMNS, submitted

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
    table = Table(path, (*COLUMNS, "type", "node_num"), (MEMORY,))
    real, node_gib = (KALOS, KALOS_NODE_GIB) if MEMORY in table.header else (SEREN, SEREN_NODE_GIB)
    entries = [
        submitted(
            row,
            cpu_jobs=cpu_jobs,
            memory_gib=(row.known(MEMORY) or 0.0) * max(1, row.count("node_num")),
            command=row["type"] or None,
        )
        for row in table.rows(track)
    ]
    nodes = with_each(
        cluster_of(cluster or real, gpus_per_node or GPUS_OF_NODE),
        cpus=lambda node: CPUS_OF_NODE // GPUS_OF_NODE * node.gpus,
        memory_gib=lambda node: node_gib * node.gpus / GPUS_OF_NODE,
    )
    return imported(path, nodes, entries, jobs, span=window(start, end, 0.0))


FORMAT = Format(
    title="Acme job table of Seren or Kalos (trace_seren.csv, trace_kalos.csv)", read=read
)
