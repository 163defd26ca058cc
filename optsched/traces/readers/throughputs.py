"""Throughput tables as Gavel writes them: steps/s by GPU type, then by job type and GPU count."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InputError
from ...model import Cluster, Job, Profile
from ..imported import Imported, found_beside, read_json
from ..tables.table import Row
from ..usable import SHORTEST_S, imported, stem

REFERENCE = "v100"
NOT_MEASURED = "job type and GPU count are not in the throughput table"
FASTEST = 1e6
"""Steps per second that no measurement exceeds."""

Rates = dict[str, dict[str, dict[str, Any]]]
"""By GPU type and the table's name of a job type: `null` has steps/s alone, partners both rates."""


class Line(NamedTuple):
    """What is used of one line of a trace; a negative `slo` is none."""

    job_type: str
    steps: int
    gpus: int
    arrival_s: float
    weight: float
    slo: float
    command: str | None
    rule: str

    @classmethod
    def of(cls, row: Row) -> "Line":
        """Return the line of a row; a trace may leave out weight, SLO and how the batch size
        changes. Raises InputError."""
        known = row.places
        return cls(
            job_type=row["job_type"],
            steps=row.whole("total_steps", least=1),
            gpus=row.whole("scale_factor", least=1),
            arrival_s=row.number("arrival", "seconds", least=0),
            weight=row.number("weight", least=0) if "weight" in known else 1.0,
            slo=row.number("slo") if "slo" in known else -1.0,
            command=row["command"] if "mode" in known else None,
            rule=row["mode"] if "mode" in known else "",
        )


def jobs_of_lines(
    path: Path,
    cluster: Cluster,
    lines: Sequence[Line],
    measured: Callable[[Line], tuple[Profile, float] | None],
    limit: int | None,
) -> Imported:
    """Return the instance of the first `limit` jobs, by arrival, that were `measured` (their
    profile and run time on the reference GPU) and can run; their clock is that of the trace."""

    def entries() -> Iterator[Job | str]:
        for i, line in enumerate(lines):
            if (known := measured(line)) is None:
                yield NOT_MEASURED
                continue
            profile, run_s = known
            duration_s = max(SHORTEST_S, round(run_s, 3))
            deadline_s = round(line.arrival_s + line.slo * duration_s, 3)
            yield Job(
                id=f"job-{i}",
                submit_s=line.arrival_s,
                command=line.command,
                weight=line.weight,
                deadline_s=deadline_s if line.slo >= 0 else None,
                gpus=line.gpus,
                duration_s=duration_s,
                profile=profile,
            )

    return imported(path, cluster, entries(), limit, name=stem(path, ".trace"), own_clock=True)


def find_table(trace: Path, given: str | Path | None, name: str, whose: str) -> Path:
    """Return the table the user names, or the one beside the trace or one folder above. Raises
    InputError where none is."""
    path = found_beside(name, trace.parent, trace.parent / "..") if given is None else Path(given)
    if path is None:
        raise InputError(
            f"{trace}: no {name} (or .gz) beside it or in the folder above; "
            f"name {whose}'s throughput table with --throughputs PATH"
        )
    return path


def read_table(path: Path, whose: str) -> Rates:
    """Return the table of a file. Raises InputError where it is none."""
    table = read_json(path)
    if not isinstance(table, dict) or not isinstance(table.get(REFERENCE), dict):
        raise InputError(f"{path}: is no {whose} throughput table; it has no object {REFERENCE!r}")
    return table


def steps_per_s(table: Rates, path: Path, gpu_type: str, name: str) -> float:
    """Return the steps/s of a job alone; 0 where it was not measured. Raises InputError."""
    rows = table.get(gpu_type, {})
    row = rows.get(name, {"null": 0.0}) if isinstance(rows, dict) else None
    rate: Any = row.get("null") if isinstance(row, dict) else None
    if not is_rate(rate):
        raise InputError(
            f"{path}: {gpu_type}: {name}: expected {{'null': steps per second >= 0, ...}}"
        )
    return float(rate)


def is_rate(value: Any) -> bool:
    """Tell whether a value is a measured rate."""
    return type(value) in (int, float) and 0 <= value <= FASTEST
