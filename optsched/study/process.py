"""Processes for runs: one that is warm is kept and forks each run, limited in time and memory, on
one thread."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ..errors import InputError
from ..frozen import record
from .warm import ANSWER, ERRORS, MOST_BYTES, kill_run

ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "POLARS_MAX_THREADS",
    )
}


@record
class Ended:
    """What became of a run: its exit status, negative for a signal, None where it had to be
    stopped; its times, start of Python not included, and the most memory it held, its children
    included; its answer as JSON, and what it wrote to stderr."""

    status: int | None
    wall_s: float
    cpu_s: float
    memory_gib: float
    answer: str = ""
    errors: str = ""


class Warm:
    """A warm process, for one run at a time; a context manager. A run dies with it, and it with
    this process."""

    def __init__(self) -> None:
        self._control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            # In a session of its own, so that Ctrl-C reaches this process, which then closes the
            # other.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "optsched.study.warm", str(there.fileno())],
                pass_fds=(there.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **ONE_THREAD},
            )
        self._ready = False

    def __enter__(self) -> "Warm":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(
        self, request: dict[str, Any], folder: Path, *, time_limit_s: float, memory_gib: float
    ) -> Ended:
        """Run a command of a study with a folder for its files, and wait for its end.

        Raises InputError where Python here cannot start optsched.
        """
        if not self._ready and not self._hear():
            raise InputError(f"{sys.executable} cannot import optsched in a process of its own")
        self._ready = True
        limited = {**request, "folder": str(folder), "memory_gib": memory_gib}
        started_s = time.perf_counter()
        with suppress(BrokenPipeError):
            self._control.send(json.dumps(limited).encode())
        pid = self._hear().get("pid")
        stopped, said = False, None
        while pid is not None and said is None:
            left_s = started_s + time_limit_s - time.perf_counter()
            if not stopped and left_s <= 0:
                kill_run(pid)
                stopped = True
            self._control.settimeout(None if stopped else left_s)
            with suppress(TimeoutError):
                said = self._hear()
        self._control.settimeout(None)
        wall_s = time.perf_counter() - started_s
        if not said:  # the warm process has been killed, and the run with it
            return Ended(-9, wall_s, 0.0, 0.0)
        answer, errors = (
            path.read_text(errors="replace") if (path := folder / name).exists() else ""
            for name in (ANSWER, ERRORS)
        )
        status = None if stopped else said["status"]
        return Ended(status, wall_s, said["cpu_s"], said["memory_gib"], answer, errors)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it, with its run where there is one."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # also wakes whoever waits for an answer
        self._process.wait()
        self._control.close()

    def _hear(self) -> dict[str, Any]:
        """Return the next answer; empty where the other end is gone."""
        try:
            data = self._control.recv(MOST_BYTES)
        except ConnectionResetError:
            data = b""
        return json.loads(data) if data else {}


class WarmProcesses(ExitStack):
    """Warm processes for threads that run at the same time; a context manager that ends them
    all."""

    def __init__(self) -> None:
        super().__init__()
        self._idle: SimpleQueue[Warm] = SimpleQueue()

    @contextmanager
    def lent(self) -> Iterator[Warm]:
        """Yield a process that nobody else uses meanwhile; one that has ended is not used again."""
        try:
            warm = self._idle.get_nowait()
        except Empty:
            warm = self.enter_context(Warm())
        try:
            yield warm
        finally:
            if warm.alive:
                self._idle.put(warm)
