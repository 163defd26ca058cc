"""What marks the objects of one state folder in a cluster manager, where other controllers may have
jobs of the same names."""

import secrets
from pathlib import Path

from ..errors import InputError
from .supervision import records


def tag_of(path: Path) -> str:
    """Return the tag that is kept in the file `path`, made now if there is none. Raises InputError,
    OSError."""
    records.write_first(path, {"tag": secrets.token_hex(4)})
    record = records.read(path)
    if record is None or not isinstance(record.get("tag"), str):
        raise InputError(f"{path} is damaged; put back the one it was, or name another folder")
    return str(record["tag"])
