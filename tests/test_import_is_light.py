"""Importing loads no heavy library: each is imported inside the function that needs it."""

import importlib.util
import json
import subprocess
import sys

import pytest

HEAVY = (
    "ortools",
    "pulp",
    "pandas",
    "matplotlib",
    "plotly",
    "networkx",
    "numba",
    "polars",
    "highspy",
    "rich.progress",
)
NOUNS_ONLY = (*HEAVY, "pydantic", "numpy", "click", "rich")


def loaded_by(module: str) -> set[str]:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("optsched", (*NOUNS_ONLY, "optsched.api", "optsched.engine", "optsched.files")),
        ("optsched.api", NOUNS_ONLY),
        ("optsched.verify", NOUNS_ONLY),
        ("optsched.files", NOUNS_ONLY),
        ("optsched.plugins.registry", NOUNS_ONLY),
        ("optsched.engine", HEAVY),
        ("optsched.cli", HEAVY),
    ],
)
def test_import_loads_nothing_heavy(module: str, forbidden: tuple[str, ...]) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} does not exist")
    assert sorted(loaded_by(module) & set(forbidden)) == []
