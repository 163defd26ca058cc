"""What NVIDIA's driver says of the GPUs of this host, asked by a process that may hang without
anybody waiting."""

import json
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

from ...frozen import record

LISTING = str(Path(__file__).with_name("listing.py"))
EVERY_S = 5.0
"""How often the driver is asked."""
LIMIT_S = 10.0
"""So long an answer may take before the driver counts as silent."""
FIRST_S = 30.0
"""So long the first one may take: a driver that nobody uses may have to be loaded."""


@record
class Gpu:
    """A GPU, or an instance of one: `kind` is "" for a whole one, else the profile of the
    instance. `pids` are the processes that held its memory when the driver was asked."""

    id: str
    kind: str
    pids: tuple[int, ...]


class Driver:
    """Asks the driver now and then, on a thread that may hang with it, and tells what it said
    last."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_s: float | None = None
        self._silent_since: float | None = None
        self._gpus: tuple[Gpu, ...] | None = None
        self._fault: str | None = None
        self._heard, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="optsched-gpus", daemon=True)

    def first(self) -> tuple[Gpu, ...]:
        """Return its first answer. Raises LookupError, with a clause that says why there is
        none."""
        self._thread.start()
        self._heard.wait(FIRST_S)
        if self._gpus is None:
            raise LookupError(
                self._fault or f"NVIDIA's driver does not answer within {FIRST_S:g} s"
            )
        return self._gpus

    def look(self) -> tuple[tuple[Gpu, ...], str | None]:
        """Return what it listed last, and a clause that says why that is not to be relied on;
        returns at once."""
        waited_s = time.monotonic() - (self._asked_s or time.monotonic())
        if waited_s > LIMIT_S and self._process is not None:
            self._silent_since = self._silent_since or time.time() - waited_s
            # one that hangs in the kernel goes when that lets it, and no other is sent after it
            self._process.kill()
        if self._silent_since is not None:
            since = datetime.fromtimestamp(self._silent_since).strftime("%Y-%m-%d %H:%M:%S")
            return self._gpus or (), f"NVIDIA's driver has not answered since {since}"
        if self._gpus is None:
            return (), self._fault or "NVIDIA's driver has not answered yet"
        return self._gpus, self._fault

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()
        if self._process is not None:
            self._process.kill()
            self._thread.join(0.5)  # it may hang in the kernel

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._ask_one()
            except OSError as error:
                self._fault = f"NVIDIA's driver cannot be asked: {error.strerror}"
                self._heard.set()
            self._asked_s = None
            self._closed.wait(EVERY_S)

    def _ask_one(self) -> None:
        """Ask one process again and again, until it ends."""
        with subprocess.Popen(
            [sys.executable, LISTING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            self._process = process
            assert process.stdin is not None and process.stdout is not None
            while not self._closed.is_set():
                self._asked_s = time.monotonic()
                process.stdin.write(b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if not line:
                    return
                answer = json.loads(line)
                self._fault = answer.get("fault")
                if self._fault is None:
                    self._gpus = tuple(
                        Gpu(id, kind, tuple(pids)) for id, kind, pids in answer["gpus"]
                    )
                self._asked_s = self._silent_since = None
                self._heard.set()
                self._closed.wait(EVERY_S)
