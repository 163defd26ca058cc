"""Throughput tables as Gavel writes them: steps/s by GPU type, then by job type and GPU count."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...model.cluster import Cluster
from ...model.instance import Instance
from ...model.job import Job
from ...model.profile import Profile
from ..imported import At, Imported, Track, read_text
from ..usable import nothing_left, runnable, stem

REFERENCE = "v100"
NOT_MEASURED = "job type and GPU count are not in the throughput table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is used of one line of a trace; a negative `slo` is none."""

    job_type: str
    steps: int
    gpus: int
    arrival_s: float
    weight: float = 1.0
    slo: float = -1.0
    command: str | None = None
    rule: str = ""
    """How the batch size changes."""


def line_of(
    at: At,
    text: str,
    job_type: str,
    numbers: Sequence[str],
    command: str | None = None,
    rule: str = "",
) -> Line:
    """Return the line with these total steps, GPUs, weight, SLO and arrival. Raises InputError."""
    steps, gpus, weight, slo, arrival = numbers
    line = Line(
        job_type=job_type,
        steps=at.whole(steps, "total_steps"),
        gpus=at.whole(gpus, "scale_factor (GPUs)"),
        weight=at.number(weight, "the weight"),
        slo=at.number(slo, "the SLO"),
        arrival_s=at.number(arrival, "the arrival in seconds"),
        command=command,
        rule=rule,
    )
    if line.steps < 1 or line.gpus < 1 or line.weight < 0 or line.arrival_s < 0:
        at.fail("at least one step and one GPU, a weight and an arrival >= 0", text)
    return line


def lines_of(
    path: Path, track: Track, parse: Callable[[At, str, list[str]], Line], columns: str
) -> list[Line]:
    """Return the lines of a trace, each parsed from its cells. Raises InputError."""
    texts = enumerate(track(read_text(path).split("\n")), start=1)
    lines = [
        parse(At(str(path), number), text, text.split("\t"))
        for number, text in texts
        if text.strip()
    ]
    if not lines:
        raise InputError(
            f"{path}: is empty; expected one job a line, {columns} columns separated by tabs"
        )
    return lines


def jobs_of_lines(
    path: Path,
    cluster: Cluster,
    lines: Sequence[Line],
    measured: Callable[[Line], tuple[Profile, float] | None],
    limit: int | None,
) -> Imported:
    """Return the instance of the first `limit` jobs, by arrival, that were `measured` (their
    profile and run time on the reference GPU) and can run; their clock is that of the trace."""
    found: list[Job] = []
    dropped: Counter[str] = Counter()
    for i, line in sorted(enumerate(lines), key=lambda numbered: numbered[1].arrival_s):
        if (known := measured(line)) is None:
            dropped[NOT_MEASURED] += 1
            continue
        profile, run_s = known
        duration_s = max(1e-3, round(run_s, 3))
        found.append(
            Job(
                id=f"job-{i}",
                submit_s=line.arrival_s,
                command=line.command,
                weight=line.weight,
                deadline_s=round(line.arrival_s + line.slo * duration_s, 3)
                if line.slo >= 0
                else None,
                gpus=line.gpus,
                duration_s=duration_s,
                profile=profile,
            )
        )
    kept = runnable(cluster, found, limit, dropped)
    if not kept:
        raise InputError(f"{nothing_left(path, dropped, len(lines))}; try another --cluster")
    instance = Instance(name=stem(path, ".trace"), cluster=cluster, jobs=tuple(kept))
    return Imported(instance=instance, read=len(lines), dropped=dict(dropped))


def find_table(trace: Path, given: str | Path | None, names: tuple[str, ...], whose: str) -> Path:
    """The table the user names, or the one beside the trace or one folder above. Raises InputError
    where none is."""
    if given is not None:
        return Path(given)
    for folder in (trace.parent, trace.parent / ".."):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise InputError(
        f"{trace}: no {names[0]} (or .gz) beside it or in the folder above; "
        f"name {whose}'s throughput table with --throughputs PATH"
    )


def read_table(path: Path, whose: str) -> dict[str, Any]:
    """The table as it stands in the file. Raises InputError where it is none."""
    try:
        table = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    if not isinstance(table, dict) or not isinstance(table.get(REFERENCE), dict):
        raise InputError(f"{path}: is no {whose} throughput table; it has no object {REFERENCE!r}")
    return table
