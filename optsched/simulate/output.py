"""The directory that a simulation leaves behind."""

import json
import math
import os
from collections import defaultdict
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..errors import InputError
from ..files.columns import columns_csv, columns_parquet
from ..model import Solution
from .metrics import Metrics
from .metrics.table import TEXTS, columns
from .record import Record
from .saved import STATE

SUMMARY_FORMAT = "optsched-simulation/1"
SUMMARY = "summary.json"
OTHERS = (
    STATE,
    "plan.json",
    "plan.json.gz",
    "jobs.csv",
    "jobs.parquet",
    "rounds.csv",
    "report.html",
)
"""What may stand beside the summary; everything else in a directory is foreign."""
LARGE = 10_000_000
"""Characters of a plan from which on it is packed."""
OF_RECORD = ("now_s", "wall_s")
"""What a policy's own record of a round says, too, and the simulation's says better."""


def check_directory(path: Path) -> None:
    """Make sure before any work that a simulation can be written to `path` and overwrites nothing
    but another one.

    Raises InputError saying why not, and what would be right.
    """
    if path.exists() and not path.is_dir():
        raise InputError(
            f"-o {path} is a file; name a directory for summary, jobs, plan and report"
        )
    if not path.exists():
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise InputError(f"-o {path}: the directory {folder} does not exist; make it first")
        if not os.access(folder, os.W_OK):
            raise InputError(f"-o {path}: no permission to make it")
        return
    if not os.access(path, os.W_OK):
        raise InputError(f"-o {path}: no permission to write there")
    there = sorted(entry.name for entry in path.iterdir())
    foreign = [name for name in there if name not in (SUMMARY, *OTHERS)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise InputError(
            f"-o {path} holds {foreign[0]}{more}, which no simulation wrote; name a new or an "
            "empty directory"
        )
    if there and there != [STATE] and not _is_summary(path / SUMMARY):
        raise InputError(
            f"-o {path} holds {there[0]}, but no {SUMMARY} of a simulation; name a new or an "
            "empty directory"
        )


def _is_summary(path: Path) -> bool:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == SUMMARY_FORMAT


def write(
    path: Path, metrics: Metrics, total: dict[str, Any], solution: Solution, rounds: list[Any]
) -> list[str]:
    """Write summary, jobs, plan, rounds and the page; what an earlier simulation left goes.

    `total` is the summary with what else `summary.json` says; `rounds` is what the policy recorded
    of its decisions, if anything. Each file is written whole or not at all. Returns what is worth
    saying about it. Raises InputError naming the file that cannot be written.
    """
    assert solution.plan is not None
    try:
        path.mkdir(exist_ok=True)
        for name in OTHERS:
            (path / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    # The summary comes first: it says whose directory this is, should a later file find the disk
    # full.
    files.write_text(path / SUMMARY, json.dumps(total, indent=1, allow_nan=False) + "\n")
    table = columns(metrics)
    files.write_text(path / "jobs.csv", columns_csv(table))
    data = columns_parquet(table, TEXTS)
    if data is not None:
        files.write_bytes(path / "jobs.parquet", data)
    files.write_text(path / "rounds.csv", rounds_csv(metrics.rows, rounds))
    text = files.dump_plan(solution)
    files.write_text(path / ("plan.json.gz" if len(text) > LARGE else "plan.json"), text)
    from .report import page

    files.write_text(path / "report.html", page(metrics, total, solution.plan))
    there = [name for name in (SUMMARY, *OTHERS) if (path / name).exists()]
    return [f"written to {path}: {', '.join(there)}"]


def rounds_csv(record: Record, rounds: list[Any]) -> str:
    """Return a line for each decision: when, how long it took on the machine's clock, and what the
    policy recorded of it."""
    own: dict[float, list[dict[str, Any]]] = defaultdict(list)
    names: list[str] = []
    for entry in rounds:
        if is_dataclass(entry) and not isinstance(entry, type):
            fields = asdict(entry)
            own[fields.get("now_s", 0.0)].append(fields)
            names = names or [name for name in fields if name not in OF_RECORD]
    lines: list[list[Any]] = [["time_s", "wall_s", *names]]
    for time_s, wall_s in zip(
        record.decision_s.tolist(), record.decision_wall_s.tolist(), strict=True
    ):
        fields = own[time_s].pop(0) if own.get(time_s) else {}
        lines.append([time_s, round(wall_s, 6), *map(fields.get, names)])
    return files.csv_text(lines)


def rounds_total(rounds: list[Any]) -> dict[str, Any] | None:
    """Return how many rounds a policy solved and how far they were from their bounds; None where it
    recorded no gaps."""
    gaps = [
        gap
        for entry in rounds
        if (gap := getattr(entry, "gap", None)) is not None and math.isfinite(gap)
    ]
    if not gaps:
        return None
    return {"count": len(gaps), "gap_mean": sum(gaps) / len(gaps), "gap_max": max(gaps)}
