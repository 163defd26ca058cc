"""Traces of the Shockwave scheduler: Gavel's with batch sizes that change while a job trains
(NSDI'23).

A trace line has 12 columns separated by tabs: job type, command, working directory, steps argument,
needs data, total steps, GPUs, how the batch size changes (`static`, `accordion`, `gns`), weight,
SLO, duration_s, arrival_s. The throughput table is in Gavel's form and gives steps/s for each GPU
type by (job type with batch size, GPUs).

- A job trains total steps / steps of an epoch at its first batch size epochs, the last one in part.
  Which batch size each epoch has is told by the rules in `batch_sizes`; one that was not measured
  on a V100 leaves the one before.
- `duration_s` is the sum over its epochs of steps / steps/s alone on a V100, each at its batch
  size. The duration in the trace is that at the first batch size throughout; it is not used.
- `profile.rate` is the V100's sum over that of the other type's epochs; a type on which one of the
  batch sizes was not measured cannot run the job.
- `profile.phases` has the batch sizes of a job that changes them.
- Every start pays 20 s, as in Shockwave's simulator for a job that did not run in the round before;
  `--no-overheads` leaves it out. Locality and sharing are left out, as there.
- An SLO is a multiple of the duration, as in Gavel's traces; a negative one is none.

Jobs are taken to run at one rate throughout, the mean over their epochs: alone on GPUs of one type
they complete when they would with a rate for each batch size, and no policy learns of the batch
size anyway.

Source: P. Zheng et al., Shockwave: Fair and efficient cluster scheduling for dynamic adaptation in
machine learning, NSDI'23; https://github.com/uw-mad-dash/shockwave, e07dd20.
"""

import math
import re
from dataclasses import replace
from pathlib import Path

from ...model import Phase, Profile
from ..clusters import cluster_of
from ..imported import (
    ClusterText,
    Format,
    GpuCount,
    Imported,
    ThroughputTable,
    Track,
    WithOverheads,
)
from ..tables.table import Row, lines
from .batch_sizes import SAMPLES, phases, steps_of_epoch
from .throughputs import REFERENCE, Line, find_table, jobs_of_lines, read_table, steps_per_s

COLUMNS = (
    "job_type command working_directory steps_arg needs_data_dir total_steps scale_factor mode "
    "weight slo duration arrival"
)
DEFAULT_CLUSTER = "v100=32"
TABLE_NAME = "tacc_throughputs.json"
RULES = ("static", "accordion", "gns")
JOB_TYPE = re.compile(r"(\S+) \(batch size ([1-9][0-9]{0,6})\)")
START_S = 20.0


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    throughputs: ThroughputTable = None,
    cluster: ClusterText = DEFAULT_CLUSTER,
    gpus_per_node: GpuCount = 4,
    overheads: WithOverheads = True,
) -> Imported:
    """Read a trace; `jobs` keeps the first so many, by arrival, of those that can run.

    `throughputs` is the table's file, by default looked for beside the trace and one folder above.
    Jobs whose first batch size was not measured on a V100, and jobs that can never run on the
    cluster, are dropped and counted. Raises InputError with the line of the first fault.
    """
    path = Path(source)
    jobs_read = [_line(row) for row in lines(path, COLUMNS, separator="\t", track=track)]
    table_path = find_table(path, throughputs, TABLE_NAME, "Shockwave")
    table = read_table(table_path, "Shockwave")
    nodes = cluster_of(cluster, gpus_per_node)
    if REFERENCE in nodes.gpu_types:
        nodes = replace(nodes, reference_gpu=REFERENCE)
    gpu_types = dict.fromkeys((REFERENCE, *filter(None, nodes.gpu_types)))

    def rate(gpu_type: str, model: str, batch: int, gpus: int) -> float:
        name = f"('{model} (batch size {batch})', {gpus})"
        return steps_per_s(table, table_path, gpu_type, name)

    def course(gpu_type: str, line: Line) -> tuple[Phase, ...] | None:
        """Return the phases on one GPU type; None where a batch size was not measured there."""
        named = JOB_TYPE.fullmatch(line.job_type)
        assert named is not None
        model, first = named[1], int(named[2])
        left = line.steps / steps_of_epoch(model, first)
        parts = []
        last = None
        for batch, length in phases(model, first, line.gpus, line.rule, math.ceil(left)):
            if last is None or rate(REFERENCE, model, batch, line.gpus) > 0:
                last = batch
            speed = rate(gpu_type, model, last, line.gpus)
            if speed <= 0:
                return None
            epoch_s = steps_of_epoch(model, last) / speed
            parts.append(Phase(batch_size=last, epochs=min(left, length), epoch_s=epoch_s))
            left -= length
        return tuple(parts)

    def measured(line: Line) -> tuple[Profile, float] | None:
        courses = {gpu_type: course(gpu_type, line) for gpu_type in gpu_types}
        phases = courses[REFERENCE]
        if phases is None:
            return None
        reference_s = _run_s(phases)
        rates = {
            name: round(reference_s / _run_s(own), 6)
            for name, own in courses.items()
            if own is not None
        }
        startup_s = START_S if overheads else 0.0
        profile = Profile(
            name=line.job_type,
            rate=rates,
            startup_s=startup_s,
            phases=tuple(replace(phase, epoch_s=round(phase.epoch_s, 6)) for phase in phases)
            if len(phases) > 1
            else (),
        )
        return profile, reference_s

    return jobs_of_lines(path, nodes, jobs_read, measured, jobs)


def _run_s(phases: tuple[Phase, ...]) -> float:
    return math.fsum(phase.epochs * phase.epoch_s for phase in phases)


def _line(row: Row) -> Line:
    named = JOB_TYPE.fullmatch(row["job_type"])
    if named is None or named[1] not in SAMPLES:
        row.refuse(
            f"a job type as 'LM (batch size 10)' with a model of {', '.join(SAMPLES)}", "job_type"
        )
    if row["mode"] not in RULES:
        row.refuse(f"one of {', '.join(RULES)}", "mode")
    return Line.of(row)


FORMAT = Format(
    title="Shockwave traces with their throughput table (.trace)", read=read, profiled=True
)
