"""Small JSON files that are there whole or not at all. Some are written by root into folders of
other users, who may have put links there.

The shim imports this file by itself, without the package: standard library only, and little of it.
"""

import errno
import fcntl
import json
import os
import stat
import time
from contextlib import suppress

TYPE_CHECKING = False  # importing `typing` would cost each shim milliseconds
if TYPE_CHECKING:
    from typing import Any

    Where = str | os.PathLike[str]

RESERVE_BYTES = 4096
"""Written beforehand for each record that must be writable when the disk is full; a record is
padded to it."""
LOCK_PATIENCE_S = 0.5
LARGEST_BYTES = 1 << 20
"""A record that is longer is none: jobs write records too."""


def write(path: "Where", record: "dict[str, Any]", durable: bool = True) -> None:
    """Put `record` at `path` at once, in place of what was there; `durable` survives a power
    failure.

    Raises OSError, also for a record so long that it could not be read; then nothing has changed.
    """
    text = _text(path, record)
    made = _beside(path)
    try:
        _fill(made, text, durable)
        os.rename(made, path)
    except OSError:
        _remove(made)
        raise
    if durable:
        sync_folder(os.path.dirname(path))


def write_first(path: "Where", record: "dict[str, Any]") -> bool:
    """Put `record` at `path` unless something is there; False then. Raises OSError."""
    made = _beside(path)
    try:
        _fill(made, json.dumps(record, indent=1).encode(), durable=False)
        os.link(made, path)
    except FileExistsError:
        return False
    finally:
        _remove(made)
    return True


def reserve(path: "Where", room_bytes: int = RESERVE_BYTES) -> None:
    """Take the room on the disk that `write_reserved` needs. Raises OSError."""
    _fill(f"{path}.reserve", b" " * room_bytes, durable=False)


def write_reserved(path: "Where", record: "dict[str, Any]", durable: bool = True) -> None:
    """Write as `write` does, in the room taken by `reserve` where it is there, so that a full disk
    does not matter."""
    text = _text(path, record).ljust(RESERVE_BYTES)
    made = f"{path}.reserve"
    try:
        descriptor = os.open(
            made, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )  # no waiting for pipes
    except FileNotFoundError:
        write(path, record, durable)
        return
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        os.close(descriptor)
        write(path, record, durable)
        return
    try:
        _write_all(descriptor, text)
        os.ftruncate(descriptor, len(text))  # a longer one may have been begun there
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(made, path)
    if durable:
        sync_folder(os.path.dirname(path))


def stop(grace_s: "float | None", lost: "str | None" = None) -> "dict[str, Any]":
    """Return what is recorded of an attempt that is to end, after `grace_s` by force, at once where
    that is None. `lost` is why, where nobody asked for it."""
    overdue = None
    if grace_s is not None and lost is None:
        overdue = f"did not stop within the {grace_s:g} s it was given, and was killed"
    return {"asked_s": time.time(), "grace_s": grace_s, "overdue": overdue, "lost": lost}


def ending(
    status: "int | None", reason: "str | None", started_s: "float | None", asked: bool = False
) -> "dict[str, Any]":
    """Return what is recorded of a command that has ended now, or never began."""
    return {
        "status": status,
        "reason": reason,
        "asked": asked,
        "started_s": started_s,
        "ended_s": time.time(),
    }


def read(path: "Where") -> "dict[str, Any] | None":
    """Return the record at `path`; None where there is none or what is there is no record. Raises
    OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        text = b""
        while len(text) <= LARGEST_BYTES and (more := os.read(descriptor, LARGEST_BYTES)):
            text += more
    finally:
        os.close(descriptor)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and len(text) <= LARGEST_BYTES else None


def lock(descriptor: int, patience_s: float = LOCK_PATIENCE_S) -> bool:
    """Lock an open file or folder against all who open it anew; False if somebody else has it and
    keeps it.

    A lock may seem taken for a moment: a process that is just being started holds copies of its
    parent's descriptors.
    """
    until_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(0.01)


def sync_folder(folder: "Where") -> None:
    """Make the names in `folder` survive a power failure. Raises OSError."""
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(path: "Where", record: "dict[str, Any]") -> bytes:
    text = json.dumps(record, indent=1).encode()
    if len(text) > LARGEST_BYTES:
        raise OSError(errno.EFBIG, f"it is longer than {LARGEST_BYTES} bytes", path)
    return text


def _beside(path: "Where") -> str:
    """Return a name that nobody else has or guesses: processes of other hosts have our number."""
    return f"{path}.{os.urandom(6).hex()}.tmp"


def _fill(path: "Where", text: bytes, durable: bool) -> None:
    _remove(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        _write_all(descriptor, text)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]


def _remove(path: "Where") -> None:
    with suppress(OSError):
        os.unlink(path)
