"""Traces of the Gavel scheduler with its measured throughputs (OSDI'20).

A trace line is tab separated, in one of two layouts told apart by their number of columns:

- 7, traces made from Microsoft's: job type, command, steps argument, needs data, total steps,
  arrival_s, GPUs;
- 10, Gavel's own generator: job type, command, working directory, steps argument, needs data, total
  steps, GPUs, weight, SLO, arrival_s.

The throughput table gives steps/s for each GPU type by (job type, GPUs): alone, and beside another
job.

- `duration_s` is total steps / steps/s alone on a V100; `profile.rate` is the other types' steps/s
  relative to it. A type with 0 steps/s cannot run the job.
- `locality` is the V100's rate when spread (`v100_unconsolidated`) relative to packed, for all
  types, and never above 1: where spread was measured faster that is noise, and planners rely on a
  wider spread not being faster. A gang larger than a node cannot be packed; it runs at the packed
  rate anywhere, as in Gavel's simulator.
- `sharing` lists the V100's rate beside each partner of as many GPUs relative to alone. - An SLO >=
0 is, as in Gavel, a multiple of the duration: the deadline is arrival + SLO * `duration_s`. A
  negative one is none.
- Checkpoint and restore split a published restart penalty (Sia, SOSP'23: 250 s for ImageNet
  training, which here is ResNet-50, 30 s for the others) one fifth to four fifths: saving writes
  the model once, coming back starts a process, reads the model and warms the input pipeline up. A
  first start pays nothing, as in Gavel.

Job ids number the jobs of the trace from 0, as Gavel does.

Source: D. Narayanan et al., Heterogeneity-aware cluster scheduling policies for deep learning
workloads, OSDI'20.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...model import Cluster, Locality, Node, Profile, Sharing
from ..clusters import cluster_of
from ..imported import (
    ClusterText,
    Format,
    GpuCount,
    Imported,
    ThroughputTable,
    Track,
    WithOverheads,
    read_text,
)
from ..tables.table import lines
from .throughputs import (
    REFERENCE,
    Line,
    Rates,
    find_table,
    is_rate,
    jobs_of_lines,
    read_table,
    steps_per_s,
)

LAYOUTS = (
    "job_type command steps_arg needs_data_dir total_steps arrival scale_factor",
    "job_type command working_directory steps_arg needs_data_dir total_steps scale_factor weight "
    "slo arrival",
)
"""Of traces made from Microsoft's, and of Gavel's own generator."""
GPU_TYPES = ("v100", "p100", "k80")
"""Order of the GPU types in Gavel's cluster specifications `36:36:36`."""
DEFAULT_CLUSTER = "36:36:36"
TABLE_NAME = "simulation_throughputs.json"

RESTART_S = {"ResNet-50": 250.0}
OTHER_RESTART_S = 30.0
CHECKPOINT_SHARE = 0.2


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
    `cluster` is `v100=36,p100=36,k80=36`, `36:36:36` in this order, or a JSON file of Gavel's with
    such a text. Jobs without a measured rate, and jobs that can never run on the cluster, are
    dropped and counted. Raises InputError with the line of the first fault.
    """
    path = Path(source)
    rows = lines(path, *LAYOUTS, separator="\t", track=track)
    table_path = find_table(path, throughputs, TABLE_NAME, "Gavel")
    table = read_table(table_path, "Gavel")

    @cache
    def profile(job_type: str, gpus: int) -> tuple[Profile, float] | None:
        return _profile(table, table_path, job_type, gpus, gpus_per_node, overheads)

    def measured(line: Line) -> tuple[Profile, float] | None:
        known = profile(line.job_type, line.gpus)
        return None if known is None else (known[0], line.steps / known[1])

    return jobs_of_lines(
        path, _cluster(cluster, gpus_per_node), [*map(Line.of, rows)], measured, jobs
    )


# ------------------------------------------------------------------------------------------------
# throughputs


def _profile(
    table: Rates, path: Path, job_type: str, gpus: int, gpus_per_node: int, overheads: bool
) -> tuple[Profile, float] | None:
    """Return the profile of a job type at a GPU count, and its steps/s on the reference GPU; None
    if unmeasured."""
    name = f"('{job_type}', {gpus})"
    reference = steps_per_s(table, path, REFERENCE, name)
    if reference <= 0:
        return None
    rates = {gpu_type: steps_per_s(table, path, gpu_type, name) for gpu_type in GPU_TYPES}
    spread = steps_per_s(table, path, f"{REFERENCE}_unconsolidated", name)
    locality = None
    if 1 < gpus <= gpus_per_node and 0 < spread < reference:
        locality = Locality(rack=round(spread / reference, 6), cluster=round(spread / reference, 6))
    partners = _partners(table[REFERENCE][name], f"{path}: {REFERENCE}: {name}", gpus, reference)
    restart_s = RESTART_S.get(job_type.split(" (")[0], OTHER_RESTART_S) if overheads else 0.0
    checkpoint_s = CHECKPOINT_SHARE * restart_s
    profile = Profile(
        name=job_type,
        rate={gpu_type: round(rate / reference, 6) for gpu_type, rate in rates.items() if rate > 0},
        locality=locality,
        sharing=Sharing(partners=partners) if partners else None,
        checkpoint_s=checkpoint_s,
        restore_s=restart_s - checkpoint_s,
    )
    return profile, reference


def _partners(row: Mapping[str, Any], where: str, gpus: int, alone: float) -> dict[str, float]:
    """Return the own rate beside each partner of as many GPUs, relative to alone; pairs that cannot
    run are left out."""
    partners = {}
    suffix = f"', {gpus})"
    for name, pair in row.items():
        if name == "null" or not name.endswith(suffix):
            continue
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_rate, pair)):
            raise InputError(f"{where}: {name}: expected two rates [own, other]")
        if min(pair) > 0:
            partners[name.removeprefix("('").removesuffix(suffix)] = round(pair[0] / alone, 6)
    return partners


# ------------------------------------------------------------------------------------------------
# cluster


def _cluster(text: str, gpus_per_node: int) -> Cluster:
    """Return nodes for `v100=36,p100=36`, `36:36:36` or a cluster_specs.json; a type's last node
    may be smaller."""
    counts = _first_specification(Path(text)) if text.endswith(".json") else text
    if counts.count(":") == 2:
        pairs = zip(GPU_TYPES, counts.split(":"), strict=True)
        counts = ",".join(f"{gpu_type}={count}" for gpu_type, count in pairs)
    some = [part for part in counts.split(",") if not part.endswith("=0")]
    nodes = cluster_of(",".join(some) or text, gpus_per_node).nodes
    if not {node.gpu_type for node in nodes} <= {*GPU_TYPES}:
        raise InputError(
            f"cluster {text!r}: expected v100=36,p100=36,k80=36 or 36:36:36 (GPUs of "
            f"{', '.join(GPU_TYPES)})"
        )
    bare = (Node(name=node.name, gpu_type=node.gpu_type, gpus=node.gpus) for node in nodes)
    return Cluster(nodes=tuple(bare), reference_gpu=REFERENCE)


def _first_specification(path: Path) -> str:
    try:
        named = json.loads(read_text(path))
        return str(next(iter(named.values()))[0])
    except (ValueError, RecursionError, AttributeError, StopIteration, LookupError, TypeError):
        raise InputError(f'{path}: expected Gavel\'s form {{"name": ["36:36:36"]}}') from None


FORMAT = Format(
    title="Gavel traces with their throughput table (.trace, .trace.gz)", read=read, profiled=True
)
