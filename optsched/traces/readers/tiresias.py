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
from functools import cache
from pathlib import Path

from ...errors import InputError
from ...model import Job, Profile
from ..clusters import cluster_of
from ..imported import ClusterText, Format, GpuCount, Imported, SwitchTable, Track
from ..tables.table import Table
from ..usable import SHORTEST_S, imported
from .switches import chosen_cluster

COLUMNS = ("job_id", "num_gpu", "submit_time", "duration")
TESTBED = "p100=60", 4
"""The testbed of the paper: 15 nodes of 4 P100."""
DISTRIBUTION = ["duration"]
"""The header of `yarn-gput*.csv`."""


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
    if Table(path, ()).header == DISTRIBUTION:
        raise InputError(
            f"{path}: is a distribution of GPU time (for the Gittins index of Tiresias), no trace "
            f"of jobs; expected a table with the columns {', '.join(COLUMNS)}"
        )
    table = Table(path, COLUMNS, ["model_name"])
    nodes = chosen_cluster(cluster, gpus_per_node, switches, cluster_of(*TESTBED))
    return imported(path, nodes, _jobs(table, track), jobs)


def _jobs(table: Table, track: Track) -> Iterator[Job]:
    for row in table.rows(track):
        model = row["model_name"] or None
        yield Job(
            id=f"job-{row.named('job_id')}",
            submit_s=row.number("submit_time", "seconds", least=0),
            command=model,
            gpus=row.whole("num_gpu", least=1),
            duration_s=row.number("duration", "seconds", least=SHORTEST_S),
            profile=_named(model),
        )


@cache
def _named(model: str | None) -> Profile:
    return Profile(name=model)


FORMAT = Format(title="Tiresias traces (60_job.csv)", read=read)
