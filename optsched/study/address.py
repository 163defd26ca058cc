"""What a result depends on, as one digest: the instance, the command, and the code that answers it."""

import hashlib
import json
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from .. import __version__

AROUND = ("cli/", "study/", "picture/", "explain/", "simulate/report/")
"""Parts of the package that only show what was found."""


def digest(*parts: object) -> str:
    """Twenty hexadecimal digits that stand for the parts."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@cache
def code_version() -> str:
    """The version of optsched, and a digest of the code that makes plans, its plug-ins and the libraries they solve
    with."""
    seen = hashlib.sha256()
    for package in ("optsched", "optsched_solvers"):
        found = find_spec(package)
        for folder in sorted(found.submodule_search_locations or ()) if found else ():
            for path in sorted(Path(folder).rglob("*.py")):
                name = path.relative_to(folder).as_posix()
                if package != "optsched" or not name.startswith(AROUND):
                    seen.update(f"{package}/{name}\0".encode() + path.read_bytes())
    for library in ("ortools", "PuLP", "numpy", "networkx"):
        try:
            seen.update(f"{library} {distribution(library).version}".encode())
        except PackageNotFoundError:
            continue
    return f"{__version__}+{seen.hexdigest()[:12]}"
