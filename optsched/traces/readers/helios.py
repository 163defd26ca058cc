"""Jobs of SenseTime's Helios clusters Venus, Earth, Saturn and Uranus, April to September 2020.

Each cluster has a `cluster_log.csv` (job_id, user, vc, gpu_num, cpu_num, node_num, state,
submit_time, start_time, end_time, duration, queue) and a `cluster_gpu_number.csv` with the GPUs of
every virtual cluster day by day.

- `duration_s` is end - start whatever the state: failed, cancelled and timed-out jobs held their
  GPUs so long. Jobs that never started, ran for no time, or were still running are dropped.
- `cpu_num` / `gpu_num`, rounded up, are the cores held beside each GPU. A job without GPUs becomes
  a CPU-only job with its cores on one node, or is left out.
- Virtual clusters are tenants. Where the day-by-day file is there, `gpu_quota` is the most that a
  virtual cluster had on a day from the first job's submission to the last one's, and the cluster
  has the most GPUs of those days.
- `node_num`, `queue` and `duration` are not used.

Nodes have 8 GPUs. Type, cores and memory come from the paper's table of clusters: Volta with 48
threads and 376 GB in Venus and Earth, Pascal with 64 threads and 256 GB in Uranus, both with the
latter in Saturn. How many of Saturn's are which is not published: half of its nodes are taken for
each. Volta is `v100` (the nodes' V100-SXM2 is named in the artifact), Pascal is `p100`.

Source: Q. Hu et al., Characterization and prediction of deep learning workloads in large-scale GPU
datacenters, SC'21; github.com/S-Lab-System-Group/HeliosData.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ...model import Cluster, Job
from ..clusters import cluster_of, with_each
from ..imported import (
    ClusterText,
    FirstDate,
    Format,
    GpuCount,
    Imported,
    LastDate,
    TenantName,
    Track,
    WithCpuJobs,
    found_beside,
)
from ..tables.table import Table
from ..usable import Window, imported, stem, window
from .job_table import COLUMNS, submitted

LOG = "cluster_log.csv"
SIZES = "cluster_gpu_number.csv"
GPUS_OF_NODE = 8
DAY_S = 86400.0


class Site(NamedTuple):
    """A cluster in the paper's table: GPU types, the first in half of the nodes or in all; cores
    and memory a node."""

    gpu_types: tuple[str, ...]
    nodes: int
    cpus: int
    memory_gib: float


SITES = {
    "venus": Site(("v100",), 133, 48, 376),
    "earth": Site(("v100",), 143, 48, 376),
    "saturn": Site(("v100", "p100"), 262, 64, 256),
    "uranus": Site(("p100",), 264, 64, 256),
}


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
    tenant: TenantName = None,
) -> Imported:
    """Read a job table, or the folder that has it; `jobs` keeps the first so many that can run.

    The cluster is that of `cluster` (`v100=1064`, nodes of `gpus_per_node`, 8 by default), else the
    one that the name of the file or of its folder says. `cpu_jobs` keeps jobs without GPUs. `start`
    and `end` are dates, `tenant` is a virtual cluster. Raises InputError with the line of the first
    fault.
    """
    path = Path(source)
    if path.is_dir():
        path = _log_in(path)
    table = Table(path, (*COLUMNS, "vc"))
    entries = [
        submitted(row, cpu_jobs=cpu_jobs, tenant=row["vc"] or None) for row in table.rows(track)
    ]
    span = window(start, end, 0.0)
    quotas, total = _sizes(path, entries, span, tenant)
    site = _site(path)
    return imported(
        path,
        _cluster(path, site, cluster, total, gpus_per_node or GPUS_OF_NODE),
        entries,
        jobs,
        name=f"helios-{site}" if site else stem(path, ".csv"),
        span=span,
        tenant=tenant,
        quotas=quotas,
    )


def _log_in(folder: Path) -> Path:
    if (log := found_beside(LOG, folder)) is None:
        raise InputError(
            f"{folder}: has no {LOG}; expected the folder of one of the clusters, or a file"
        )
    return log


def _site(path: Path) -> str | None:
    """Return the cluster whose name is in that of the file, else of its folder."""
    for name in (path.name, path.absolute().parent.name):
        for site in SITES:
            if site in name.lower():
                return site
    return None


def _cluster(
    path: Path, site: str | None, specification: str | None, total: int | None, gpus_per_node: int
) -> Cluster:
    known = None if site is None else SITES[site]
    if specification is None:
        if known is None:
            raise InputError(
                f"{path}: neither the file nor its folder has the name of one of "
                f"{', '.join(SITES)}; name "
                "the cluster's GPUs with --cluster v100=1064"
            )
        gpus = total or known.nodes * GPUS_OF_NODE
        later = [
            gpus // len(known.gpu_types) // GPUS_OF_NODE * GPUS_OF_NODE for _ in known.gpu_types[1:]
        ]
        parts = zip(known.gpu_types, (gpus - sum(later), *later), strict=True)
        specification = ",".join(f"{gpu_type}={count}" for gpu_type, count in parts if count)
    nodes = cluster_of(specification, gpus_per_node)
    if known is None:
        return nodes
    return with_each(
        nodes,
        cpus=lambda node: known.cpus * node.gpus // GPUS_OF_NODE,
        memory_gib=lambda node: known.memory_gib * node.gpus / GPUS_OF_NODE,
    )


def _sizes(
    log: Path, entries: Iterable[Job | str], span: Window, tenant: str | None
) -> tuple[dict[str, int], int | None]:
    """Return the most GPUs of every virtual cluster, and of all together, on the days of the jobs,
    from the file beside the log; where it has none of these days, on all its days."""
    if (path := found_beside(SIZES, log.parent)) is None:
        return {}, None
    table = Table(path, ("date", "total"))
    names = ["total", *(name for name in table.header if name not in ("date", "total"))]
    days: list[tuple[float, list[int]]] = []
    for row in table.rows():
        if (day_s := row.time_s("date")) is None:
            row.refuse("a date", "date")
        days.append((day_s, list(map(row.whole, names))))
    if not days:
        raise InputError(f"{path}: has no rows below its header; expected one for each day")
    times = [
        job.submit_s
        for job in entries
        if not isinstance(job, str)
        and tenant in (None, job.tenant)
        and span.outside(job.submit_s) is None
    ]
    first_s, last_s = min(times, default=0.0), max(times, default=0.0)
    all_days = [sizes for _, sizes in days]
    on = [sizes for day_s, sizes in days if first_s - DAY_S < day_s <= last_s] or all_days
    most = dict(zip(names, map(max, zip(*on, strict=True)), strict=True))
    total = most.pop("total")
    return most, total


FORMAT = Format(title="Helios job table of one cluster (cluster_log.csv, or its folder)", read=read)
