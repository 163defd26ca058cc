"""Solvers and policies, found by entry point."""

import inspect
from collections.abc import Container, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, cast

from ..errors import InputError, OptschedError, SolverUnavailableError, perhaps
from ..frozen import record
from .options import DeclaredOption, PluginOptions, declaration, described, read_options
from .policy import Policy, Source, source_of
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


@record
class Listed:
    """A plug-in as `optsched list` shows it: name, what it is, what may be set, who published it,
    and why it cannot be used here, if so."""

    name: str
    title: str
    guarantee: str
    unavailable: str | None
    options: tuple[DeclaredOption, ...] = ()
    source: Source | None = None


@cache
def entries(group: Group) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, sorted."""
    return {
        entry.name: entry
        for entry in sorted(entry_points(group=f"optsched.{group}"), key=lambda e: e.name)
    }


def names(group: Group) -> tuple[str, ...]:
    """Return the registered names, sorted."""
    return tuple(entries(group))


def _load(group: Group, name: str, others: tuple[str, ...] = ()) -> Any:
    """Return a plug-in; `others` are names that would also do."""
    if name not in entries(group):
        known = (*names(group), *others)
        raise InputError(
            f"{WHAT[group]} {name!r} is unknown{perhaps(name, known)}; "
            f"choose from {', '.join(known)}"
        )
    try:
        return entries(group)[name].load()
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        raise SolverUnavailableError(
            f"{name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C is behind an error: native modules say that their import failed."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _usable(group: Group, name: str, others: tuple[str, ...] = ()) -> Any:
    """Return a plug-in whose modules are installed."""
    plug_in = _load(group, name, others)
    if missing := missing_modules(plug_in):
        raise SolverUnavailableError(f"{name} needs {', '.join(missing)}, which is not installed")
    return plug_in


def solver(name: str) -> Solver:
    """Return the solver of that name; a policy's name gives the solver that simulates it.

    Raises InputError for an unknown name, SolverUnavailableError where a module it needs is
    missing.
    """
    if name in entries("policies") and name not in entries("solvers"):
        from ..simulate.policy_solver import PolicySolver

        return PolicySolver(name)
    return cast(Solver, _usable("solvers", name, ("auto", *names("policies"))))


def round_solver(name: str) -> "RoundSolver":
    """Return the round solver of that name. Raises as `solver` does."""
    return cast("RoundSolver", _usable("rounds", name))


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


def listed(group: Group) -> list[Listed]:
    """Return all entries of a group; a broken one is listed with its reason."""
    return [_listed(group, name) for name in names(group)]


def _listed(group: Group, name: str) -> Listed:
    try:
        plug_in = _load(group, name)
    except SolverUnavailableError as error:
        return Listed(name, "", "", str(error))
    missing = missing_modules(plug_in) if hasattr(plug_in, "needs") else []
    first_line = (plug_in.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    return Listed(
        name,
        getattr(plug_in, "title", None) or first_line,
        getattr(plug_in, "guarantee", "none"),
        f"needs {', '.join(missing)}" if missing else None,
        described(declaration(plug_in)),
        source_of(plug_in, name) if group == "policies" else None,
    )
