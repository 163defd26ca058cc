"""The other side of `watchdog`: a script that runs one solver in a process of its own.

It starts as two processes. The lower one imports the solver and plans. The upper one, the guard,
does nothing but wait: when the solver ends, or the engine that asked for it goes away or hangs up,
it kills whatever the solver left behind and ends with the solver's exit status. So neither native
code that never returns nor a subprocess of a solver outlives an engine, even one that was killed.
"""

import faulthandler
import importlib
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn

HEADER = struct.Struct(">Q")
"""A message is its length in bytes, then a pickled tuple of its kind and what it says."""

TERMINATE_GRACE_S = 0.1
"""Between asking processes to end and killing them."""

GUARD_WAKES_EVERY_MS = 1000


def frame(*message: Any) -> bytes:
    """Return a message as it goes through the pipe."""
    body = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(body)) + body


def main(request_fd: int, message_fd: int, folder: str) -> NoReturn:
    """Become guard and solver. `request_fd` brings what to solve and stays open while the engine
    wants it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's business
    engine_pid = os.getppid()
    solver_pid = os.fork()
    if solver_pid == 0:
        _solve(request_fd, message_fd)
    os.close(message_fd)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nothing, descriptor)
    _guard(solver_pid, request_fd, engine_pid, folder)


# ------------------------------------------------------------------------------------------------
# the guard


def _guard(solver_pid: int, request_fd: int, engine_pid: int, folder: str) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _adopt_orphans()
    status = _wait(solver_pid, request_fd, engine_pid)
    hung_up = status is None
    if status is None:
        os.killpg(0, signal.SIGTERM)
        until_s = time.monotonic() + TERMINATE_GRACE_S
        while status is None and time.monotonic() < until_s:
            time.sleep(0.005)
            status = _reap(solver_pid)
    if status is None:
        os.kill(solver_pid, signal.SIGKILL)
        status = os.waitpid(solver_pid, 0)[1]
    while orphans := _children():
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)
    if (
        hung_up or os.getppid() != engine_pid
    ):  # an engine that dies hangs up before it is seen to be gone
        _remove(folder)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)  # as a shell reports a signal


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # it is not empty
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _wait(solver_pid: int, request_fd: int, engine_pid: int) -> int | None:
    """Return the exit status of the solver, or None once the engine hung up or died."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(
        signal.SIGCHLD, lambda *_: None
    )  # a handler there must be for the wake-up to be written
    signal.set_wakeup_fd(woken)
    events = select.poll()
    events.register(wake, select.POLLIN)
    events.register(request_fd, 0)  # hang-up is reported always
    while True:
        status = _reap(solver_pid)
        if status is not None:
            return status
        if os.getppid() != engine_pid:
            return None
        for descriptor, _ in events.poll(GUARD_WAKES_EVERY_MS):
            if descriptor == request_fd:
                return None
            os.read(wake, 4096)


def _reap(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return status if done else None


def _adopt_orphans() -> None:
    """Have processes whose parent dies become the guard's children, whatever their session
    (Linux)."""
    if sys.platform == "linux":
        import ctypes

        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _children() -> list[int]:
    """Return the processes whose parent this one is; none where the system does not tell."""
    with suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as listing:
        return [int(pid) for pid in listing.read().split()]
    return []


# ------------------------------------------------------------------------------------------------
# the solver


def _solve(request_fd: int, message_fd: int) -> NoReturn:
    lock = threading.Lock()

    def send(*message: Any) -> None:
        rest = memoryview(frame(*message))
        with lock:  # solvers report from threads of their own
            while rest:
                rest = rest[os.write(message_fd, rest) :]

    try:
        with suppress(Exception):
            faulthandler.enable()
        _plan(os.fdopen(request_fd, "rb"), send)
    except BaseException as error:
        with suppress(BrokenPipeError):
            send(*told(error))
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # without waiting for threads a solver may have left


def told(error: BaseException) -> tuple[str, ...]:
    """Return what to say of an exception: that the solver cannot go on, in its own words, or that
    it crashed."""
    with suppress(ImportError):
        from optsched.errors import OptschedError

        if isinstance(error, OptschedError):
            return "unable", str(error)
    return "error", f"{type(error).__name__}: {error}", traceback.format_exc()


def _plan(inbox: BinaryIO, send: Any) -> None:
    sys.path[:] = pickle.load(inbox)
    solver = pickle.load(inbox)
    for name in solver.needs:
        importlib.import_module(name)  # now, while the engine looks for its first plan
    from dataclasses import replace

    from optsched.plugins.solver import Report

    request, until_s = pickle.load(inbox)
    if until_s is not None:
        request = replace(request, time_limit_s=max(0.0, until_s - time.monotonic()))
    solver.solve(request, Report.telling(send))
    send("done")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
