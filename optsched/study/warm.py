"""A process that has imported optsched and forks a run whenever it is asked: most of a short run is
imports.

`python -m optsched.study.warm FD` serves the socket FD: a request is a command line with two files,
the output and the errors of the run; the answers are the process of the run, and then what became
of it. When the asking process ends, however it does, the socket is closed: then the run is killed,
and this process ends.
"""

import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from contextlib import suppress

MOST_BYTES = 1 << 17
PR_SET_PDEATHSIG = 1
GIB = 1 << 30
IMPORTED = (
    "optsched.bounds",
    "optsched.cli.bound",
    "optsched.cli.generate",
    "optsched.cli.import_",
    "optsched.cli.simulate",
    "optsched.cli.solve",
    "optsched.engine",
    "optsched.picture.page",
    "optsched.estimates.history",
    "optsched.estimates.parse",
    "optsched.simulate.output",
    "optsched.simulate.report.page",
    "optsched.traces.generate.like",
    "optsched.traces.generate.synth",
)
"""What runs need; no library that solves, as some of those must not be together in one process."""


def serve(control: socket.socket) -> list[str] | None:
    """Fork runs until the other end is closed, then None; in a forked run, its command line."""
    control.send(json.dumps({"ready": True}).encode())
    while True:
        data, files, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
        if not data:
            return None
        request = json.loads(data)
        pid = os.fork()
        if pid == 0:
            control.close()
            _become(request["memory_gib"], files)
            words: list[str] = request["words"]
            return words
        for file in files:
            os.close(file)
        control.send(json.dumps({"pid": pid}).encode())
        watched = os.pidfd_open(pid)
        there, _, _ = select.select([watched, control.fileno()], [], [])
        os.close(watched)
        if control.fileno() in there:
            kill_run(pid)
        _, status, used = os.wait4(pid, 0)
        control.send(
            json.dumps(
                {
                    "status": os.waitstatus_to_exitcode(status),
                    "cpu_s": used.ru_utime + used.ru_stime,
                    "memory_gib": used.ru_maxrss * 1024 / GIB,
                }
            ).encode()
        )


def kill_run(pid: int) -> None:
    """End a run with all that it has started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _become(memory_gib: float, files: list[int]) -> None:
    """In the run: a group of its own that dies with its parent, its outputs, and no more memory
    than allowed."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for file, target in zip(files, (1, 2), strict=True):
        os.dup2(file, target)
        os.close(file)
    most = int(memory_gib * GIB)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _warm_up() -> None:
    from .. import files
    from ..plugins import registry

    for name in IMPORTED:
        importlib.import_module(name)
    files.adapter(files.InstanceFile)
    registry.names("solvers")
    registry.names("policies")


def main() -> None:
    _warm_up()
    gc.collect()
    gc.freeze()  # else the first collection of a run would copy all that it shares
    words = None
    with suppress(BrokenPipeError, ConnectionResetError):
        words = serve(socket.socket(fileno=int(sys.argv[1])))
    if words is not None:
        from ..cli import main as optsched

        sys.argv[1:] = words
        optsched(words, prog_name="optsched")


if __name__ == "__main__":
    main()
