"""A controller that turns in real time, on an executor whose jobs need no processes, and its
API."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from optsched import Node
from optsched.control.api.client import Client
from optsched.control.api.place import SOCKET
from optsched.control.api.server import Server, serve
from optsched.control.clock import SteadyClock
from optsched.control.controller import Controller
from optsched.control.journal.journal import Journal
from optsched.control.loop import Loop
from optsched.control.settings import NodeSettings, Settings
from optsched.executors.base import Order, RefusedError

from ..virtual import VirtualExecutor

NODES = (
    Node(name="n0", gpu_type="a", gpus=4, cpus=8),
    Node(name="n1", gpu_type="a", gpus=4, cpus=8),
)
PATIENCE_S = 60.0


class RealClock(SteadyClock):
    @property
    def at_s(self) -> float:
        return self.now_s()


@dataclass
class PassingExecutor(VirtualExecutor):
    """Jobs pass in real time; `outputs` has the file of what a job prints."""

    outputs: dict[str, str] = field(default_factory=dict)

    def start(self, order: Order) -> None:
        try:
            [float(word) for word in order.argv[1:4]][2]
        except (ValueError, IndexError):
            raise RefusedError("that is no such command") from None
        super().start(order)

    def changes(self, timeout_s: float) -> None:
        time.sleep(min(timeout_s, 0.02))

    def observe(self) -> Any:
        return tuple(
            replace(one, output=self.outputs.get(one.key.job)) for one in super().observe()
        )


def settings_of(folder: Path, **more: Any) -> Settings:
    return Settings(
        format="optsched-cluster/1",
        every=60.0,
        budget=5.0,
        state=folder,
        nodes=(NodeSettings(name="n[0-1]", gpu_type="a", gpus=4),),
        **more,
    )


class Live:
    """What a test talks to; `close` ends it all."""

    def __init__(self, folder: Path, *, turns: bool = True, **more: Any) -> None:
        self.settings = settings_of(folder, **more)
        self.clock = RealClock(0.0)
        self.executor = PassingExecutor(NODES, self.clock)  # type: ignore[arg-type]
        self.journal = Journal(folder / "journal")
        self.controller = Controller(self.settings, self.executor, self.journal, self.clock)
        self.loop = Loop(self.controller)
        self.failed: BaseException | None = None
        self.controller.bug = self._bug
        self.thread = threading.Thread(target=self._run, daemon=True)
        if turns:
            self.thread.start()
        self.server: Server = serve(self.loop, self.settings)
        self.path = folder / SOCKET
        self.client = Client(path=self.path)

    def _bug(self, what: str, error: Exception) -> None:
        self.failed = error

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            self.failed = error

    def close(self) -> None:
        self.loop.stop()
        if self.thread.is_alive():
            self.thread.join(PATIENCE_S)
        self.server.close()
        self.journal.close()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        port: bool = False,
    ) -> tuple[int, Any]:
        """One request by plain means: status, and the JSON of the answer."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if port:
            assert self.server.url is not None
            connection = http.client.HTTPConnection(
                self.server.url.removeprefix("http://"), timeout=PATIENCE_S
            )
        else:
            connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
            connection.sock = connect(self.path)
        try:
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def submit(self, seconds: float = 0.0, **more: Any) -> tuple[int, Any]:
        """A job that runs so long, and saves at once."""
        return self.ask("POST", "/v1/jobs", work(seconds, **more))

    def wait(self, name: str, *statuses: str) -> Any:
        """The job, once it has one of these statuses."""
        found: dict[str, Any] = {}

        def there() -> bool:
            found.update(self.ask("GET", f"/v1/jobs/{name}")[1]["job"])
            return found["status"] in statuses

        until(there)
        return found


def work(
    seconds: float = 0.0, *, status: int = 0, saves_s: float = 0.0, **more: Any
) -> dict[str, Any]:
    return {
        "argv": ["work", str(seconds), str(saves_s), str(status)],
        "directory": "/",
        "duration_s": 10.0,
        **more,
    }


def connect(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(PATIENCE_S)
    found.connect(str(path))
    return found


def until(there: Callable[[], bool]) -> None:
    """Wait for it."""
    end_s = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.02)
