"""`pip install optsched` alone does all that the README's first page shows: what it needs is a base
dependency."""

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BESIDE = {
    "gang",
    "cgroups",
    "command",
    "memory",
    "output",
    "processes",
    "records",
    "supervising",
    "supervisor",
    "training",
}
"""Modules of programs that run where optsched is not installed: they lie beside each other."""
EXTRA = {
    "sklearn": "learn",
    "threadpoolctl": "learn",
    "ray": "ray",
    "pytest": "testing",
    "distributed": "dask",
    "kubernetes": "kubernetes",
    "urllib3": "kubernetes",
}
"""What the base install leaves out, by the extra that brings it."""
BROUGHT = {"pydantic_core": "pydantic"}
"""Packages that a dependency always brings, in the version that fits it."""
OPTIONAL = {
    "learn": {"optsched/estimates/learned.py", "solvers/optsched_solvers/policies/netaware.py"},
    "ray": {"optsched/study/clusters.py"},
    "dask": {"optsched/study/clusters.py"},
    "testing": {"optsched/testing/executors.py"},
    "kubernetes": {"optsched/executors/kubernetes/api.py"},
}
"""The only files that may import what an extra brings."""


@cache
def imports() -> list[tuple[str, str]]:
    """(file, package) of every import of what is neither Python's nor our own."""
    own = {*sys.stdlib_module_names, "optsched", "optsched_solvers", *BESIDE}
    found = set()
    for root in ("optsched", "solvers"):
        for path in sorted((ROOT / root).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                names: list[str | None] = []
                if isinstance(node, ast.Import):
                    names = [one.name for one in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module]
                for name in names:
                    package = (name or "").partition(".")[0]
                    if package not in own:
                        found.add((path.relative_to(ROOT).as_posix(), package))
    return sorted(found)


@cache
def distributions_of() -> Mapping[str, list[str]]:
    return packages_distributions()


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", one)[0].lower().replace("_", "-") for one in requirements}


@pytest.mark.parametrize("package", sorted({package for _, package in imports()}))
def test_what_is_imported_is_a_base_dependency_or_of_an_extra(package: str) -> None:
    files = {path for path, own in imports() if own == package}
    if package in EXTRA:
        assert EXTRA[package] in PROJECT["optional-dependencies"]
        assert files <= OPTIONAL[EXTRA[package]]
        return
    distributions = {
        one.lower().replace("_", "-")
        for one in distributions_of().get(BROUGHT.get(package, package), [package])
    }
    assert distributions & names(PROJECT["dependencies"]), f"{files} import {package}"


def test_the_readme_asks_for_no_extra_but_where_it_says_so() -> None:
    """The only line that installs an extra is that for who works on optsched itself."""
    found = re.findall(r"optsched\[\w+\]|\.\[[\w,]+\]", (ROOT / "README.md").read_text())
    assert found == [".[all,dev]"]
