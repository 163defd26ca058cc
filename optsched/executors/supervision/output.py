"""What a command prints: taken in by its supervisor, which keeps so much of it and no more.

Commands do not write into files themselves: one that prints without end would fill the disk on
which the journal is. The shim imports this file by itself, without the package: standard library
only, and little of it.
"""

import _thread
import os
import time
from contextlib import suppress

TYPE_CHECKING = False  # importing `typing` would cost each shim milliseconds
if TYPE_CHECKING:
    from typing import Any

LIMIT_BYTES = 1 << 30
"""Of each stream on each node so much is kept, unless the spec says otherwise."""
PIECE_BYTES = 1 << 16
DRAIN_S = 2.0
"""So long the last bytes may take to come once nothing runs any more: somebody else may hold the
pipe."""
LAST_LINE_BYTES = 128
"""What the line takes at most that says what is missing."""
MIB = 1 << 20


class Output:
    """The files `stdout` and `stderr` in a folder, and the pipes that lead there."""

    def __init__(self, folder: str, user: "dict[str, Any] | None", limit_bytes: int) -> None:
        self.fault: OSError | None = None
        self._limit_bytes = limit_bytes
        self._dropped, self._full = [0, 0], [False, False]
        self._streams: list[
            tuple[int, int, int]
        ] = []  # file, where its pipe is read, where it is written
        self._running: list[_thread.LockType] = []
        try:
            for name in ("stdout", "stderr"):
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(f"{folder}/{name}", flags, 0o600)
                reads, writes = os.pipe()
                self._streams.append((file, reads, writes))
                if user is not None:
                    os.fchown(file, user["uid"], user["gid"])
                    os.fchown(writes, user["uid"], user["gid"])  # or nobody could open /dev/stdout
        except OSError as error:
            self.fault = error

    def attach(self) -> None:
        """Have this process, which is to become the command, print into the pipes. Raises OSError
        where there are none."""
        if self.fault is not None:
            raise self.fault
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, opened in (
            (0, nothing),
            *((i + 1, writes) for i, (_, _, writes) in enumerate(self._streams)),
        ):
            os.dup2(opened, descriptor)

    def keep(self) -> None:
        """Take in what comes from now on, on threads of their own."""
        for i, (file, reads, writes) in enumerate(self._streams):
            os.close(writes)
            running = _thread.allocate_lock()
            running.acquire()
            self._running.append(running)
            _thread.start_new_thread(self._take_in, (i, file, reads, running))

    def _take_in(self, number: int, file: int, reads: int, running: "_thread.LockType") -> None:
        left = self._limit_bytes
        try:
            while piece := os.read(reads, PIECE_BYTES):
                wanted = piece[:left]
                kept = _written(file, wanted) if wanted else 0
                left -= kept
                self._dropped[number] += len(piece) - kept
                self._full[number] |= kept < len(wanted)
        finally:
            running.release()

    def close(self) -> None:
        """Wait for the last bytes, and say at the end of a file what is missing."""
        until_s = time.monotonic() + DRAIN_S
        for number, running in enumerate(self._running):
            running.acquire(timeout=max(0.0, until_s - time.monotonic()))
            dropped, file = self._dropped[number], self._streams[number][0]
            if dropped:
                why = f"{self._limit_bytes / MIB:g} MiB are kept at most"
                if self._full[number]:
                    why = "the disk was full"
                    dropped += _cut(file)
                words = f"\noptsched: {dropped} bytes that were printed are not here: {why}\n"
                _written(file, words.encode())


def _cut(file: int) -> int:
    """Return how many bytes of the end of a file made room for a last line: none where the disk
    fails."""
    try:
        size = os.fstat(file).st_size
        cut = min(size, LAST_LINE_BYTES)
        os.ftruncate(file, size - cut)
    except OSError:
        return 0
    return cut


def _written(file: int, data: bytes) -> int:
    """Return how many bytes could be written: on a full disk fewer, and the command goes on all the
    same."""
    done = 0
    with suppress(OSError):
        while done < len(data):
            done += os.write(file, data[done:])
    return done
