"""A Ray cluster on this host: a head without jobs, and nodes of four cores and four GPUs as far as
Ray is told."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import AttemptKey, AttemptState, NoAnswerError, Observation, Order
from optsched.executors.ray import JobServer, RayExecutor, Site
from optsched.executors.supervision import processes
from optsched.model.cluster import Node
from optsched.model.instance import Slot

PATIENCE_S = 300.0
"""For what happens within seconds on any machine that is not on its knees."""
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}
RAY = Path(sys.executable).parent / "ray"


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A test that hangs fails."""

    def give_up(number: int, frame: Any) -> None:
        raise TimeoutError(f"the test has not ended within {2 * PATIENCE_S:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(int(2 * PATIENCE_S))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def until(true: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What `true` returns once that is not false."""
    end_s = time.monotonic() + patience_s
    while not (found := true()):
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.1)
    return found


class RayCluster:
    """Raylets as a person starts them, each a process group of its own."""

    def __init__(self) -> None:
        sockets = [socket.socket() for _ in range(2)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        self.port, self.server_port = (one.getsockname()[1] for one in sockets)
        for one in sockets:
            one.close()
        self.folder = Path(
            tempfile.mkdtemp(prefix="osr", dir="/tmp")
        )  # short: names of sockets have 107 characters
        self.raylets: dict[str, subprocess.Popen[bytes]] = {}
        self.server = JobServer(f"http://127.0.0.1:{self.server_port}", {}, None, 20.0)

    def start_head(self) -> None:
        """The head, and wait until its job server answers."""
        self._start(
            "head",
            self._answers,
            "--head",
            "--port",
            str(self.port),
            "--dashboard-host",
            "127.0.0.1",
            "--dashboard-port",
            str(self.server_port),
            "--num-cpus",
            "0",
            "--num-gpus",
            "0",
            "--temp-dir",
            str(self.folder / "t"),
        )

    def _answers(self) -> bool:
        try:
            return bool(self.server.nodes()) and self.server.jobs() is not None
        except NoAnswerError:
            return False

    def start_node(self, name: str) -> None:
        """A node labelled `name`, and wait until Ray has it."""

        def alive() -> bool:
            nodes = self.server.nodes()
            return [
                node["state"] for node in nodes if node["labels"].get("optsched-node") == name
            ].count("ALIVE") == 1

        self._start(
            name,
            alive,
            "--address",
            f"127.0.0.1:{self.port}",
            "--num-cpus",
            "4",
            "--num-gpus",
            "4",
            "--labels",
            f"optsched-node={name}",
        )

    def _start(self, name: str, there: Callable[[], bool], *words: str) -> None:
        """`ray start` gives up after 30 s, which a busy machine may need: then it is tried
        again."""
        log = self.folder / f"{name}.log"

        def started() -> bool:
            if name not in self.raylets or self.raylets[name].poll() is not None:
                said = log.read_text() if log.exists() else ""
                assert not said or "timed out during startup" in said, said
                with log.open("w") as out:
                    self.raylets[name] = subprocess.Popen(
                        [
                            str(RAY),
                            "start",
                            "--block",
                            "--node-ip-address",
                            "127.0.0.1",
                            "--object-store-memory",
                            "80000000",
                            *words,
                        ],
                        stdout=out,
                        stderr=out,
                        env={**os.environ, **ENVIRONMENT},
                        start_new_session=True,
                        preexec_fn=_ends_with_the_tests,
                    )
            return there()

        log.unlink(missing_ok=True)
        self.raylets.pop(name, None)
        until(started)

    def restart_job_server(self) -> None:
        """Kill -9 of what answers over HTTP, and the same started again.

        `ray start`, which would end the head when it sees that, sees no more until it is to end.
        """
        head = self.raylets["head"].pid
        os.kill(head, signal.SIGSTOP)
        found = [
            pid
            for pid in processes.descendants(head)
            if "dashboard/dashboard.py" in " ".join(_words(pid))
        ]
        assert len(found) == 1
        words, folder = _words(found[0]), os.readlink(f"/proc/{found[0]}/cwd")
        variables = Path(f"/proc/{found[0]}/environ").read_bytes().decode().split("\0")
        environment = dict(line.split("=", 1) for line in variables if "=" in line)
        processes.send_all([found[0], *processes.descendants(found[0])], signal.SIGKILL)
        with (self.folder / "dashboard.log").open("w") as out:
            self.raylets["dashboard"] = subprocess.Popen(
                words,
                cwd=folder,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_ends_with_the_tests,
            )
        until(self._answers)

    def kill(self, name: str) -> None:
        """SIGKILL to all processes of a node that Ray itself started, as when its power fails."""
        names = [
            each for each in (name, "dashboard" if name == "head" else name) if each in self.raylets
        ]
        for raylet in [self.raylets.pop(each) for each in dict.fromkeys(names)]:
            processes.send_all([raylet.pid, *processes.descendants(raylet.pid)], signal.SIGKILL)
            raylet.wait(timeout=PATIENCE_S)

    def kill_raylet(self, name: str) -> None:
        """SIGKILL to the raylet alone: its workers find out by themselves."""
        raylet = self.raylets.pop(name)
        found = [
            pid for pid in processes.descendants(raylet.pid) if _words(pid)[0].endswith("/raylet")
        ]
        assert len(found) == 1
        os.kill(found[0], signal.SIGKILL)
        raylet.wait(timeout=PATIENCE_S)

    def end(self) -> None:
        for raylet in reversed(self.raylets.values()):
            raylet.terminate()
            raylet.send_signal(signal.SIGCONT)
        for raylet in self.raylets.values():
            try:
                raylet.wait(timeout=30)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(raylet.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def _ends_with_the_tests() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # what `ray start` started ends with it


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except OSError:
        return [""]


class RayHost:
    """An executor on the cluster's nodes, and a job or two on it."""

    def __init__(self, folder: Path, cluster: RayCluster, **more: Any) -> None:
        self.folder, self.cluster = folder, cluster
        self.site = Site(**{"poll_s": 0.3, "start_timeout_s": PATIENCE_S, **more})
        self.nodes: Sequence[Node] = ()
        self.executor = self.open()

    def open(self) -> RayExecutor:
        return RayExecutor(self.folder, self.cluster.server, self.site, self.nodes)

    def order(
        self,
        job: str,
        *argv: str,
        nodes: tuple[str, ...] = ("n1",),
        gpus: int = 1,
        attempt: int = 1,
        **more: Any,
    ) -> Order:
        placement = tuple(Slot(node=node, gpus=gpus, cpus=0) for node in nodes)
        more.setdefault("directory", str(self.folder))
        return Order(key=AttemptKey(job, attempt), placement=placement, argv=argv, **more)

    def shell(self, job: str, script: str, **more: Any) -> AttemptKey:
        order = self.order(job, "/bin/sh", "-c", script, **more)
        self.executor.start(order)
        return order.key

    def see(self, key: AttemptKey) -> Observation:
        return next(seen for seen in self.executor.observe() if seen.key == key)

    def reach(self, key: AttemptKey, state: AttemptState) -> Observation:
        until(lambda: self.see(key).state in (state, AttemptState.ENDED))
        found = self.see(key)
        assert found.state is state, found
        return found

    def end(self, key: AttemptKey) -> Observation:
        return self.reach(key, AttemptState.ENDED)

    def printed(self, key: AttemptKey, node: str = "n1") -> str:
        path = self.folder / "attempts" / key.job / str(key.number) / node / "stdout"
        return path.read_text() if path.exists() else ""

    def restart(self) -> None:
        """As a controller that was stopped and started again."""
        self.executor.close()
        self.executor = self.open()

    def running(self, key: AttemptKey) -> list[int]:
        """What the attempt's command has started and has not ended."""
        progress = (
            self.folder / "attempts" / key.job / str(key.number) / "progress" / "progress.json"
        )
        found = processes.marked(
            f"OPTSCHED_KEY={key}".encode(), f"OPTSCHED_PROGRESS={progress}".encode()
        )
        return [
            pid
            for pid in found
            if processes.identity(pid) is not None and processes.alive(_identity(pid))
        ]

    def clear(self) -> None:
        for seen in self.executor.observe():
            if seen.state is not AttemptState.ENDED:
                self.executor.kill(seen.key)
        until(lambda: all(seen.state is AttemptState.ENDED for seen in self.executor.observe()))
        assert not [pid for seen in self.executor.observe() for pid in self.running(seen.key)]
        self.executor.close()


def _identity(pid: int) -> processes.Identity:
    return processes.identity(pid) or (pid, -1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A head and the nodes n1 and n2."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'optsched[ray]'")
    made = RayCluster()
    try:
        made.start_head()
        for name in ("n1", "n2"):
            made.start_node(name)
        yield made
    finally:
        made.end()


@pytest.fixture
def host(tmp_path: Path, cluster: RayCluster) -> Iterator[RayHost]:
    made = RayHost(tmp_path, cluster)
    yield made
    made.clear()
