"""Where a controller's socket and tokens are."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET = "api.sock"
TOKEN, VIEW_TOKEN, METRICS_TOKEN = "token", "view-token", "metrics-token"
TOKENS = (TOKEN, VIEW_TOKEN, METRICS_TOKEN)
"""Names in the state folder. The first token opens everything; the second opens what can be looked
at, but no action, output, command or environment of a job; the third opens /metrics alone."""


@contextmanager
def short(path: Path) -> Iterator[str]:
    """Yield the address of a socket at `path`, by a link in /proc, as addresses may have no more
    than 107 bytes.

    Raises OSError where its folder cannot be opened.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
