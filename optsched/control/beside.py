"""Computing beside a controller: a process that stays warm between questions, at a low priority,
and is ended when its time is up."""

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from ..duration import human
from ..errors import InputError, OptschedError

START_S = 20.0
"""So long after its time limit a process is ended: Python has to start, and a round is not
interrupted."""
IDLE_S = 900.0
"""A process that is asked nothing for so long ends by itself."""
NICE = 10
MOST_SAID = 300
"""Characters of what is said of a bug."""
Question = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function of a module, and what it is called with."""


class NoForecastError(OptschedError):
    """No answer came."""


class Beside:
    """One process that calls functions, one at a time, for whoever asks; started when it is first
    needed, and again whenever it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: tuple[subprocess.Popen[bytes], Connection] | None = None
        self.cpu_s = 0.0
        """Processor time that the last answer took."""

    def call(self, limit_s: float, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Return what the function returns there. Raises the InputError that it raises,
        NoForecastError for all else, and where it takes longer than `limit_s`."""
        question = pickle.dumps((function, given, named), protocol=pickle.HIGHEST_PROTOCOL)
        with self._lock:
            kind, answer, self.cpu_s = self._answer(question, limit_s)
        if kind == "answer":
            return answer
        raise (InputError if kind == "input" else NoForecastError)(answer)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process[0].kill()
            process[0].wait()

    def _answer(self, question: bytes, limit_s: float) -> tuple[str, Any, float]:
        until_s = time.monotonic() + limit_s
        for again in (True, False):
            warm = self._process is not None
            process, pipe = self._process = self._process or _started()
            # whatever holds it up, its pipe included, ends with it
            late = threading.Timer(max(0.0, until_s - time.monotonic()), process.kill)
            late.start()
            try:
                pipe.send_bytes(question)
                answer: tuple[str, Any, float] = pipe.recv()
                return answer
            except (EOFError, OSError):
                self._process = None
                process.kill()
                process.wait()
                if not (again and warm and time.monotonic() < until_s):
                    break  # else it had ended while it was asked nothing
            finally:
                late.cancel()
        if time.monotonic() >= until_s:
            return "failed", f"no answer within {human(limit_s)}; ask for a longer time limit", 0.0
        return "failed", f"it could not be simulated: status {process.returncode}", 0.0


def _started() -> "tuple[subprocess.Popen[bytes], Connection]":
    pipe, its_pipe = Pipe()
    with its_pipe:
        process = subprocess.Popen(
            # not what lies in the folder where we are
            [sys.executable, "-P", "-m", __name__, str(its_pipe.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[its_pipe.fileno()],
            start_new_session=True,
        )
    return process, pipe


def main() -> None:
    """Answer the questions that come over the pipe named to this until there are no more."""
    os.nice(NICE)
    pipe = Connection(int(sys.argv[1]))
    while pipe.poll(IDLE_S):
        try:
            text = pipe.recv_bytes()
        except EOFError:
            return
        began_s = time.process_time()
        kind, answer = _called(text)
        pipe.send((kind, answer, time.process_time() - began_s))


def _called(text: bytes) -> tuple[str, Any]:
    try:
        function, given, named = pickle.loads(text)  # from the parent, over a pipe of its own
        return "answer", function(*given, **named)
    except InputError as error:
        return "input", str(error)
    except OptschedError as error:
        return "failed", str(error)
    except Exception as error:
        said = f"{type(error).__name__}: {str(error)[:MOST_SAID]}"
        return "failed", f"it could not be simulated: {said}"


if __name__ == "__main__":
    main()
