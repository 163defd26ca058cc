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
from dataclasses import replace
from pathlib import Path

from ...model.cluster import Cluster
from ...model.job import Job
from ...model.profile import Profile, Sharing
from ..clusters import cluster_of
from ..imported import At, ClusterText, Format, GpuCount, Imported, SwitchTable, Track, read_text
from ..tables.table import Table
from ..usable import imported
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
MS_PER_S, MS_DIGITS = 1000, 3


def _testbed() -> Cluster:
    """8 nodes of 8 V100, 92 cores and 520 GB: simulator/cluster_spec/n8g8.csv."""
    bare = cluster_of("v100=64", 8)
    return replace(
        bare,
        nodes=tuple(
            replace(node, cpus=92, memory_gib=round(520e9 / 2**30, 3), rack="switch-0")
            for node in bare.nodes
        ),
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
    table = Table(str(path), read_text(path), COLUMNS, ["priority"])
    nodes = chosen_cluster(cluster, gpus_per_node, switches, _testbed())
    return imported(path, nodes, _jobs(table, track), jobs)


def _jobs(table: Table, track: Track) -> Iterator[Job]:
    profiles: dict[tuple[str, float], Profile] = {}
    for line, cells in table.rows(track):
        number, gpus, submit, iterations, model, iteration, busy, priority, _ = cells
        at = table.at(line)
        iteration_ms = _positive(at, iteration, "iteration_time in milliseconds")
        busy_ms = _positive(at, busy, "resource_time_1 (on the GPU) in milliseconds")
        duty = round(min(1.0, busy_ms / iteration_ms), 4)
        if not model or not number:
            at.fail("a job_id and a model_name", f"{number},{model}")
        profile = Profile(name=model, sharing=Sharing(duty=max(duty, 1e-4)))
        job = Job(
            id=f"job-{number}",
            submit_s=_seconds(at, submit),
            command=model,
            gpus=at.whole(gpus, "num_gpu"),
            priority=-at.whole(priority or "0", "the priority"),
            duration_s=round(at.whole(iterations, "iterations") * iteration_ms / MS_PER_S, 3),
            profile=profiles.setdefault((model, duty), profile),
        )
        if job.submit_s < 0 or not job.gpus or job.work_s < 1e-3:
            at.fail(
                "at least one GPU, a submit_time >= 0 and iterations that take a millisecond or "
                "more",
                f"{gpus},{submit},{iterations},{iteration}",
            )
        yield job


def _seconds(at: At, text: str) -> float:
    """Of `submit_time`, whose milliseconds may exceed what a number of seconds may."""
    what = "submit_time in milliseconds"
    if len(text) > MS_DIGITS and text.isascii() and text.isdecimal():
        return at.number(f"{text[:-MS_DIGITS]}.{text[-MS_DIGITS:]}", what)
    return at.number(text, what) / MS_PER_S


def _positive(at: At, text: str, what: str) -> float:
    value = at.number(text, what)
    if value <= 0:
        at.fail(f"{what}, above 0", text)
    return value


FORMAT = Format(title="Muri traces (trace1.csv)", read=read)
