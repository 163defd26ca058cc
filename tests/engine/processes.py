"""Watching processes come and go."""

import os
import time
from pathlib import Path


def gone(pid: int, within_s: float = 3.0) -> bool:
    """Whether the process ends (as a zombie it would still be there)."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def pids(path: Path, within_s: float = 60.0) -> list[int]:
    """What a fake wrote of its processes, once it has."""
    until_s = time.monotonic() + within_s
    while not path.exists():
        assert time.monotonic() < until_s, "the solver never started"
        time.sleep(0.02)
    return [int(word) for word in path.read_text().split()]
