"""Profiles of jobs that nobody has measured, from those of jobs like them."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

from ..estimates.commands import similar
from ..model import Profile, Sharing
from .likeness import program
from .store import Stored

TAKEN: dict[str, Callable[[list[Any]], Any]] = {
    **dict.fromkeys(
        ("checkpoint_s", "restore_s", "startup_s", "model_gib", "fetch_s"), statistics.median
    ),
    **dict.fromkeys(("gpu_memory_gib", "memory_gib_per_gpu"), max),
}
"""A job that gets too little memory dies; one that gets too much waits."""
TAKEN_WHOLE = ("cpus_per_gpu", "sharing")
"""Of the profile most like it, the latest changed of several: tables are not averaged."""


def estimate(user: str | None, command: str | None, stored: Iterable[Stored]) -> Profile:
    """Return the profile of a job of which nothing is known but who runs what.

    Each field by itself is taken from the profiles most like the job in which it is known: those of
    the same user and command; then a similar command (other numbers, dates, hashes); then the same
    program; the same three of any user; then all of the user; then all. Times are their median,
    memory their maximum. Fields that are known of none stay at their default. Rates are not
    estimated: they would be claims on GPU types and counts that may never have run it.
    """
    profiles = sorted(stored, key=lambda kept: kept.name)
    changed: dict[str, Any] = {}
    for name in (*TAKEN, *TAKEN_WHOLE):
        for is_like in _groups(user, command):
            alike = [kept for kept in profiles if is_like(kept) and _known(kept, name)]
            if alike:
                if name == "checkpoint_s" and _latest(alike).profile.checkpoint_every_s is not None:
                    name = "checkpoint_every_s"  # jobs like it do not save when asked
                changed[name] = _taken(name, alike)
                break
    return replace(Profile(), **changed)


def _groups(user: str | None, command: str | None) -> Iterator[Callable[[Stored], bool]]:
    """Yield what may be alike, from the most to the least."""
    keys: tuple[Callable[[str], str | None], ...] = (str, similar, program)

    def runs(
        key: Callable[[str], str | None], wanted: str, whose: str | None
    ) -> Callable[[Stored], bool]:
        return lambda kept: (
            whose in (None, kept.user) and kept.command is not None and key(kept.command) == wanted
        )

    for whose in dict.fromkeys((user, None)):
        for key in keys:
            if command is not None and (wanted := key(command)) is not None:
                yield runs(key, wanted, whose)
    if user is not None:
        yield lambda kept: kept.user == user
    yield lambda kept: True


def _known(kept: Stored, name: str) -> bool:
    """Tell whether a field was measured or set: 0 by hand is an answer, 0 by default is none."""
    value = getattr(kept.profile, name)
    if name == "checkpoint_s" and kept.profile.checkpoint_every_s is not None:
        return True
    if name == "sharing":
        return value is not None and value.duty is not None
    return name in kept.by_hand or bool(value != _DEFAULTS[name])


def _taken(name: str, alike: list[Stored]) -> Any:
    """Return the value of a field that several profiles make."""
    if name in TAKEN:
        return TAKEN[name]([getattr(kept.profile, name) for kept in alike])
    value = getattr(_latest(alike).profile, name)
    return Sharing(duty=value.duty) if name == "sharing" else value


def _latest(alike: list[Stored]) -> Stored:
    return max(alike, key=lambda kept: (kept.versions[-1].at, kept.name))


_DEFAULTS = {field.name: getattr(Profile(), field.name) for field in fields(Profile)}
