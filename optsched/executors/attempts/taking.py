"""The folder of attempts of an executor, which one process at a time has."""

import os
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ..supervision import records


class Taken(NamedTuple):
    """`attempts` is the folder; `mode` that of folders in it; whoever lets go of the folder closes
    `lock_fd`."""

    attempts: Path
    mode: int
    lock_fd: int


def take(folder: Path) -> Taken:
    """Take `folder/attempts`, made where it is not there.

    Raises InputError where it cannot be used or another process has it.
    """
    mode = (
        0o711 if os.geteuid() == 0 else 0o700
    )  # below root's folders users reach their own output
    attempts = folder.absolute() / "attempts"
    try:
        attempts.mkdir(parents=True, exist_ok=True, mode=mode)
        attempts.chmod(mode)  # whatever the umask was
        lock_fd = os.open(attempts, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise unusable(folder, error) from error
    if not records.lock(lock_fd):
        os.close(lock_fd)
        raise InputError(
            f"{folder} is in use by another controller; stop that or name another folder"
        )
    return Taken(attempts, mode, lock_fd)


def unusable(folder: Path, error: OSError) -> InputError:
    """That `folder` cannot be used."""
    return InputError(
        f"{folder} cannot be used: {error.strerror}; name a folder that can be written"
    )
