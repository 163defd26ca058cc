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
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...model.cluster import Cluster, Node
from ...model.profile import Locality, Profile, Sharing
from ..imported import (
    At,
    ClusterText,
    Format,
    GpuCount,
    Imported,
    ThroughputTable,
    Track,
    WithOverheads,
    read_text,
)
from .throughputs import REFERENCE, Line, find_table, jobs_of_lines, line_of, lines_of, read_table

GPU_TYPES = ("v100", "p100", "k80")
"""Order of the GPU types in Gavel's cluster specifications `36:36:36`."""
DEFAULT_CLUSTER = "36:36:36"
TABLE_NAMES = ("simulation_throughputs.json", "simulation_throughputs.json.gz")

RESTART_S = {"ResNet-50": 250.0}
OTHER_RESTART_S = 30.0
CHECKPOINT_SHARE = 0.2

Key = tuple[str, int]
"""Job type and GPU count."""
Table = dict[str, dict[str, dict[str, Any]]]


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
    lines = lines_of(path, track, _parse, "7 or 10")
    table_path = find_table(path, throughputs, TABLE_NAMES, "Gavel")
    table = read_table(table_path, "Gavel")
    profiles: dict[Key, tuple[Profile, float] | None] = {}

    def measured(line: Line) -> tuple[Profile, float] | None:
        key = (line.job_type, line.gpus)
        if key not in profiles:
            profiles[key] = _profile(table, table_path, key, gpus_per_node, overheads)
        known = profiles[key]
        return None if known is None else (known[0], line.steps / known[1])

    return jobs_of_lines(path, _cluster(cluster, gpus_per_node), lines, measured, jobs)


def _parse(at: At, text: str, cells: list[str]) -> Line:
    if len(cells) == 7:
        steps, arrival, gpus = cells[4:]
        return line_of(at, text, cells[0], (steps, gpus, "1", "-1", arrival))
    if len(cells) != 10:
        at.fail(f"7 or 10 columns separated by tabs, not {len(cells)}", text)
    return line_of(at, text, cells[0], cells[5:])


# ------------------------------------------------------------------------------------------------
# throughputs


def _name(key: Key) -> str:
    return f"('{key[0]}', {key[1]})"


def _alone(table: Table, path: Path, gpu_type: str, key: Key) -> float:
    """Steps/s of a job alone; 0 where it was not measured."""
    rows = table.get(gpu_type, {})
    row = rows.get(_name(key), {"null": 0.0}) if isinstance(rows, dict) else None
    rate: Any = row.get("null") if isinstance(row, dict) else None
    if not _is_rate(rate):
        raise InputError(
            f"{path}: {gpu_type}: {_name(key)}: expected {{'null': steps per second >= 0, ...}}"
        )
    return float(rate)


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1e6


def _profile(
    table: Table, path: Path, key: Key, gpus_per_node: int, overheads: bool
) -> tuple[Profile, float] | None:
    """The profile of a job type at a GPU count, and its steps/s on the reference GPU; None if
    unmeasured."""
    reference = _alone(table, path, REFERENCE, key)
    if reference <= 0:
        return None
    rates = {gpu_type: _alone(table, path, gpu_type, key) for gpu_type in GPU_TYPES}
    spread = _alone(table, path, f"{REFERENCE}_unconsolidated", key)
    locality = None
    if 1 < key[1] <= gpus_per_node and 0 < spread < reference:
        locality = Locality(rack=round(spread / reference, 6), cluster=round(spread / reference, 6))
    partners = _partners(table[REFERENCE][_name(key)], path, key, reference)
    restart_s = RESTART_S.get(key[0].split(" (")[0], OTHER_RESTART_S) if overheads else 0.0
    checkpoint_s = CHECKPOINT_SHARE * restart_s
    profile = Profile(
        name=key[0],
        rate={gpu_type: round(rate / reference, 6) for gpu_type, rate in rates.items() if rate > 0},
        locality=locality,
        sharing=Sharing(partners=partners) if partners else None,
        checkpoint_s=checkpoint_s,
        restore_s=restart_s - checkpoint_s,
    )
    return profile, reference


def _partners(row: Mapping[str, Any], path: Path, key: Key, alone: float) -> dict[str, float]:
    """Own rate beside each partner of as many GPUs, relative to alone; pairs that cannot run are
    left out."""
    found = {}
    suffix = f"', {key[1]})"
    for name, pair in row.items():
        if name == "null" or not name.endswith(suffix):
            continue
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_rate, pair)):
            raise InputError(
                f"{path}: {REFERENCE}: {_name(key)}: {name}: expected two rates [own, other]"
            )
        if min(pair) > 0:
            found[name.removeprefix("('").removesuffix(suffix)] = round(pair[0] / alone, 6)
    return found


# ------------------------------------------------------------------------------------------------
# cluster


def _cluster(text: str, gpus_per_node: int) -> Cluster:
    """Nodes for `v100=36,p100=36`, `36:36:36` or a cluster_specs.json; a type's last node may be
    smaller."""
    specification = _first_specification(Path(text)) if text.endswith(".json") else text
    expected = f"expected v100=36,p100=36,k80=36 or 36:36:36 (GPUs of {', '.join(GPU_TYPES)})"
    if "=" not in specification and specification.count(":") == 2:
        parts = [tuple(part) for part in zip(GPU_TYPES, specification.split(":"), strict=True)]
    else:
        parts = [tuple(part.strip().split("=")) for part in specification.split(",")]
    nodes: list[Node] = []
    for part in parts:
        if (
            len(part) != 2
            or part[0] not in GPU_TYPES
            or not (part[1].isascii() and part[1].isdecimal())
        ):
            raise InputError(
                f"cluster {text!r}: {'='.join(part)!r} is no GPU type and count; {expected}"
            )
        left = int(part[1])
        if left > 100_000 or any(node.gpu_type == part[0] for node in nodes):
            raise InputError(
                f"cluster {text!r}: {part[0]} appears twice or has over 100000 GPUs; {expected}"
            )
        for i in range(math.ceil(left / gpus_per_node)):
            gpus = min(gpus_per_node, left - i * gpus_per_node)
            nodes.append(Node(name=f"{part[0]}-{i}", gpu_type=part[0], gpus=gpus))
    if not nodes:
        raise InputError(f"cluster {text!r}: has no GPUs; {expected}")
    return Cluster(nodes=tuple(nodes), reference_gpu=REFERENCE)


def _first_specification(path: Path) -> str:
    try:
        named = json.loads(read_text(path))
        return str(next(iter(named.values()))[0])
    except (
        ValueError,
        RecursionError,
        AttributeError,
        StopIteration,
        IndexError,
        KeyError,
        TypeError,
    ):
        raise InputError(f'{path}: expected Gavel\'s form {{"name": ["36:36:36"]}}') from None


FORMAT = Format(
    title="Gavel traces with their throughput table (.trace, .trace.gz)", read=read, profiled=True
)
