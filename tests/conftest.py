"""Hypothesis tries the same examples in every run; `--hypothesis-profile=varied` tries others."""

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

from hypothesis import settings

pytest_plugins = ["optsched.testing.executors"]

# No deadlines: the machine may be shared with others.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("varied", deadline=None)
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
