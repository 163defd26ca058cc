"""Traces of the Muri simulator: Philly's arrivals and gang sizes, models with iterations measured
by resource.

A table with the columns `job_id`, `num_gpu`, `submit_time` (ms), `iterations`, `model_name`,
`iteration_time` (ms), `resource_time_1` (ms) and perhaps `priority`. Of an iteration
`resource_time_0` goes to storage and CPUs, `resource_time_1` to the GPU, `resource_time_2` to the
network (0 for one GPU), in simulator/jobs.py of https://github.com/Rivendile/Muri; they overlap or
leave gaps, so they need not add up to `iteration_time`.

- `duration_s` is iterations times `iteration_time`: what its simulator counts down. The column
  `duration` is that of the job in Philly, which the iterations were made from, and differs.
- `sharing.duty` is `resource_time_1` / `iteration_time`, at most 1. The model becomes the name of
  the profile, so that the rest of the profile is that of its family.
- Priority 0 is a job with guaranteed resources, 1 an opportunistic one (AntMan); optsched's is its
  negative.

Source: Y. Zhao et al., Multi-resource interleaving for deep learning training, SIGCOMM'22.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ...model import Cluster, Job, Profile, Sharing
from ..clusters import cluster_of, with_each
from ..imported import ClusterText, Format, GpuCount, Imported, SwitchTable, Track
from ..tables.table import Row, Table
from ..usable import SHORTEST_S, imported
from .switches import chosen_cluster

COLUMNS = (
    "job_id",
    "num_gpu",
    "submit_time",
    "iterations",
    "model_name",
    "iteration_time",
    "resource_time_1",
)
MS, MS_PER_S, MS_DIGITS, MOST_DIGITS = "milliseconds", 1000, 3, 13
SHORTEST_MS = 1e-9


def _testbed() -> Cluster:
    """Return 8 nodes of 8 V100, 92 cores and 520 GB: simulator/cluster_spec/n8g8.csv."""
    return with_each(
        cluster_of("v100=64", 8),
        cpus=lambda node: 92,
        memory_gib=lambda node: round(520e9 / 2**30, 3),
        rack=lambda node: "switch-0",
    )


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    cluster: ClusterText | None = None,
    gpus_per_node: GpuCount | None = None,
    switches: SwitchTable = None,
) -> Imported:
    """Read a trace; `jobs` keeps the first so many, by submission, of those that can run.

    The cluster is that of the table `switches` (V100), or `cluster` (`v100=64`) with
    `gpus_per_node`, by default Muri's 64 GPUs. Raises InputError with the line of the first fault.
    """
    path = Path(source)
    table = Table(path, COLUMNS, ["priority"])
    nodes = chosen_cluster(cluster, gpus_per_node, switches, _testbed())
    return imported(path, nodes, _jobs(table, track), jobs)


def _jobs(table: Table, track: Track) -> Iterator[Job]:
    for row in table.rows(track):
        model = row.named("model_name")
        iteration_ms = row.number("iteration_time", MS, least=SHORTEST_MS)
        busy_ms = row.number("resource_time_1", MS, least=SHORTEST_MS)
        duration_s = round(row.whole("iterations") * iteration_ms / MS_PER_S, 3)
        if duration_s < SHORTEST_S:
            row.refuse("iterations of a millisecond or more", "iterations", "iteration_time")
        yield Job(
            id=f"job-{row.named('job_id')}",
            submit_s=_submit_s(row),
            command=model,
            gpus=row.whole("num_gpu", least=1),
            priority=-row.whole("priority") if row["priority"] else 0,
            duration_s=duration_s,
            profile=_profile(model, round(min(1.0, busy_ms / iteration_ms), 4)),
        )


@cache
def _profile(model: str, duty: float) -> Profile:
    return Profile(name=model, sharing=Sharing(duty=max(duty, 1e-4)))


def _submit_s(row: Row) -> float:
    """Return the seconds of `submit_time`, whose milliseconds may exceed what a number may be."""
    text = row["submit_time"]
    if MS_DIGITS < len(text) <= MOST_DIGITS and text.isascii() and text.isdecimal():
        return float(f"{text[:-MS_DIGITS]}.{text[-MS_DIGITS:]}")
    return row.number("submit_time", MS, least=0) / MS_PER_S


FORMAT = Format(title="Muri traces (trace1.csv)", read=read)
