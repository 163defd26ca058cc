"""Has optsched find this package as if it were installed."""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.plugins import registry

pytest_plugins = ["optsched.testing.executors"]
PACKAGE = Path(__file__).parents[1]
sys.path.insert(0, str(PACKAGE))


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    site = tmp_path_factory.mktemp("site")
    about = site / "optsched_examples-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: optsched-examples\nVersion: 0\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    sys.path.insert(0, str(site))
    registry.entries.cache_clear()
    yield
    sys.path.remove(str(site))
    registry.entries.cache_clear()
