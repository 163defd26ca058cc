"""Faults in the shape of a file: what a validator or a JSON parser objects to, in words and with a
remedy."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from ..errors import InputError, perhaps
from .faults import Fault

MAX_FAULTS_SHOWN = 20
MAX_BYTES_FOR_DUPLICATES = 1_000_000
"""Larger files are written by programs, which write no key twice; looking would double the reading
time."""


class FaultyFileError(InputError):
    """An input file with faults; the message shows the first ones, `faults` holds all."""

    def __init__(self, name: str, faults: list[Fault]) -> None:
        self.faults = faults
        shown = "\n".join(f"  {fault}" for fault in faults[:MAX_FAULTS_SHOWN])
        more = (
            f"\n  and {len(faults) - MAX_FAULTS_SHOWN} more"
            if len(faults) > MAX_FAULTS_SHOWN
            else ""
        )
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(f"{name}: {count}\n{shown}{more}")


KINDS = {
    "optsched": "an instance",
    "optsched-plan": "a plan",
    "optsched-round": "a round",
    "optsched-bound": "a bound",
    "optsched-simulation": "the summary of a simulation",
    "optsched-packing": "a packing",
    "optsched-profile": "a profile that is kept",
    "optsched-measured": "what was measured of a job",
}
"""What the files of each format are, by its name without version."""


def other_kind(errors: Iterable[Mapping[str, Any]], wanted: str) -> str | None:
    """What a file is and what is wanted in its place, where its format is that of another kind."""
    for error in errors:
        given = error.get("input")
        if tuple(error["loc"]) == ("format",) and isinstance(given, str):
            kind, expected = given.partition("/")[0], wanted.partition("/")[0]
            if kind != expected and kind in KINDS:
                return f"is {KINDS[kind]} ({given}), wanted is {KINDS[expected]} ({wanted}); give that file"  # noqa: E501
    return None


WORDS = {
    "missing": ("is missing", "add it"),
    "unexpected_keyword_argument": ("is not a known field", "remove it or correct its name"),
    "extra_forbidden": ("is not a known field", "remove it or correct its name"),
    "value_error": ("{error}", "correct it"),
    "float_type": ("should be a number", "write a number, without quotes"),
    "finite_number": (
        "should be a finite number",
        "write an ordinary number, or leave the field out",
    ),
    "int_type": (
        "should be a whole number",
        "write a whole number, without quotes or decimal point",
    ),
    "int_parsing": ("should be a whole number", "write a whole number in the quotes"),
    "int_from_float": ("should be a whole number", "write a whole number"),
    "float_parsing": ("should be a number", "write a number, without quotes"),
    "string_type": ("should be a text", "write a text in quotes"),
    "bool_parsing": ("should be true or false", "write true or false, without quotes"),
    "bool_type": ("should be true or false", "write true or false, without quotes"),
    "tuple_type": ("should be a list", "write a list in [ ]"),
    "dict_type": ("should be an object", "write an object in { }"),
    "model_type": ("should be a table", "write its fields below a line [name]"),
    "dataclass_type": ("should be an object", "write an object in { }"),
    "dataclass_exact_type": ("should be a {class_name}", "make one"),
    "gang": (
        "should be a whole number or an object",
        'write 8, or {"min": 1, "max": 8} for an elastic job',
    ),
    "literal_error": ("should be {expected}", "write that"),
    "greater_than_equal": ("should be at least {ge:.12g}", "write a number in range"),
    "less_than_equal": ("should be at most {le:.12g}", "write a number in range"),
    "greater_than": ("should be above {gt:.12g}", "write a number in range"),
}
"""What is wrong and what would be right, by type of validation error."""


def shape_faults(
    errors: Iterable[Mapping[str, Any]], data: object, known: Iterable[str]
) -> Iterator[Fault]:
    """The faults behind a validator's errors in a JSON text, or in a noun; `known` are all field
    names, to guess at misspelt ones."""
    raw = data
    if isinstance(data, bytes | str):
        try:
            raw = json.loads(data)
        except (ValueError, RecursionError):
            raw = None
    seen = set()
    for error in errors:
        kind, loc = str(error["type"]), tuple(error["loc"])
        if kind == "json_invalid":
            yield Fault(
                "file", f"is not JSON: {_in_words(error['ctx']['error'])}", "correct it there"
            )
            continue
        if (
            len(loc) > 3 and loc[0] == "jobs" and loc[2] == "gpus"
        ):  # number or object: two sets of errors
            given = _at(raw, loc[:3])
            if isinstance(given, dict) or is_dataclass(given):
                if loc[3] != "Elastic":
                    continue
            elif loc[3] == "Elastic":
                continue
            elif not isinstance(given, int | float) or isinstance(given, bool):
                kind = "gang"
            loc = (*loc[:3], *loc[4:])
        loc = tuple(
            str(step) if isinstance(_at(raw, loc[:i]), Mapping) else step
            for i, step in enumerate(loc)
            if step != "[key]"
        )
        problem, remedy = WORDS.get(kind, (str(error["msg"]), "see `optsched schema`"))
        problem = problem.format(**error.get("ctx", {}))
        if kind in ("unexpected_keyword_argument", "extra_forbidden"):
            names = set(known)
            remedy += perhaps(str(loc[-1]), names) if loc[-1] not in names else ""
        elif kind not in ("missing", "value_error"):
            problem += f", not {_shown(error.get('input'))}"
        fault = Fault(_path(loc) or "file", _prefix(loc, raw) + problem, remedy)
        if fault not in seen:
            seen.add(fault)
            yield fault


PARSER_WORDS = {
    "EOF while parsing": "the text ends within",
    "expected value": "a value is missing or not written as JSON",
    "recursion limit exceeded": "it is nested too deeply",
    "unexpected end of hex escape": "half of a surrogate pair",
    "number out of range": "a number has too many digits",
    "trailing characters": "more text follows the end",
    "key must be a string": "a key is not in quotes",
}


def _in_words(message: str) -> str:
    for jargon, words in PARSER_WORDS.items():
        message = message.replace(jargon, words)
    return message


def _shown(value: Any) -> str:
    if isinstance(value, dict) or is_dataclass(value):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _at(raw: Any, loc: tuple[int | str, ...]) -> Any:
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


def _path(loc: tuple[int | str, ...]) -> str:
    """`jobs[3].profile.rate.v100`."""
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc
    ).removeprefix(".")


def _prefix(loc: tuple[int | str, ...], raw: Any) -> str:
    """The job a fault lies in, where it has a usable id."""
    if len(loc) < 3 or loc[0] != "jobs":
        return ""
    name = _at(raw, (*loc[:2], "id"))
    return f"job {name}: " if name and isinstance(name, str) and len(name) <= 80 else ""


class _Doubled(dict[str, Any]):
    """An object in which some key is written twice."""

    keys_twice: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        found = _Doubled(found)
        found.keys_twice = tuple(dict.fromkeys(name for name in names if names.count(name) > 1))
    return found


def duplicate_keys(data: bytes | str) -> list[Fault]:
    """Keys written twice in one object, of which JSON parsers silently keep the last."""
    if len(data) > MAX_BYTES_FOR_DUPLICATES:
        return []
    try:
        raw = json.loads(data, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return []
    return list(_doubled(raw, ()))


def _doubled(raw: Any, loc: tuple[int | str, ...]) -> Iterator[Fault]:
    if isinstance(raw, _Doubled):
        for name in raw.keys_twice:
            yield Fault(_path((*loc, name)), "is written twice", "keep one of the two")
    steps: Iterable[tuple[int | str, Any]] = ()
    if isinstance(raw, dict):
        steps = raw.items()
    elif isinstance(raw, list):
        steps = enumerate(raw)
    for step, inner in steps:
        if isinstance(inner, dict | list):
            yield from _doubled(inner, (*loc, step))
