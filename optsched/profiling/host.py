"""What the host sees of the processes of a command."""

import contextlib
import os
import re
import signal
from pathlib import Path
from typing import Any

from ..executors.supervision.processes import proportional_bytes, resident_bytes
from ..frozen import record

KIB = 1024


@record
class HostSample:
    """One look at all processes of a command: processor time so far, and memory (shared pages
    counted once)."""

    at_s: float
    cpu_s: float
    memory_bytes: int


def sample(root: Any, at_s: float) -> tuple[HostSample, int] | None:
    """Look at the tree of `root`, a psutil.Process, and the largest peak that the kernel kept of
    one process; return None when it has ended."""
    import psutil

    try:
        tree = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    cpu_s, memory, largest = 0.0, 0, 0
    for process in tree:
        with contextlib.suppress(psutil.Error, OSError):
            times = process.cpu_times()
            cpu_s += times.user + times.system + times.children_user + times.children_system
            memory += proportional_bytes([process.pid]) or resident_bytes([process.pid])
            largest = max(largest, _peak_bytes(process.pid))
    return HostSample(at_s, cpu_s, memory), largest


def _peak_bytes(pid: int) -> int:
    """Return the most that a process has held, as the kernel keeps it."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return 0 if peak is None else int(peak[1]) * KIB


def end_group(pid: int) -> None:
    """Send SIGKILL to the process group of a command; nothing where none is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def usable_cores() -> list[int]:
    """Return the cores that this process may use, as many as its CPU quota allows."""
    cores = sorted(os.sched_getaffinity(0))
    quota = _cpu_quota()
    return cores if quota is None else cores[: max(1, int(quota))]


def _cpu_quota() -> float | None:
    """Return the cores that the control group of a container allows, None for no limit or where it
    cannot be read."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return None if quota_us <= 0 else quota_us / period_us
    return None
