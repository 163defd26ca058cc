"""Profiles of jobs that nobody has measured, from those of jobs like them."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..estimates.commands import similar
from ..model.profile import Profile, Sharing
from .likeness import program
from .store import Stored

TAKEN_BY_MEDIAN = ("checkpoint_s", "restore_s", "startup_s", "model_gib", "fetch_s")
TAKEN_BY_MAXIMUM = ("gpu_memory_gib", "memory_gib_per_gpu")
"""A job that gets too little memory dies; one that gets too much waits."""
TAKEN_WHOLE = ("cpus_per_gpu", "sharing")
"""Of the profile most like it, the latest changed of several: tables are not averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A profile that was not measured, and for each of its fields, in words, what the value was
    taken from."""

    profile: Profile
    taken_from: dict[str, str] = field(default_factory=dict)


def estimate(user: str | None, command: str | None, stored: Iterable[Stored]) -> Estimate:
    """The profile of a job of which nothing is known but who runs what.

    Each field by itself is taken from the profiles most like the job in which it is known: those of
    the same user and command; then a similar command (other numbers, dates, hashes); then the same
    program; the same three of any user; then all of the user; then all. Times are their median,
    memory their maximum. Fields that are known of none stay at their default and are not in
    `taken_from`. Rates are not estimated: they would be claims on GPU types and counts that may
    never have run it.
    """
    profiles = sorted(stored, key=lambda one: one.name)
    changed: dict[str, Any] = {}
    taken_from: dict[str, str] = {}
    for name in (*TAKEN_BY_MEDIAN, *TAKEN_BY_MAXIMUM, *TAKEN_WHOLE):
        for words, is_like in _groups(user, command):
            found = [one for one in profiles if is_like(one) and _known(one, name)]
            if found:
                if name == "checkpoint_s" and _latest(found).profile.checkpoint_every_s is not None:
                    name = "checkpoint_every_s"  # jobs like it do not save when asked
                changed[name], how = _taken(name, found)
                taken_from[name] = f"{how}{words}"
                break
    return Estimate(profile=replace(Profile(), **changed), taken_from=taken_from)


def _groups(
    user: str | None, command: str | None
) -> Iterator[tuple[str, Callable[[Stored], bool]]]:
    """What may be alike, from the most to the least, in words that follow 'of'."""
    ways: list[tuple[str, Callable[[str], str | None]]] = [
        ("the same command", lambda text: text),
        ("a similar command", similar),
        ("the same program", program),
    ]
    for whose in (user, None) if user is not None else (None,):
        for words, key in ways:
            wanted = None if command is None else key(command)
            if wanted is None:
                continue

            def is_like(
                one: Stored,
                whose: str | None = whose,
                wanted: str = wanted,
                key: Callable[[str], str | None] = key,
            ) -> bool:
                return (
                    (whose is None or one.user == whose)
                    and one.command is not None
                    and key(one.command) == wanted
                )

            yield (
                (f"{words} of user {whose}" if whose is not None else f"{words} of any user"),
                is_like,
            )
    if user is not None:
        yield f"user {user}", lambda one: one.user == user
    yield "all jobs", lambda one: True


def _known(one: Stored, name: str) -> bool:
    """Whether a field was measured or set: 0 by hand is an answer, 0 by default is none."""
    value = getattr(one.profile, name)
    if name == "checkpoint_s" and one.profile.checkpoint_every_s is not None:
        return True
    if name == "sharing":
        return value is not None and value.duty is not None
    return name in one.by_hand or bool(value != _DEFAULTS[name])


def _taken(name: str, found: list[Stored]) -> tuple[Any, str]:
    """The value, and how it came about, in words that end in 'of'."""
    count = f"{len(found)} profiles" if len(found) > 1 else f"profile {found[0].name}"
    if name in (*TAKEN_WHOLE, "checkpoint_every_s"):
        latest = _latest(found)
        value = getattr(latest.profile, name)
        return (
            Sharing(duty=value.duty) if name == "sharing" else value
        ), f"profile {latest.name} of "
    values = [getattr(one.profile, name) for one in found]
    if name in TAKEN_BY_MAXIMUM:
        return max(values), f"maximum of {count} of " if len(found) > 1 else f"{count} of "
    return statistics.median(values), f"median of {count} of " if len(found) > 1 else f"{count} of "


def _latest(found: list[Stored]) -> Stored:
    return max(found, key=lambda one: (one.versions[-1].at, one.name))


_DEFAULTS = {field.name: getattr(Profile(), field.name) for field in fields(Profile)}
