"""The folder of attempts of an executor, which one process at a time has."""

import os
from pathlib import Path

from ...errors import InputError
from ..supervision import records
from .folder import folder_mode


def take(folder: Path) -> tuple[Path, int]:
    """Take `folder/attempts`, made where it is not there; whoever lets go of it closes the
    descriptor that is returned too.

    Raises InputError where it cannot be used or another process has it.
    """
    attempts = folder.absolute() / "attempts"
    try:
        attempts.mkdir(parents=True, exist_ok=True, mode=folder_mode())
        attempts.chmod(folder_mode())  # whatever the umask was
        lock_fd = os.open(attempts, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise unusable(folder, error) from error
    if not records.lock(lock_fd):
        os.close(lock_fd)
        raise InputError(
            f"{folder} is in use by another controller; stop that or name another folder"
        )
    return attempts, lock_fd


def unusable(folder: Path, error: OSError) -> InputError:
    """That `folder` cannot be used."""
    return InputError(
        f"{folder} cannot be used: {error.strerror}; name a folder that can be written"
    )
