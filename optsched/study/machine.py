"""What a run was made on and with: processor, memory, and the versions of the libraries that matter
to it."""

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .address import code_version

LIBRARIES = ("ortools", "numpy")


@cache
def made_on() -> dict[str, str]:
    """Return versions and machine by name, as a reader wants to see them."""
    versions = {"optsched": code_version(), "Python": platform.python_version()}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return {
        **versions,
        "machine": f"{_processor()}, {os.cpu_count() or 1} cores, {_memory_gib():.0f} GiB",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return " ".join(names[0].split()) if names else platform.processor() or platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
