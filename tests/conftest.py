"""Hypothesis tries the same examples in every run; `--hypothesis-profile=varied` tries others.

Folders of tests are in memory where there is enough: each event of a journal waits for a disk.
"""

import os
import tempfile
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

from hypothesis import HealthCheck, settings

MEMORY, ENOUGH_BYTES = "/dev/shm", 4 << 30
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK | os.X_OK):
    about = os.statvfs(MEMORY)
    if about.f_bavail * about.f_frsize >= ENOUGH_BYTES and not about.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

pytest_plugins = ["optsched.testing.executors"]

# No deadlines: the machine may be shared with others. Random instances are large and take long to
# draw; of other examples, chance may have many thrown away.
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
patient = settings(deadline=None, suppress_health_check=CHECKS)
settings.register_profile("fixed", patient, derandomize=True)
settings.register_profile(
    "varied", patient, suppress_health_check=[*CHECKS, HealthCheck.filter_too_much]
)
settings.load_profile("fixed")


def pytest_report_header() -> list[str]:
    """Say where the plug-ins that are installed are not those of pyproject.toml."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    stale = [
        group
        for group, declared in project["entry-points"].items()
        if not declared.items() <= {(one.name, one.value) for one in entry_points(group=group)}
    ]
    return [f"entry points are older than pyproject.toml, install again: {stale}"] if stale else []
