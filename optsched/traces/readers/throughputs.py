"""Throughput tables as Gavel writes them: steps/s by GPU type, then by job type and GPU count."""

import json
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..imported import read_text

REFERENCE = "v100"


def find_table(trace: Path, given: str | Path | None, names: tuple[str, ...], whose: str) -> Path:
    """The table the user names, or the one beside the trace or one folder above. Raises InputError
    where none is."""
    if given is not None:
        return Path(given)
    for folder in (trace.parent, trace.parent / ".."):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise InputError(
        f"{trace}: no {names[0]} (or .gz) beside it or in the folder above; "
        f"name {whose}'s throughput table with --throughputs PATH"
    )


def read_table(path: Path, whose: str) -> dict[str, Any]:
    """The table as it stands in the file. Raises InputError where it is none."""
    try:
        table = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    if not isinstance(table, dict) or not isinstance(table.get(REFERENCE), dict):
        raise InputError(f"{path}: is no {whose} throughput table; it has no object {REFERENCE!r}")
    return table
