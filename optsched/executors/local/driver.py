"""What NVIDIA's driver says of the GPUs of this host, asked by a process that may hang without
anybody waiting."""

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

LISTING = str(Path(__file__).with_name("listing.py"))
EVERY_S = 5.0
"""How often the driver is asked."""
LIMIT_S = 10.0
"""So long an answer may take before the driver counts as silent."""
FIRST_S = 30.0
"""So long the first one may take: a driver that nobody uses may have to be loaded."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or an instance of one: `kind` is "" for a whole one, else the profile of the
    instance."""

    id: str
    kind: str


class Driver:
    """Asks the driver now and then, and tells what it said last."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._asked_s: float | None = None
        self._due_s = 0.0
        self._silent_since: float | None = None
        self._gpus: tuple[Gpu, ...] | None = None
        self._fault: str | None = None

    def first(self) -> tuple[Gpu, ...]:
        """Its first answer. Raises LookupError, with a clause that says why there is none."""
        until_s = time.monotonic() + FIRST_S
        while self._gpus is None and self._fault is None and time.monotonic() < until_s:
            self._turn(FIRST_S)
            if self._process is not None and self._process.stdout is not None:
                select.select([self._process.stdout], [], [], 0.1)
        if self._gpus is None:
            raise LookupError(
                self._fault or f"NVIDIA's driver does not answer within {FIRST_S:g} s"
            )
        return self._gpus

    def look(self) -> tuple[tuple[Gpu, ...], str | None]:
        """What it listed last, and a clause that says why that is not to be relied on; returns at
        once."""
        self._turn(LIMIT_S)
        if self._silent_since is not None:
            since = datetime.fromtimestamp(self._silent_since).strftime("%Y-%m-%d %H:%M:%S")
            return self._gpus or (), f"NVIDIA's driver does not answer since {since}"
        if self._gpus is None:
            return (), self._fault or "NVIDIA's driver has not answered yet"
        return self._gpus, self._fault

    def close(self) -> None:
        """Ask no more."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _turn(self, limit_s: float) -> None:
        """Take in an answer, give up one that does not come, ask anew where that is due."""
        now_s = time.monotonic()
        process = self._process
        if process is not None:
            self._take_in(process)
            if self._asked_s is not None and now_s - self._asked_s > limit_s:
                if self._silent_since is None:
                    self._silent_since = time.time() - (now_s - self._asked_s)
                # one that hangs in the kernel goes when that lets it, and no other is sent after it
                process.kill()
            if process.poll() is not None:
                _end(process)
                self._process, self._asked_s, self._due_s = None, None, now_s + EVERY_S
        if self._asked_s is None and now_s >= self._due_s:
            self._ask(now_s)

    def _ask(self, now_s: float) -> None:
        try:
            if self._process is None:
                self._said = b""
                self._process = subprocess.Popen(
                    [sys.executable, LISTING],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                assert self._process.stdout is not None
                os.set_blocking(self._process.stdout.fileno(), False)
            assert self._process.stdin is not None
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        except OSError as error:
            self._fault, self._due_s = (
                f"NVIDIA's driver cannot be asked: {error.strerror}",
                now_s + EVERY_S,
            )
            return
        self._asked_s, self._due_s = now_s, now_s + EVERY_S

    def _take_in(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        while True:
            try:
                more = os.read(process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not more:
                break
            self._said += more
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            answer = json.loads(line)
            self._asked_s, self._silent_since = None, None
            self._fault = answer.get("fault")
            if self._fault is None:
                self._gpus = tuple(Gpu(*one) for one in answer["gpus"])


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    with suppress(subprocess.TimeoutExpired):  # it may hang in the kernel
        process.wait(0.5)
