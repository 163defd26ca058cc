"""Files of operators that a controller reads while it runs: regular ones alone, as opening a pipe
waits for a writer, and reading some devices never ends."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file, or of that to which a link leads. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "a pipe or device, where a regular file is needed")
        return file.read()
