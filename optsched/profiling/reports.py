"""What a command says of itself: the file of its steps, and the files of the hook in its Python
processes."""

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .steps import Mark

HOOK = Path(__file__).parent / "hook"
"""The folder that goes on PYTHONPATH."""
MOST_BYTES, LONGEST_LINE = 64 << 20, 1000
"""So much is read of what one process reports, and so many bytes of each line."""


@dataclass(slots=True)
class HookReport:
    """What one process that loaded torch reported: steps of its busiest optimizer, what it saved
    and loaded (began, seconds, bytes or None), and the most that torch had reserved on one GPU."""

    rank: int
    marks: list[Mark] = field(default_factory=list)
    optimizers: int = 0
    saves: list[tuple[float, float, int | None]] = field(default_factory=list)
    loads: list[tuple[float, float, int | None]] = field(default_factory=list)
    reserved_bytes: int | None = None


def read_hook(folder: Path) -> HookReport | None:
    """Return what the process that stepped most reported, of several the one of the lowest rank;
    the GPU memory is the most of any. None where none reported."""
    reports = [_report(path) for path in sorted(folder.glob("*.jsonl"))]
    if not reports:
        return None
    chosen = min(reports, key=lambda report: (-len(report.marks), report.rank))
    reserved = [report.reserved_bytes for report in reports if report.reserved_bytes is not None]
    chosen.reserved_bytes = max(reserved, default=None)
    return chosen


def steps_of_hook(folder: Path) -> int:
    """Return the steps that any one process has reported so far."""
    return max((len(_report(path).marks) for path in folder.glob("*.jsonl")), default=0)


def _report(path: Path) -> HookReport:
    report = HookReport(rank=0)
    times: dict[int, list[float]] = {}
    for line in _lines(path):
        match line:
            case ["process", int(), str(rank)] if rank.isdecimal() and len(rank) < 10:
                report.rank = int(rank)
            case ["step", float(at_s), int(optimizer)] if _can_be(at_s):
                times.setdefault(optimizer, []).append(at_s)
            case ["save" | "load" as what, float(at_s), float(took_s), size] if _can_be(
                at_s, took_s, size
            ):
                (report.saves if what == "save" else report.loads).append((at_s, took_s, size))
            case ["gpu", int(), int(reserved), int()] if _can_be(reserved):
                report.reserved_bytes = max(reserved, report.reserved_bytes or 0)
    report.optimizers = len(times)
    busiest = max(times.values(), key=len, default=[])
    report.marks = [(at_s, count) for count, at_s in enumerate(busiest, 1)]
    return report


def _can_be(*values: Any) -> bool:
    """Return whether these can be times, sizes, or sizes that are not known."""
    return all(
        value is None
        or (isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 1e18)
        for value in values
    )


def _lines(path: Path) -> Iterator[Any]:
    """Yield what each line holds; the command, which may do anything, can write there too."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # no waiting for pipes
    with contextlib.suppress(OSError), open(os.open(path, flags), "rb") as lines:
        if not stat.S_ISREG(os.fstat(lines.fileno()).st_mode):
            return
        while lines.tell() < MOST_BYTES and (line := lines.readline(LONGEST_LINE)):
            # the last line of a process that was killed, or what is none
            with contextlib.suppress(ValueError, RecursionError):
                yield json.loads(line)
