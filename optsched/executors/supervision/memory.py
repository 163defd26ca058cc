"""Watches the memory of a command and all it started.

The shim imports this file by itself, without the package: standard library only, and little of it.
"""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import processes
else:
    import processes

FIRST_LOOK_S, LOOK_EVERY_S, GUARD_EVERY_S = 0.05, 1.0, 0.2
"""Looks begin close together, for short jobs, and grow apart; less far where there is a limit to
hold."""
SHARE = 0.02
"""Of one core's time at most goes into looking."""


class Watch:
    """Samples at `due_s` of the monotonic clock; `peak_bytes` is the largest sum seen, shared
    memory counted once."""

    def __init__(self, limit_bytes: int) -> None:
        """Take `limit_bytes`, what to hold it to, 0 for no limit or where the kernel does so."""
        self.limit_bytes = limit_bytes
        self.peak_bytes = 0
        self._every_s = FIRST_LOOK_S
        self.due_s = time.monotonic() + self._every_s

    def look(self, root: int) -> bool:
        """Sample the descendants of `root`; return whether they hold more than the limit."""
        began_s = time.monotonic()
        pids = processes.descendants(root)
        if processes.resident_bytes(pids) > self.peak_bytes:
            self.peak_bytes = max(self.peak_bytes, processes.proportional_bytes(pids))
        ended_s = time.monotonic()
        self._every_s = min(2 * self._every_s, GUARD_EVERY_S if self.limit_bytes else LOOK_EVERY_S)
        self.due_s = ended_s + max(self._every_s, (ended_s - began_s) / SHARE)
        return 0 < self.limit_bytes < self.peak_bytes

    @staticmethod
    def exceeded(limit_bytes: int) -> str:
        """Return the reason to give for one that was killed."""
        return f"its memory limit of {limit_bytes / (1 << 30):g} GiB was exceeded"
