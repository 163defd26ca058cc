"""The order of the house: a room imports from those above it, never from those below."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from optsched.plugins import registry

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "optsched"

ORDER = (
    ("errors", "native_output", "duration", "frozen", "noun"),
    ("model",),
    ("hostlist", "physics"),
    ("objectives",),
    ("verify",),
    ("files",),
    ("verify_bound", "bounds", "plugins"),
    ("picture",),
    ("estimates", "traces"),
    ("driver",),
    ("simulate",),
    ("forecast",),
    ("engine", "round", "packing"),
    ("explain",),
    ("executors",),
    ("profiling",),
    ("control",),
    ("kueue",),
    ("api",),
    ("study",),
    ("demo", "testing", "training"),
    ("cli",),
    ("__main__",),
)
"""Modules and rooms of `optsched`, those that depend on least first; those of one line do not
import each other."""

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("plugins", "simulate"): "a policy named as a solver is wrapped by the simulation of it"
}
"""Imports against the order, each with its reason; a line goes when its import does."""

Import = tuple[str, str]


def module_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def names_imported(path: Path) -> tuple[tuple[str, ...], ...]:
    """Return every module that a file imports when it runs, wherever the import stands in it."""
    return tuple(_names_imported(path))


def _names_imported(path: Path) -> Iterator[tuple[str, ...]]:
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    package = module_of(path) if path.name == "__init__.py" else module_of(path)[:-1]
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = (*base, *(node.module.split(".") if node.module else ()))
            yield from ((*target, alias.name) for alias in node.names)


def imports_between_rooms() -> dict[Import, list[str]]:
    """The files behind every import of one room by another."""
    between: dict[Import, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if path == PACKAGE / "__init__.py":
            continue  # the door to all rooms, loaded lazily
        room = module_of(path)[1]
        for target in names_imported(path):
            if (
                target[0] == "optsched"
                and len(target) > 1
                and target[1] not in (room, "__version__")
            ):
                between[room, target[1]].append(str(path.relative_to(REPOSITORY)))
    return between


def test_every_room_has_its_place() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    listed = [room for line in ORDER for room in line]
    assert sorted(listed) == sorted(rooms - {"__init__", "__pycache__", "py"})


def test_imports_go_one_way() -> None:
    rank = {room: i for i, line in enumerate(ORDER) for room in line}
    against = {
        pair: files
        for pair, files in imports_between_rooms().items()
        if rank[pair[1]] >= rank[pair[0]]
    }
    unknown = {pair: files for pair, files in against.items() if pair not in EXCEPTIONS}
    assert unknown == {}, "against the order of the house; see CONTRIBUTING.md"
    assert sorted(EXCEPTIONS) == sorted(against), "an exception that is not needed any more"


def test_the_engine_finds_solvers_and_never_imports_them() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert all(target[0] != "optsched_solvers" for target in names_imported(path)), path
    assert "cpsat" in registry.names("solvers")


def test_every_room_is_described() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    rooms = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    assert [room for room in rooms if f"`{room}/`" not in page] == []


BLAS = {"dot", "vdot", "inner", "matmul", "tensordot", "linalg"}
LEARNS_OR_REPORTS = {
    "optsched/study/report/statistics.py",
    "solvers/optsched_solvers/policies/gavel/max_min_lp.py",
    "solvers/optsched_solvers/policies/marl_partition.py",
    "solvers/optsched_solvers/policies/netaware.py",
    "solvers/optsched_solvers/policies/pollux/agent.py",
    "solvers/optsched_solvers/policies/rltune/scorer.py",
}
"""What solves systems of equations, trains, or only draws intervals."""


def test_what_decides_leaves_sums_of_products_to_numpy_not_to_blas() -> None:
    """BLAS adds in an order that depends on the processor, so that prices, and with them plans,
    would differ from machine to machine."""
    found = set()
    for folder in (PACKAGE, REPOSITORY / "solvers"):
        for path in folder.rglob("*.py"):
            text = path.read_text()
            may_have_any = any(word in text for word in (*BLAS, " @ "))
            for node in ast.walk(ast.parse(text if may_have_any else "")):
                product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
                if product or (isinstance(node, ast.Attribute) and node.attr in BLAS):
                    found.add(str(path.relative_to(REPOSITORY)))
    assert found == LEARNS_OR_REPORTS, "write np.sum(a * b)"
