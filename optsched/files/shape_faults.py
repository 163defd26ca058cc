"""Faults in the shape of a file: what a validator or a JSON parser objects to, in words and with a
remedy."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from importlib.resources import files
from typing import Any

from ..errors import InputError, perhaps
from .faults import Fault

MAX_FAULTS_SHOWN = 20
MOST_OF_A_NAME, MOST_OF_A_VALUE = 64, 40
"""Of longer ones only the beginning is shown."""
Steps = tuple[int | str, ...]
"""The way to a value in a file: names and numbers."""
MAX_BYTES_FOR_DUPLICATES = 1_000_000
"""Larger files are written by programs, which write no key twice; looking would double the reading
time."""


class FaultyFileError(InputError):
    """An input file with faults; the message shows the first ones, `faults` holds all."""

    def __init__(self, name: str, faults: list[Fault]) -> None:
        self.faults = faults
        shown = [f"  {fault}" for fault in faults[:MAX_FAULTS_SHOWN]]
        if len(faults) > MAX_FAULTS_SHOWN:
            shown.append(f"  and {len(faults) - MAX_FAULTS_SHOWN} more")
        count = f"{len(faults)} fault{'s' * (len(faults) != 1)}"
        super().__init__("\n".join([f"{name}: {count}", *shown]))


WORDS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("words.toml").read_text("utf-8"))
"""Words for people, by what they are about."""


def other_kind(errors: Iterable[Mapping[str, Any]], wanted: str) -> str | None:
    """Return what a file is and what is wanted in its place, where its format is that of another
    kind."""
    kinds = WORDS["kinds"]
    for error in errors:
        given = error.get("input")
        if tuple(error["loc"]) == ("format",) and isinstance(given, str):
            kind, expected = given.partition("/")[0], wanted.partition("/")[0]
            if kind != expected and kind in kinds:
                return f"is {kinds[kind]} ({given}), expected {kinds[expected]} ({wanted}); give that file"  # noqa: E501
    return None


def shape_faults(
    errors: Iterable[Mapping[str, Any]], data: object, known: Iterable[str]
) -> Iterator[Fault]:
    """Yield the faults behind a validator's errors in a JSON text, or in a noun; `known` are all
    field names, to guess at misspelt ones."""
    raw = data
    if isinstance(data, bytes | str):
        try:
            raw = json.loads(data)
        except (ValueError, RecursionError):
            raw = None
    seen, errors = set(), [*errors]
    for error in errors:
        kind, loc = str(error["type"]), tuple(error["loc"])
        if is_short_of_faulty(error, errors):
            continue
        if kind == "json_invalid":
            yield Fault(
                "file", f"is not JSON: {_in_words(error['ctx']['error'])}", "correct it there"
            )
            continue
        if len(loc) > 3 and loc[0] == "jobs" and loc[2] == "gpus":
            meant = of_gpus(kind, loc, 2, value_at(raw, loc[:3]))
            if meant is None:
                continue
            kind, loc = meant
        loc = tuple(
            str(step) if isinstance(value_at(raw, loc[:i]), Mapping) else step
            for i, step in enumerate(loc)
            if step != "[key]"
        )
        problem, remedy = WORDS["faults"].get(kind, (str(error["msg"]), "see `optsched schema`"))
        problem = problem.format(**error.get("ctx", {}))
        if kind in ("unexpected_keyword_argument", "extra_forbidden"):
            names, name = set(known), str(loc[-1])
            remedy += perhaps(name[:MOST_OF_A_NAME], names) if name not in names else ""
        elif kind not in ("missing", "value_error", "too_short", "too_long", "string_too_short"):
            problem += f", not {_shown(error.get('input'))}"
        fault = Fault(_path(loc) or "file", _prefix(loc, raw) + problem, remedy)
        if fault not in seen:
            seen.add(fault)
            yield fault


def is_short_of_faulty(error: Mapping[str, Any], errors: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a list is said to be too short that has entries, but faulty ones."""
    loc = error["loc"]
    return error["type"] == "too_short" and any(
        len(other["loc"]) > len(loc) and other["loc"][: len(loc)] == loc for other in errors
    )


def of_gpus(kind: str, loc: Steps, at: int, given: Any) -> tuple[str, Steps] | None:
    """Return an error about a number of GPUs, at step `at`, as one about the number or the object
    that was given there; None for one about the other of these two."""
    is_object = isinstance(given, dict) or is_dataclass(given)
    if is_object != (loc[at + 1] == "Elastic"):
        return None
    if not is_object and (isinstance(given, bool) or not isinstance(given, int | float)):
        kind = "gang"
    return kind, (*loc[: at + 1], *loc[at + 2 :])


def _in_words(message: str) -> str:
    for jargon, words in WORDS["parser"].items():
        message = message.replace(jargon, words)
    return message


def _shown(value: Any) -> str:
    if isinstance(value, dict) or is_dataclass(value):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return _cut(json.dumps(value, default=str), MOST_OF_A_VALUE)


def value_at(raw: Any, loc: Steps) -> Any:
    """Return the value at a place in a file; None where there is none."""
    for step in loc:
        if isinstance(raw, dict):
            raw = raw.get(step)
        elif isinstance(raw, list | tuple) and isinstance(step, int) and step < len(raw):
            raw = raw[step]
        elif is_dataclass(raw) and isinstance(step, str):
            raw = getattr(raw, step, None)
        else:
            return None
    return raw


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _path(loc: Steps) -> str:
    """Return `jobs[3].profile.rate.v100`."""
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{_cut(step, MOST_OF_A_NAME)}" for step in loc
    ).removeprefix(".")


def _prefix(loc: Steps, raw: Any) -> str:
    """Return the job a fault lies in, where it has a usable id."""
    if len(loc) < 3 or loc[0] != "jobs":
        return ""
    name = value_at(raw, (*loc[:2], "id"))
    return f"job {name}: " if name and isinstance(name, str) and len(name) <= 80 else ""


class _Doubled(dict[str, Any]):
    """An object in which some key is written twice."""

    keys_twice: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        times = Counter(name for name, _ in pairs)
        members = _Doubled(members)
        members.keys_twice = tuple(name for name, count in times.items() if count > 1)
    return members


def duplicate_keys(data: bytes | str) -> list[Fault]:
    """Return keys written twice in one object, of which JSON parsers silently keep the last."""
    if len(data) > MAX_BYTES_FOR_DUPLICATES:
        return []
    try:
        raw = json.loads(data, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return []
    return list(_doubled(raw, ())) if isinstance(raw, dict | list) else []


def _doubled(raw: Any, loc: Steps) -> Iterator[Fault]:
    if isinstance(raw, _Doubled):
        for name in raw.keys_twice:
            yield Fault(_path((*loc, name)), "is written twice", "keep one of the two")
    inside = raw.items() if isinstance(raw, dict) else enumerate(raw)
    for step, inner in inside:
        if isinstance(inner, dict | list):
            yield from _doubled(inner, (*loc, step))
