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
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import InputError
from ...model.instance import Instance
from ...model.job import Job
from ...model.profile import Profile
from ..clusters import cluster_of
from ..imported import CLUSTER, GPUS_PER_NODE, At, Format, Imported, Track, read_text
from .batch_sizes import SAMPLES, phases, steps_of_epoch
from .gavel import NO_OVERHEADS, THROUGHPUTS
from .throughputs import REFERENCE, find_table, read_table

DEFAULT_CLUSTER = "v100=32"
TABLE_NAMES = ("tacc_throughputs.json", "tacc_throughputs.json.gz")
RULES = ("static", "accordion", "gns")
START_S = 20.0

Steps = dict[str, dict[str, float]]
"""Steps/s alone by GPU type and the table's name of a job type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """What is used of one line of a trace."""

    model: str
    batch: int
    command: str
    steps: int
    gpus: int
    rule: str
    weight: float
    slo: float
    arrival_s: float


def read(
    source: str | Path,
    *,
    jobs: int | None = None,
    track: Track = iter,
    throughputs: str | Path | None = None,
    cluster: str = DEFAULT_CLUSTER,
    gpus_per_node: int = 4,
    overheads: bool = True,
) -> Imported:
    """Read a trace; `jobs` keeps the first so many, by arrival, of those that can run.

    `throughputs` is the table's file, by default looked for beside the trace and one folder above.
    Jobs whose first batch size was not measured on a V100, and jobs that can never run on the
    cluster, are dropped and counted. Raises InputError with the line of the first fault.
    """
    from ...physics.catalogue import Catalogue
    from ...physics.unschedulable import why_never

    path = Path(source)
    texts = enumerate(track(read_text(path).split("\n")), start=1)
    lines = [_parse(At(str(path), number), text) for number, text in texts if text.strip()]
    if not lines:
        raise InputError(f"{path}: is empty; expected one job a line, 12 columns separated by tabs")
    table = _table(find_table(path, throughputs, TABLE_NAMES, "Shockwave"))
    nodes = cluster_of(cluster, gpus_per_node)
    nodes = replace(
        nodes, reference_gpu=REFERENCE if REFERENCE in nodes.gpu_types else nodes.reference_gpu
    )
    gpu_types = dict.fromkeys(
        (REFERENCE, *(gpu_type for gpu_type in nodes.gpu_types if gpu_type is not None))
    )
    kept: list[Job] = []
    dropped: Counter[str] = Counter()
    profiles: dict[tuple[object, ...], Profile] = {}
    for i, line in sorted(enumerate(lines), key=lambda numbered: numbered[1].arrival_s):
        seconds = {gpu_type: _seconds(table, gpu_type, line) for gpu_type in gpu_types}
        reference_s = seconds[REFERENCE]
        if reference_s is None:
            dropped["job type and GPU count are not in the throughput table"] += 1
            continue
        rate = {
            name: round(reference_s / own_s, 6)
            for name, own_s in seconds.items()
            if own_s is not None
        }
        name = f"{line.model} (batch size {line.batch})"
        profile = Profile(name=name, rate=rate, startup_s=START_S if overheads else 0.0)
        duration_s = max(1e-3, round(reference_s, 3))
        job = Job(
            id=f"job-{i}",
            submit_s=line.arrival_s,
            command=line.command,
            weight=line.weight,
            deadline_s=round(line.arrival_s + line.slo * duration_s, 3) if line.slo >= 0 else None,
            gpus=line.gpus,
            duration_s=duration_s,
            profile=profiles.setdefault((name, *rate.items()), profile),
        )
        if (reason := why_never(Catalogue.of(nodes), job)) is not None:
            dropped[reason] += 1
        elif jobs is not None and len(kept) >= jobs:
            dropped[f"after the first {jobs}"] += 1
        else:
            kept.append(job)
    if not kept:
        why = "; ".join(f"{reason}: {count}" for reason, count in dropped.items())
        raise InputError(
            f"{path}: none of the {len(lines)} jobs can be used ({why}); try another --cluster"
        )
    name = path.name.removesuffix(".gz").removesuffix(".trace")
    instance = Instance(name=name, cluster=nodes, jobs=tuple(kept))
    return Imported(instance=instance, read=len(lines), dropped=dict(dropped))


def _parse(at: At, text: str) -> _Line:
    cells = text.split("\t")
    if len(cells) != 12:
        at.fail(f"12 columns separated by tabs, not {len(cells)}", text)
    steps, gpus, rule, weight, slo, _, arrival = cells[5:]
    named = re.fullmatch(r"(\S+) \(batch size ([1-9][0-9]{0,6})\)", cells[0])
    if named is None or named[1] not in SAMPLES:
        at.fail(
            f"a job type as 'LM (batch size 10)' with a model of {', '.join(SAMPLES)}", cells[0]
        )
    if rule not in RULES:
        at.fail(f"one of {', '.join(RULES)}", rule)
    found = _Line(
        model=named[1],
        batch=int(named[2]),
        command=cells[1],
        steps=at.whole(steps, "total_steps"),
        gpus=at.whole(gpus, "scale_factor (GPUs)"),
        rule=rule,
        weight=at.number(weight, "the weight"),
        slo=at.number(slo, "the SLO"),
        arrival_s=at.number(arrival, "the arrival in seconds"),
    )
    if found.steps < 1 or found.gpus < 1 or found.weight < 0 or found.arrival_s < 0:
        at.fail("at least one step and one GPU, a weight and an arrival >= 0", text)
    return found


# ------------------------------------------------------------------------------------------------
# run times


def _seconds(table: Steps, gpu_type: str, line: _Line) -> float | None:
    """Run time on one GPU type, epoch after epoch; None where a batch size was not measured
    there."""
    epochs = line.steps / steps_of_epoch(line.model, line.batch)
    parts = []
    left, last = epochs, None
    for batch, length in phases(line.model, line.batch, line.gpus, line.rule, math.ceil(epochs)):
        if last is None or _steps_per_s(table, REFERENCE, line, batch) > 0:
            last = batch
        steps_per_s = _steps_per_s(table, gpu_type, line, last)
        if steps_per_s <= 0:
            return None
        parts.append(min(left, length) * steps_of_epoch(line.model, last) / steps_per_s)
        left -= length
    return math.fsum(parts)


def _steps_per_s(table: Steps, gpu_type: str, line: _Line, batch: int) -> float:
    return table.get(gpu_type, {}).get(f"('{line.model} (batch size {batch})', {line.gpus})", 0.0)


def _table(path: Path) -> Steps:
    raw = read_table(path, "Shockwave")
    found: Steps = {}
    for gpu_type, rows in raw.items():
        for name, row in rows.items() if isinstance(rows, dict) else ():
            rate = row.get("null") if isinstance(row, dict) else None
            if not isinstance(rate, int | float) or not 0 <= rate <= 1e6:
                raise InputError(
                    f"{path}: {gpu_type}: {name}: expected {{'null': steps per second >= 0, ...}}"
                )
            found.setdefault(gpu_type, {})[name] = float(rate)
    return found


FORMAT = Format(
    title="Shockwave traces with their throughput table (.trace)",
    read=read,
    options=(THROUGHPUTS, CLUSTER, GPUS_PER_NODE, NO_OVERHEADS),
    profiled=True,
)
