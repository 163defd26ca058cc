"""Executors, found by entry point."""

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from ..errors import InputError, perhaps
from .base import Executor

if TYPE_CHECKING:
    from ..control.settings import Settings


def executor_names() -> tuple[str, ...]:
    """Registered names, sorted."""
    return tuple(sorted(entry.name for entry in entry_points(group="optsched.executors")))


def executor_titles() -> dict[str, str]:
    """What each is, in a line: the first of its opener's docstring; or why it cannot be loaded."""
    found = {}
    for entry in sorted(entry_points(group="optsched.executors"), key=lambda entry: entry.name):
        try:
            found[entry.name] = (entry.load().__doc__ or "").strip().partition("\n")[0].rstrip(".")
        except Exception as error:
            found[entry.name] = f"cannot be loaded: {type(error).__name__}: {error}"
    return found


def open_executor(settings: "Settings") -> Executor:
    """The executor that `settings` names. Raises InputError where it is unknown or cannot serve
    these settings."""
    check_executor(settings.executor)
    [entry] = entry_points(group="optsched.executors", name=settings.executor)
    opened: Executor = entry.load()(settings)
    return opened


def check_executor(name: str) -> None:
    """Raises InputError for an unknown name."""
    if name not in executor_names():
        known = executor_names()
        raise InputError(
            f"executor {name!r} is unknown{perhaps(name, known)}; choose from {', '.join(known)}"
        )
