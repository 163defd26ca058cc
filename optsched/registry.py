"""Solvers and policies, found by entry point."""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, cast

from .errors import InputError, SolverUnavailable
from .policy import Policy
from .solver import Solver, missing_modules

Group = Literal["solvers", "policies"]


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of `optsched list`: name, what it is, and why it cannot be used here, if so."""

    name: str
    title: str
    guarantee: str
    unavailable: str | None


@cache
def _entries(group: Group) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=f"optsched.{group}"), key=lambda e: e.name)}


def names(group: Group) -> tuple[str, ...]:
    """Registered names, sorted."""
    return tuple(_entries(group))


def _load(group: Group, name: str) -> Any:
    if name not in _entries(group):
        what = {"solvers": "solver", "policies": "policy"}[group]
        raise InputError(f"{what} {name!r} is unknown; choose from {', '.join(_entries(group))}")
    try:
        return _entries(group)[name].load()
    except Exception as error:
        raise SolverUnavailable(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error


def solver(name: str) -> Solver:
    """The solver of that name; a policy's name gives the solver that simulates it.

    Raises InputError for an unknown name, SolverUnavailable where a module it needs is missing.
    """
    if name in _entries("policies") and name not in _entries("solvers"):
        from .simulate.policy_solver import PolicySolver

        return PolicySolver(name)
    if name not in _entries("solvers"):
        known = ", ".join((*names("solvers"), *names("policies")))
        raise InputError(f"solver {name!r} is unknown; choose from {known}")
    found = cast(Solver, _load("solvers", name))
    missing = missing_modules(found)
    if missing:
        raise SolverUnavailable(f"{name} needs {', '.join(missing)}, which is not installed")
    return found


def policy(name: str) -> Policy:
    """A fresh policy of that name. Raises InputError for an unknown name, SolverUnavailable for a broken one."""
    return cast(Policy, _load("policies", name)())


def listed(group: Group) -> list[Listed]:
    """All entries of a group; a broken one is listed with its reason."""
    found = []
    for name in names(group):
        try:
            entry = _load(group, name)
        except SolverUnavailable as error:
            found.append(Listed(name, "", "", str(error)))
            continue
        missing = missing_modules(entry) if group == "solvers" else []
        reason = f"needs {', '.join(missing)}" if missing else None
        found.append(Listed(name, entry.title, getattr(entry, "guarantee", "none"), reason))
    return found
