"""Long lists in JSON files, element by element."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from ...errors import InputError
from ..imported import Track

STEP = 4096
"""Characters between two steps of the progress bar."""
BLANK = re.compile(r"[ \t\r\n]*")


def elements(source: str, text: str, track: Track = iter) -> Iterator[Any]:
    """The elements of the list in `text`, one at a time, so that only one is in memory beside the
    text.

    Raises InputError with the line where the text is no JSON list.
    """
    decoder = json.JSONDecoder()
    steps = iter(track([""] * (len(text) // STEP + 1)))
    shown = 0
    at = _next(text, 0)
    if text[at : at + 1] != "[":
        _fail(source, text, at, "expected a JSON list, which starts with '['")
    at = _next(text, at + 1)
    while text[at : at + 1] != "]":
        try:
            element, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            _fail(
                source,
                text,
                getattr(error, "pos", at),
                f"is no JSON: {getattr(error, 'msg', error)}",
            )
        yield element
        for _ in range(shown, at // STEP):
            next(steps, None)
        shown = max(shown, at // STEP)
        at = _next(text, at)
        if text[at : at + 1] == ",":
            at = _next(text, at + 1)
        elif text[at : at + 1] != "]":
            _fail(source, text, at, "expected ',' or ']' after an element of the list")
    at = _next(text, at + 1)
    if at < len(text):
        _fail(source, text, at, "expected nothing after the list")
    for _ in steps:  # a progress bar ends with its last step
        pass


def _next(text: str, at: int) -> int:
    """The next place at or after `at` that is not blank."""
    found = BLANK.match(text, at)
    return found.end() if found else at


def _fail(source: str, text: str, at: int, said: str) -> NoReturn:
    raise InputError(f"{source}: line {text.count(chr(10), 0, at) + 1}: {said}")
