"""A process that has imported optsched and forks a run whenever it is asked: most of a short run is
imports.

`python -m optsched.study.warm FD` serves the socket FD: a request is a command of a study with a
folder for the answer and the errors of the run; the replies are the process of the run, and then
what became of it. When the asking process ends, however it does, the socket is closed: then the
run is killed, and this process ends.
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
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 17
PR_SET_PDEATHSIG = 1
GIB = 1 << 30
ANSWER, ERRORS = "answer.json", "errors.txt"
"""Files of a run in its folder."""
IMPORTED = (
    "optsched.api.outcome",
    "optsched.bounds",
    "optsched.engine",
    "optsched.estimates.history",
    "optsched.estimates.parse",
    "optsched.simulate.report.series",
    "optsched.study.commands",
    "optsched.traces.generate.like",
    "optsched.traces.generate.synth",
)
"""What runs need; no library that solves, as some of those must not be together in one process."""


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork runs until the other end is closed, then return None; in a forked run, its request."""
    control.send(json.dumps({"ready": True}).encode())
    while True:
        data = control.recv(MOST_BYTES)
        if not data:
            return None
        request: dict[str, Any] = json.loads(data)
        own_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            control.close()
            die_with(own_pid)
            _become(request["memory_gib"], Path(request["folder"]))
            return request
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


def die_with(parent_pid: int) -> None:
    """Have this process killed when its parent ends; at once where that has happened already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the signal was asked for
        os.kill(os.getpid(), signal.SIGKILL)


def _become(memory_gib: float, folder: Path) -> None:
    """Make this process the run: a group of its own, with its errors in a file, and no more memory
    than allowed."""
    os.setsid()
    errors = os.open(folder / ERRORS, os.O_WRONLY | os.O_CREAT)
    os.dup2(errors, 2)
    os.close(errors)
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


def run(request: dict[str, Any]) -> int:
    """Run a command of a study; its answer becomes a file. Return the exit status."""
    from ..errors import OptschedError
    from .commands import answer, make
    from .design import MAKES

    command, instance = request["command"], Path(request["instance"])
    folder = Path(request["folder"])
    try:
        if command.split()[0] in MAKES:
            make(command, instance)
            said = {}
        else:
            said = answer(command, instance, folder, plans=request["plans"])
        (folder / ANSWER).write_text(json.dumps(said, allow_nan=False))
    except OptschedError as error:
        sys.stderr.write(str(error))
        return 2
    except Exception as error:
        sys.stderr.write(f"a bug in optsched, not in your input: {type(error).__name__}: {error}")
        return 3
    return 0


def main() -> None:
    """Serve the socket whose number is the argument."""
    _warm_up()
    gc.collect()
    gc.freeze()  # else the first collection of a run would copy all that it shares
    request = None
    with suppress(BrokenPipeError, ConnectionResetError):
        request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        sys.exit(run(request))


if __name__ == "__main__":
    main()
