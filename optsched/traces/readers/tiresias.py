"""Traces of the Tiresias simulator: jobs by model, with the durations that they ran for.

A table with the columns `job_id`, `num_gpu`, `submit_time` (s), `duration` (s) and, in both of its
layouts, `model_name`; what else there is (iterations, intervals, sizes) follows from them or is not
used there either. The model becomes the name of the profile, so that the jobs get the measured
profile of its family.

Source: J. Gu et al., Tiresias: A GPU cluster manager for distributed deep learning, NSDI'19; units
from its simulator's README (https://github.com/SymbioticLab/Tiresias). Its durations hold for any
placement.
"""

from collections.abc import Iterator
from pathlib import Path

from ...errors import InputError
from ...model.cluster import Cluster
from ...model.job import Job
from ...model.profile import Profile
from ..clusters import cluster_of
from ..imported import ClusterText, Format, GpuCount, Imported, SwitchTable, Track, read_text
from ..tables.table import Table
from ..usable import imported
from .switches import chosen_cluster

COLUMNS = ("job_id", "num_gpu", "submit_time", "duration")
GPU_TYPE = "p100"
"""The testbed of the paper: 15 nodes of 4 P100."""
DISTRIBUTION = ["duration"]
"""The header of `yarn-gput*.csv`."""


def _testbed() -> Cluster:
    return cluster_of(f"{GPU_TYPE}=60", 4)


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

    The cluster is that of the table `switches` (GPUs of the paper's type), or `cluster` (`p100=60`)
    with `gpus_per_node`, by default the paper's testbed of 60 GPUs. Raises InputError with the line
    of the first fault.
    """
    path = Path(source)
    text = read_text(path)
    if [name.strip() for name in text.split("\n", 1)[0].split(",")] == DISTRIBUTION:
        raise InputError(
            f"{path}: is a distribution of GPU time (for the Gittins index of Tiresias), no "
            "trace of "
            f"jobs; expected a table with the columns {', '.join(COLUMNS)}"
        )
    table = Table(str(path), text, COLUMNS, ["model_name"])
    nodes = chosen_cluster(cluster, gpus_per_node, switches, _testbed())
    return imported(path, nodes, _jobs(table, track), jobs)


def _jobs(table: Table, track: Track) -> Iterator[Job]:
    profiles: dict[str, Profile] = {}
    for line, (number, gpus, submit, duration, model, *_) in table.rows(track):
        at = table.at(line)
        job = Job(
            id=f"job-{number}",
            submit_s=at.number(submit, "submit_time in seconds"),
            command=model or None,
            gpus=at.whole(gpus, "num_gpu"),
            duration_s=at.number(duration, "the duration in seconds"),
            profile=profiles.setdefault(model, Profile(name=model or None)),
        )
        if not number or job.submit_s < 0 or not job.gpus or job.work_s < 1e-3:
            at.fail(
                "a job_id, at least one GPU, a submit_time >= 0 and a duration of at least 0.001",
                f"{number},{gpus},{submit},{duration}",
            )
        yield job


FORMAT = Format(title="Tiresias traces (60_job.csv)", read=read)
