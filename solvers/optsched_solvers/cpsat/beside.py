"""Searches in copies of this process, beside the one that goes on in it."""

import os
import pickle
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MOST = 7
"""Most copies at a time."""


def most(workers: int) -> int:
    """Return how many copies there may be beside this process: one for each other worker that has a
    processor, and none where they would lose threads of this one."""
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return 0
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(0, min(workers, processors, MOST + 1) - 1)


class Beside:
    """A call in a copy of this process; that ends when it is left."""

    def __init__(self, call: Callable[[], Any]) -> None:
        """Start it."""
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            with suppress(BaseException):
                os.close(self._reader)
                with os.fdopen(writer, "wb") as pipe:
                    pickle.dump(call(), pipe)
            os._exit(0)
        os.close(writer)

    def __enter__(self) -> "Beside":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        os.close(self._reader)
        os.waitpid(self.pid, 0)

    @property
    def is_done(self) -> bool:
        """Return whether the call has returned, or raised."""
        answer = select.poll()  # of any descriptor: `select.select` refuses those above 1,023
        answer.register(self._reader, select.POLLIN)
        return bool(answer.poll(0))

    def result(self) -> Any:
        """Wait for what the call returns; None where it raises."""
        with os.fdopen(self._reader, "rb", closefd=False) as pipe:
            said = pipe.read()
        return pickle.loads(said) if said else None
