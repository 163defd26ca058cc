"""A file system of 64 MiB, to be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 1 << 20


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """One mounted at `folder`; the test is skipped where nothing can be."""
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )
    if not mounted:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take every byte that is left."""
    path = folder / "filler"
    for piece in (MIB, 4096, 1):
        try:
            with open(path, "ab", buffering=0) as file:
                while file.write(b"x" * piece) == piece:
                    pass
        except OSError:
            continue
    return path
