"""A solver in a process of its own, seen from the engine: start it, hear it, and make sure that it
ends."""

import io
import os
import pickle
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from typing import Any

from ..errors import InputError
from ..files import nouns_of
from ..model import Plan
from ..model.value import Table
from ..plugins.solver import Request, Solver
from . import child

ARITY = {
    "plan": 1,
    "bound": 3,
    "infeasible": 1,
    "note": 1,
    "certificate": 1,
    "more_time": 1,
    "log": 1,
    "done": 0,
    "unable": 1,
    "error": 2,
}
"""Kinds of message, and how many things each says."""

MAX_MESSAGE_BYTES = 1 << 32
OUTPUT_KEPT_BYTES = 8192
OUTPUT_LINES = 12
GUARD_ENDS_WITHIN_S = 1.0

_NOUNS = {(noun.__module__, noun.__name__): noun for noun in (*nouns_of(Plan), Table)}


class BadMessageError(Exception):
    """What came out of the pipe is no message; the text completes the sentence "the solver ..."."""


class Child:
    """One solver process (its guard and all it starts).

    Use it as a context manager: on leaving it, nothing of the process remains, neither zombies nor
    temporary files. A child that never reads, never answers, or floods its output cannot hold up
    the engine.
    """

    def __init__(self, solver: Solver) -> None:
        """Start the process and have it import the solver.

        Raises InputError for a solver that cannot be pickled, OSError where no process can be had.
        """
        if type(solver).__module__ == "__main__":
            raise InputError(
                f"solver {solver.name} is defined in __main__, which its own process cannot "
                "import; "
                "put it in a module, or call solve with isolate=False"
            )
        try:
            pickled = pickle.dumps(solver)
        except Exception as error:
            raise InputError(
                f"solver {solver.name} cannot be pickled ({error}); call solve with isolate=False"
            ) from None
        self.ended = False
        self._tail = b""
        self._buffer = bytearray()
        self._outgoing = memoryview(pickle.dumps(sys.path) + pickled)
        with ExitStack() as on_failure, ExitStack() as always:
            self._folder = tempfile.mkdtemp(prefix="optsched-")
            on_failure.callback(shutil.rmtree, self._folder, ignore_errors=True)
            request, self._request = os.pipe()
            self._messages, messages = os.pipe()
            self._output, output = os.pipe()
            for descriptor in (request, messages, output):
                always.callback(os.close, descriptor)
            for descriptor in (self._request, self._messages, self._output):
                on_failure.callback(os.close, descriptor)
                os.set_blocking(descriptor, False)
            # Not multiprocessing: it runs the caller's main module again and refuses in its own
            # pool workers.
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-u",
                    "-P",
                    child.__file__,
                    str(request),
                    str(messages),
                    self._folder,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(request, messages),
                start_new_session=True,
                env={**os.environ, "TMPDIR": self._folder},
            )
            on_failure.pop_all()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._messages, selectors.EVENT_READ)
        self._selector.register(self._output, selectors.EVENT_READ)
        self._selector.register(self._request, selectors.EVENT_WRITE)
        self._write()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._selector.close()
        for descriptor in (self._messages, self._output):
            os.close(descriptor)

    def send(self, request: Request, until_s: float | None) -> None:
        """Ask for a plan; with `until_s` (of `time.monotonic`) in what time is left once it is
        ready."""
        idle = not self._outgoing
        self._outgoing = memoryview(bytes(self._outgoing) + pickle.dumps((request, until_s)))
        if idle:
            self._selector.register(self._request, selectors.EVENT_WRITE)
        self._write()

    def receive(self, timeout_s: float) -> list[tuple[Any, ...]]:
        """Return messages that came within `timeout_s`; set `ended` once no more will.

        The last one may be of a kind that no child sends: ("junk", what it did).
        """
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            if key.fd == self._request:
                self._write()
            elif key.fd == self._output:
                self._hear_output()
            else:
                self._read()
        return self._messages_in_buffer()

    def stop(self) -> None:
        """Kill the solver and all that it started; what it had said before can still be
        received."""
        if self._outgoing:
            self._outgoing = memoryview(b"")
            self._selector.unregister(self._request)
        if self._request >= 0:  # a second Ctrl-C may have ended this function half way
            request, self._request = self._request, -1
            os.close(request)  # the guard sees it and cleans up
        try:
            self._process.wait(GUARD_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._kill_group()
        if sys.platform != "linux":  # elsewhere the guard cannot find what the solver left
            self._kill_group()
        self._process.wait()
        while self._read():
            pass
        self._hear_output()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def how_it_ended(self) -> str:
        """Return how the stopped process ended, as the rest of a sentence about the solver."""
        code = self._process.returncode
        number = -code if code < 0 else code - 128
        if number not in set(signal.Signals):
            return f"ended with exit status {code} before it was done"
        memory = ", perhaps for want of memory" if number == signal.SIGKILL else ""
        return f"was killed by signal {number} ({signal.Signals(number).name}){memory}"

    def last_output(self) -> str:
        """Return the last lines that the solver wrote to its standard output and error, in one."""
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines()]
        return " / ".join(line[:200] for line in [line for line in lines if line][-OUTPUT_LINES:])

    def _write(self) -> None:
        try:
            self._outgoing = self._outgoing[os.write(self._request, self._outgoing) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._outgoing = memoryview(b"")  # it died; that shows in the messages' end
        if not self._outgoing:
            self._selector.unregister(self._request)

    def _read(self) -> bool:
        """Take in what has come, and say whether there may be more."""
        try:
            data = os.read(self._messages, 1 << 20)
        except BlockingIOError:
            return False
        self._buffer += data
        if not data and not self.ended:
            self.ended = True
            self._selector.unregister(self._messages)
        return bool(data)

    def _hear_output(self) -> None:
        with suppress(BlockingIOError):
            data = os.read(self._output, 1 << 20)
            self._tail = (self._tail + data)[-OUTPUT_KEPT_BYTES:]
            if not data and self._output in self._selector.get_map():
                self._selector.unregister(self._output)

    def _messages_in_buffer(self) -> list[tuple[Any, ...]]:
        messages: list[tuple[Any, ...]] = []
        while len(self._buffer) >= child.HEADER.size:
            (size,) = child.HEADER.unpack_from(self._buffer)
            end = child.HEADER.size + size
            if len(self._buffer) < end and size <= MAX_MESSAGE_BYTES:
                break
            try:
                messages.append(_load(bytes(memoryview(self._buffer)[child.HEADER.size : end])))
                del self._buffer[:end]
            except BadMessageError as error:
                messages.append(("junk", str(error)))
                self._buffer.clear()
                self.ended = True
        return messages


class _PlansOnly(pickle.Unpickler):
    """Makes plans and plain values and nothing else, so that no message can run code in the
    engine."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NOUNS:
            hint = "; plans take plain int and float" if module.startswith("numpy") else ""
            raise BadMessageError(
                f"sent an object of {module}.{name}, which has no place in a plan{hint}"
            )
        return _NOUNS[module, name]


def _load(body: bytes) -> tuple[Any, ...]:
    try:
        message = _PlansOnly(io.BytesIO(body)).load()
    except BadMessageError:
        raise
    except Exception as error:
        raise BadMessageError(f"sent bytes that are no message ({type(error).__name__})") from None
    if type(message) is not tuple or not message or type(message[0]) is not str:
        raise BadMessageError("sent a message of no known kind")
    if ARITY.get(message[0]) != len(message) - 1:
        raise BadMessageError("sent a message of no known kind")
    return message
