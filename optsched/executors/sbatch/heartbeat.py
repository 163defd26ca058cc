"""A sign of life for job_submit.lua: without one Slurm starts jobs as if optsched were not
there."""

import os
import time
from contextlib import suppress
from pathlib import Path

from ...errors import InputError

EVERY_S = 10.0
"""How often it is written; job_submit.lua takes one of up to 120 s ago for a living
controller's."""


class Heartbeat:
    """A file with the present Unix time, which everybody may read."""

    def __init__(self, path: Path) -> None:
        """Write the first one. Raises InputError where that cannot be done."""
        self.path = path
        self._written_s = -float("inf")
        try:
            fresh = not path.parent.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            if fresh:
                path.parent.chmod(
                    0o755
                )  # slurmctld may run as another user; what is there stays as it is
            self._write()
        except OSError as error:
            raise InputError(
                f"slurm.heartbeat: {path} cannot be written: {error.strerror}; name a file that "
                "slurmctld "
                "can read, here and in job_submit.lua"
            ) from None

    def beat(self) -> None:
        """Write the time, unless that was done a moment ago; a file that cannot be written goes
        stale."""
        if time.monotonic() >= self._written_s + EVERY_S:
            with suppress(OSError):
                self._write()

    def _write(self) -> None:
        made = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        made.write_text(f"{int(time.time())}\n")
        made.chmod(0o644)
        made.replace(self.path)
        self._written_s = time.monotonic()
