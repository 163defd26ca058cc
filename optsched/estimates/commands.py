"""Which commands are alike."""

import re
from functools import lru_cache

NUMBER_OR_HASH = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # UUID
    r"|(?<![a-z])(?=[a-f]*[0-9])[0-9a-f]{7,}(?![a-z])"  # hash
    r"|[0-9]+(?:[.,:_-][0-9]+)*(?:e[+-]?[0-9]+)?"  # number, date, version
)


@lru_cache(maxsize=1 << 16)
def similar(command: str) -> str | None:
    """Return what commands have in common that differ by letter case, numbers, dates, hashes or
    UUIDs only; None where nothing else is in the command."""
    shape = " ".join(NUMBER_OR_HASH.sub("#", command.lower()).split())
    return shape if any(letter.isalpha() for letter in shape) else None
