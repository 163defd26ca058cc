"""What a result depends on, as one digest: the instance, the command, and the code that answers
it."""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from .. import __version__
from ..engine import AUTO, HEURISTICS
from ..plugins import registry

OWN = ("optsched", "optsched_solvers")

AROUND = ("cli/", "study/", "picture/", "explain/", "simulate/report/")
"""Parts of the package that only show what was found..."""
READS = "study/commands.py"
"""...but for what calls the API."""


def digest(*parts: object) -> str:
    """Return twenty hexadecimal digits that stand for the parts."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def code_version(command: str = "", *, anew: bool = False) -> str:
    """Return the version of optsched, and a digest of the code that makes plans, the libraries it
    solves with, and the packages plugged in of which `command` names a solver or policy; with
    `anew` read again where it is known."""
    plugged = _plugged_in(command)
    return (_version.__wrapped__ if anew else _version)(plugged)


@cache
def _version(plugged: tuple[tuple[str, str], ...]) -> str:
    seen = hashlib.sha256()
    for package in (*OWN, *(package for package, _ in plugged)):
        for name, path in _code(package):
            if package != "optsched" or name == READS or not name.startswith(AROUND):
                seen.update(f"{package}/{name}\0".encode() + path.read_bytes())
    for library in ("ortools", "PuLP", "numpy", "networkx"):
        try:
            seen.update(f"{library} {distribution(library).version}".encode())
        except PackageNotFoundError:
            continue
    seen.update("".join(f"{package} {version}" for package, version in plugged).encode())
    return f"{__version__}+{seen.hexdigest()[:12]}"


def _plugged_in(command: str) -> tuple[tuple[str, str], ...]:
    """Return the packages other than our own, with their versions, whose entry points a command
    names or uses unasked."""
    names = {*re.split(r"[\s=,:;'\"]+", command), *HEURISTICS, *(name for name, _ in AUTO)}
    packages = {}
    for group in get_args(registry.Group):
        for name, entry in registry.entries(group).items():
            package = entry.module.partition(".")[0]
            if name in names and package not in OWN:
                packages[package] = entry.dist.version if entry.dist else ""
    return tuple(sorted(packages.items()))


def _code(package: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a package, also those that are no Python, but what Python makes of
    them."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return
    if spec is not None and spec.submodule_search_locations is None and spec.origin:
        yield package, Path(spec.origin)
    for folder in sorted(spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield path.relative_to(folder).as_posix(), path
