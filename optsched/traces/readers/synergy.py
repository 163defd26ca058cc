"""Replay traces of the Synergy simulator, with its measurements of speed by cores and memory.

A trace has no header: job, model, arrival (s), iterations, GPUs. The measurements,
`cpu_mem_sensitivity.json`, list for `<model>_<GPUs>` the seconds of an iteration (`iter_time`) with
the proportional share of a node, 3 cores and 62.5 GB for each GPU, and `tput`, the rate relative to
it by cores (rows: 1, 2, 3, 4, 5, 6, 9, 12, 24) and memory (columns: 20.83, 62.5, 125, 187.5, 250
GB, the first for one GPU only), 0 where there is none.

- `duration_s` is iterations times `iter_time`.
- `memory_gib_per_gpu` is the least memory with which as much as ever is gained from more cores, and
  `cpus_per_gpu` the rates with it, up to the first count beyond which more do not help.
  `memory_rates` has the highest rate with less, down to the least memory with which the
  proportional share of cores has the rate 1: the rate by cores and memory is that of the scarcer.
- `locality` is `placement_penalty`. Stopping and starting cost nothing, as there.

Source: J. Mohan et al., Looking beyond GPUs for DNN scheduling on multi-tenant clusters, OSDI'22;
meaning and units from simulator/jobs/ of https://github.com/msr-fiddle/synergy.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ...errors import InputError
from ...model import Job, Locality, Profile
from ..clusters import cluster_of, with_each
from ..imported import ClusterText, Format, GpuCount, Imported, Track, read_json
from ..tables.table import Row, lines
from ..usable import SHORTEST_S, imported, stem

CORES = (1, 2, 3, 4, 5, 6, 9, 12, 24)
MEMORY_GB = (20.83, 62.5, 125.0, 187.5, 250.0)
SHARE_CORES, SHARE_GB = 3, 62.5
COLUMNS = "job model arrival iterations GPUs"
TABLE = "cpu_mem_sensitivity.json"
TOLERANCE = 0.02
"""Share by which a rate may differ from that of the scarcer of cores and memory."""
Measured = tuple[Profile, float]
"""A profile and the seconds of an iteration."""


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    sensitivity: Annotated[
        Path | None, f"The measurements (default: {TABLE} beside the trace)."
    ] = None,
    cluster: ClusterText = "v100=32",
    gpus_per_node: GpuCount = 8,
) -> Imported:
    """Read a trace; `jobs` keeps the first so many, by arrival, of those that can run.

    `sensitivity` is the file of measurements, by default beside the trace. The cluster's nodes have
    3 cores and 62.5 GB for each GPU. Jobs of a model and GPU count that was not measured are
    dropped and counted. Raises InputError with the line of the first fault.
    """
    path = Path(source)
    measured = _measured(path.parent / TABLE if sensitivity is None else Path(sensitivity))
    nodes = with_each(
        cluster_of(cluster, gpus_per_node),
        cpus=lambda node: SHARE_CORES * node.gpus,
        memory_gib=lambda node: round(SHARE_GB * node.gpus * 1e9 / 2**30, 3),
    )
    rows = lines(path, COLUMNS, separator=",", track=track)
    return imported(path, nodes, (_job(row, measured) for row in rows), jobs, name=stem(path))


def _job(row: Row, measured: dict[str, Measured]) -> Job | str:
    """Return the job of a line, or why it is left out."""
    job, model, gpus = row.named("job"), row["model"], row.whole("GPUs", least=1)
    arrival_s = row.number("arrival", "seconds", least=0)
    iterations = row.whole("iterations", least=1)
    known = measured.get(f"{model}_{gpus}")
    if known is None:
        return f"{model} on {gpus} GPUs was not measured"
    return Job(
        id=f"job-{job}",
        submit_s=arrival_s,
        command=model,
        gpus=gpus,
        duration_s=max(SHORTEST_S, round(iterations * known[1], 3)),
        profile=known[0],
    )


def _measured(path: Path) -> dict[str, Measured]:
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{path}: expected a list of Synergy's measurements, one object a model")
    measured = {}
    for i, entry in enumerate(entries):
        try:
            measured[str(entry["name"])] = _entry(entry)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise InputError(
                f"{path}: entry {i}: expected name, iter_time (s, above 0), placement_penalty "
                "(above 0, at most 1) and "
                f"tput (rates of {len(CORES)} core counts by {len(MEMORY_GB)} or "
                f"{len(MEMORY_GB) - 1} sizes of memory, each that of the scarcer of both)"
            ) from None
    return measured


def _entry(entry: dict[str, Any]) -> Measured:
    """Return what an entry says. Raises one of the errors that `_measured` words where the entry is
    not as it should be."""
    rates = np.array(entry["tput"], dtype=float)
    seconds, spread = float(entry["iter_time"]), float(entry["placement_penalty"])
    shapes = [(len(CORES), len(MEMORY_GB) - without) for without in (0, 1)]
    if rates.shape not in shapes or not 0 < seconds <= 1e6 or not 0 < spread <= 1:
        raise ValueError
    by_memory, by_cores = rates.max(axis=0), rates.max(axis=1)
    scarcer = np.minimum(by_cores[:, None], by_memory)
    off = np.abs(rates - scarcer) > TOLERANCE * scarcer
    enough = np.flatnonzero(rates[CORES.index(SHARE_CORES)] >= 1)
    if not ((rates >= 0) & (rates <= 1e3)).all() or off[rates > 0].any() or not len(enough):
        raise ValueError
    least = int(enough[0])
    full = least + int(by_memory[least:].argmax())
    curve = dict(zip(CORES, rates[:, full].tolist(), strict=True))
    best = min(cores for cores, rate in curve.items() if rate == by_memory.max())
    gib = [round(gigabytes * 1e9 / 2**30, 3) for gigabytes in MEMORY_GB[-len(by_memory) :]]
    return Profile(
        name=entry["name"],
        cpus_per_gpu={cores: rate for cores, rate in curve.items() if cores <= best and rate > 0},
        memory_gib_per_gpu=gib[full],
        memory_rates=dict(zip(gib[least:full], by_memory[least:full].tolist(), strict=True)),
        locality=Locality(rack=spread, cluster=spread) if spread < 1 else None,
    ), seconds


FORMAT = Format(
    title="Synergy replay traces with their CPU and memory sensitivity (static_100job)",
    read=read,
    profiled=True,
)
