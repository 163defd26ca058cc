"""Profiles of jobs that nobody has measured, from those of jobs like them."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, fields, replace
from typing import Any

from ..estimates.commands import similar
from ..frozen import frozen
from ..model.profile import Profile, Sharing
from .likeness import program
from .store import Stored

TAKEN: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {
    **dict.fromkeys(
        ("checkpoint_s", "restore_s", "startup_s", "model_gib", "fetch_s"),
        ("median", statistics.median),
    ),
    **dict.fromkeys(("gpu_memory_gib", "memory_gib_per_gpu"), ("maximum", max)),
}
"""A job that gets too little memory dies; one that gets too much waits."""
TAKEN_WHOLE = ("cpus_per_gpu", "sharing")
"""Of the profile most like it, the latest changed of several: tables are not averaged."""


@frozen
class Estimate:
    """A profile that was not measured, and for each of its fields, in words, what the value was
    taken from."""

    profile: Profile
    taken_from: dict[str, str] = field(default_factory=dict)


def estimate(user: str | None, command: str | None, stored: Iterable[Stored]) -> Estimate:
    """Return the profile of a job of which nothing is known but who runs what.

    Each field by itself is taken from the profiles most like the job in which it is known: those of
    the same user and command; then a similar command (other numbers, dates, hashes); then the same
    program; the same three of any user; then all of the user; then all. Times are their median,
    memory their maximum. Fields that are known of none stay at their default and are not in
    `taken_from`. Rates are not estimated: they would be claims on GPU types and counts that may
    never have run it.
    """
    profiles = sorted(stored, key=lambda kept: kept.name)
    changed: dict[str, Any] = {}
    taken_from: dict[str, str] = {}
    for name in (*TAKEN, *TAKEN_WHOLE):
        for words, is_like in _groups(user, command):
            alike = [kept for kept in profiles if is_like(kept) and _known(kept, name)]
            if alike:
                if name == "checkpoint_s" and _latest(alike).profile.checkpoint_every_s is not None:
                    name = "checkpoint_every_s"  # jobs like it do not save when asked
                changed[name], how = _taken(name, alike)
                taken_from[name] = f"{how}{words}"
                break
    return Estimate(profile=replace(Profile(), **changed), taken_from=taken_from)


def _groups(
    user: str | None, command: str | None
) -> Iterator[tuple[str, Callable[[Stored], bool]]]:
    """Yield what may be alike, from the most to the least, in words that follow 'of'."""
    keys: list[tuple[str, Callable[[str], str | None]]] = [
        ("the same command", str),
        ("a similar command", similar),
        ("the same program", program),
    ]

    def runs(
        key: Callable[[str], str | None], wanted: str, whose: str | None
    ) -> Callable[[Stored], bool]:
        return lambda kept: (
            whose in (None, kept.user) and kept.command is not None and key(kept.command) == wanted
        )

    for whose in dict.fromkeys((user, None)):
        for words, key in keys:
            if command is not None and (wanted := key(command)) is not None:
                by = "any user" if whose is None else f"user {whose}"
                yield f"{words} of {by}", runs(key, wanted, whose)
    if user is not None:
        yield f"user {user}", lambda kept: kept.user == user
    yield "all jobs", lambda kept: True


def _known(kept: Stored, name: str) -> bool:
    """Tell whether a field was measured or set: 0 by hand is an answer, 0 by default is none."""
    value = getattr(kept.profile, name)
    if name == "checkpoint_s" and kept.profile.checkpoint_every_s is not None:
        return True
    if name == "sharing":
        return value is not None and value.duty is not None
    return name in kept.by_hand or bool(value != _DEFAULTS[name])


def _taken(name: str, alike: list[Stored]) -> tuple[Any, str]:
    """Return the value, and how it came about, in words that end in 'of'."""
    if name not in TAKEN or len(alike) == 1:
        latest = _latest(alike)
        value = getattr(latest.profile, name)
        value = Sharing(duty=value.duty) if name == "sharing" else value
        return value, f"profile {latest.name} of "
    word, merged = TAKEN[name]
    values = [getattr(kept.profile, name) for kept in alike]
    return merged(values), f"{word} of {len(alike)} profiles of "


def _latest(alike: list[Stored]) -> Stored:
    return max(alike, key=lambda kept: (kept.versions[-1].at, kept.name))


_DEFAULTS = {field.name: getattr(Profile(), field.name) for field in fields(Profile)}
