"""Computing beside a controller: a process that stays warm between questions, at a low priority,
and is ended when its time is up."""

import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from ..duration import human
from ..errors import InputError, OptschedError
from ..native_output import own_stdout

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
        self._process: subprocess.Popen[bytes] | None = None
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
            process.kill()
            self._wait(process)

    def _answer(self, question: bytes, limit_s: float) -> tuple[str, Any, float]:
        until_s = time.monotonic() + limit_s
        for again in (True, False):
            warm = self._process is not None
            process = self._process = self._process or _started()
            assert process.stdin is not None and process.stdout is not None
            # whatever holds it up, pipes included, ends with it
            late = threading.Timer(max(0.0, until_s - time.monotonic()), process.kill)
            late.start()
            try:
                _write(process.stdin, question)
                answer: tuple[str, Any, float] = pickle.loads(_read(process.stdout))
                return answer
            except (EOFError, OSError):
                self._process = None
                process.kill()
                self._wait(process)
                if not (again and warm and time.monotonic() < until_s):
                    break  # else it had ended while it was asked nothing
            finally:
                late.cancel()
        if time.monotonic() >= until_s:
            return "failed", f"no answer within {human(limit_s)}; ask for a longer time limit", 0.0
        return "failed", f"it could not be simulated: status {process.returncode}", 0.0

    @staticmethod
    def _wait(process: "subprocess.Popen[bytes]") -> None:
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()
        process.wait()


def _started() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # not what lies in the folder where we are
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _write(stream: IO[bytes], text: bytes) -> None:
    stream.write(len(text).to_bytes(8, "big") + text)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes:
    """Return one text. Raises EOFError where the stream ends before."""
    head = stream.read(8)
    text = stream.read(int.from_bytes(head, "big")) if len(head) == 8 else b""
    if len(head) < 8 or len(text) < int.from_bytes(head, "big"):
        raise EOFError
    return text


def main() -> None:
    """Answer the questions on standard input until there are no more."""
    os.nice(NICE)
    own_stdout()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while select.select([asked], [], [], IDLE_S)[0]:
        try:
            text = _read(asked)
        except EOFError:
            return
        began_s = time.process_time()
        kind, answer = _called(text)
        _write(answers, pickle.dumps((kind, answer, time.process_time() - began_s)))


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
