"""Solvers and policies, found by entry point."""

import inspect
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, cast

from ..errors import InputError, OptschedError, SolverUnavailableError, perhaps
from .options import DeclaredOption, PluginOptions, declaration, described, read_options
from .policy import Policy, Source
from .solver import Solver, missing_modules

if TYPE_CHECKING:
    from ..objectives import Objective
    from ..round.solver import RoundSolver
    from ..traces.imported import Format

Group = Literal["solvers", "policies", "rounds", "executors", "importers"]
WHAT: dict[Group, str] = {
    "solvers": "solver",
    "policies": "policy",
    "rounds": "round solver",
    "executors": "executor",
    "importers": "format",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """What `optsched list` says of a plug-in: name, what it is, what may be set, who published it,
    and why it cannot be used here, if so."""

    name: str
    title: str
    guarantee: str
    unavailable: str | None
    options: tuple[DeclaredOption, ...] = ()
    source: Source | None = None


@cache
def entries(group: Group) -> dict[str, EntryPoint]:
    """The entry points of a group by name, sorted."""
    return {
        entry.name: entry
        for entry in sorted(entry_points(group=f"optsched.{group}"), key=lambda e: e.name)
    }


def names(group: Group) -> tuple[str, ...]:
    """Registered names, sorted."""
    return tuple(entries(group))


def _load(group: Group, name: str) -> Any:
    if name not in entries(group):
        known = entries(group)
        meant = perhaps(name, known)
        raise InputError(
            f"{WHAT[group]} {name!r} is unknown{meant}; choose from {', '.join(known)}"
        )
    try:
        return entries(group)[name].load()
    except Exception as error:
        raise SolverUnavailableError(
            f"{name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def solver(name: str) -> Solver:
    """The solver of that name; a policy's name gives the solver that simulates it.

    Raises InputError for an unknown name, SolverUnavailableError where a module it needs is
    missing.
    """
    if name in entries("policies") and name not in entries("solvers"):
        from ..simulate.policy_solver import PolicySolver

        return PolicySolver(name)
    if name not in entries("solvers"):
        known = (*names("solvers"), *names("policies"))
        raise InputError(
            f"solver {name!r} is unknown{perhaps(name, known)}; choose from {', '.join(known)}"
        )
    found = cast(Solver, _load("solvers", name))
    missing = missing_modules(found)
    if missing:
        raise SolverUnavailableError(f"{name} needs {', '.join(missing)}, which is not installed")
    return found


def round_solver(name: str) -> "RoundSolver":
    """The round solver of that name. Raises InputError for an unknown name, SolverUnavailableError
    where a module it needs is missing."""
    found = cast("RoundSolver", _load("rounds", name))
    missing = missing_modules(found)
    if missing:
        raise SolverUnavailableError(f"{name} needs {', '.join(missing)}, which is not installed")
    return found


def executor(name: str) -> Any:
    """Return what opens the executor of that name. Raises InputError for an unknown name,
    SolverUnavailableError for one that cannot be loaded."""
    return _load("executors", name)


def importer(name: str) -> "Format":
    """Return the importer of that trace format. Raises as `executor` does."""
    return cast("Format", _load("importers", name))


def policy(
    name: str,
    objective: "Objective | None" = None,
    options: Mapping[str, object] | PluginOptions | None = None,
) -> Policy:
    """Return a fresh policy of that name.

    One whose constructor has a parameter `objective` is given the objective, one that declares
    `Options` the options (`--option key=value`, or as they have been read). Raises InputError for
    an unknown name and for options that the policy does not take, SolverUnavailableError for a
    broken one.
    """
    made = _load("policies", name)
    declared = declaration(made)
    if not isinstance(options, PluginOptions):
        options = read_options(f"policy {name}", declared, options)
    given: dict[str, Any] = {}
    if declared is not PluginOptions:
        given["options"] = options
    if objective is not None and "objective" in _parameters(made):
        given["objective"] = objective
    try:
        return cast(Policy, made(**given))
    except OptschedError:
        raise
    except Exception as error:
        raise SolverUnavailableError(
            f"{name} cannot be made: {type(error).__name__}: {error}"
        ) from error


def options_of(group: Group, name: str) -> type[PluginOptions]:
    """Return what a plug-in declares. Raises InputError for an unknown name,
    SolverUnavailableError for one that cannot be loaded."""
    return declaration(_load(group, name))


def _parameters(made: Any) -> Container[str]:
    try:
        return inspect.signature(made).parameters
    except (TypeError, ValueError):  # not every callable says what it takes
        return ()


def _first_line(plug_in: Any) -> str:
    return (plug_in.__doc__ or "").strip().partition("\n")[0].rstrip(".")


def listed(group: Group) -> list[Listed]:
    """All entries of a group; a broken one is listed with its reason."""
    found = []
    for name in names(group):
        try:
            entry = _load(group, name)
        except SolverUnavailableError as error:
            found.append(Listed(name, "", "", str(error)))
            continue
        missing = missing_modules(entry) if hasattr(entry, "needs") else []
        reason = f"needs {', '.join(missing)}" if missing else None
        found.append(
            Listed(
                name,
                getattr(entry, "title", None) or _first_line(entry),
                getattr(entry, "guarantee", "none"),
                reason,
                described(declaration(entry)),
                getattr(entry, "source", None),
            )
        )
    return found
