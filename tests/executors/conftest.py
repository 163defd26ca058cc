"""A host with emulated GPUs, on which real processes run."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import AttemptKey, AttemptState, Observation, Order
from optsched.executors.local import LocalExecutor, LocalNode
from optsched.executors.supervision import processes
from optsched.model.cluster import Node
from optsched.model.instance import Slot
from tests.live.slurm_cluster import SlurmCluster, missing, slurm_cluster

PATIENCE_S = 180.0
"""For what happens at once on any machine that is not on its knees."""


def until(true: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What `true` returns once that is not false."""
    end_s = time.monotonic() + patience_s
    while not (found := true()):
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.01)
    return found


class Host:
    """An executor with two nodes of four emulated GPUs, and a job or two on it."""

    def __init__(
        self, folder: Path, nodes: Sequence[LocalNode] | None = None, outputs: Path | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.outputs = folder, outputs
        self.nodes = nodes or [
            LocalNode(node=Node(name=name, gpu_type="a100", gpus=4, cpus=64), emulate=True)
            for name in ("n0", "n1")
        ]
        self.executor = LocalExecutor(folder, self.nodes, outputs)

    def order(
        self, job: str, *argv: str, nodes: Sequence[str] = ("n0",), gpus: int = 1, **more: Any
    ) -> Order:
        placement = tuple(Slot(node=node, gpus=gpus, cpus=1) for node in nodes)
        more.setdefault("directory", str(self.folder))
        return Order(key=AttemptKey(job, 1), placement=placement, argv=argv, **more)

    def start(self, job: str, *argv: str, **more: Any) -> AttemptKey:
        order = self.order(job, *argv, **more)
        self.executor.start(order)
        return order.key

    def shell(self, job: str, script: str, **more: Any) -> AttemptKey:
        return self.start(job, "/bin/sh", "-c", script, **more)

    def see(self, key: AttemptKey) -> Observation:
        return next(seen for seen in self.executor.observe() if seen.key == key)

    def reach(self, key: AttemptKey, state: AttemptState) -> Observation:
        until(lambda: self.see(key).state in (state, AttemptState.ENDED))
        assert self.see(key).state is state
        return self.see(key)

    def end(self, key: AttemptKey) -> Observation:
        return self.reach(key, AttemptState.ENDED)

    def printed(self, key: AttemptKey) -> str:
        output = self.see(key).output
        assert output is not None
        return Path(output).read_text() if Path(output).exists() else ""

    def attempt(self, key: AttemptKey) -> Path:
        return self.folder / "attempts" / key.job / str(key.number)

    def restart(self) -> None:
        """As a controller that was stopped and started again."""
        self.executor.close()
        self.executor = LocalExecutor(self.folder, self.nodes, self.outputs)

    def processes(self, key: AttemptKey) -> list[int]:
        """What the command of an attempt has started and has not ended, its environment
        unchanged."""
        return processes.marked(
            f"OPTSCHED_KEY={key}".encode(), f"OPTSCHED_PROGRESS={self.progress(key)}".encode()
        )

    def progress(self, key: AttemptKey) -> Path:
        return self.attempt(key) / "progress" / "progress.json"

    def clear(self) -> None:
        for seen in self.executor.observe():
            if seen.state is not AttemptState.ENDED:
                self.executor.kill(seen.key)
        until(lambda: all(seen.state is AttemptState.ENDED for seen in self.executor.observe()))
        mark = f"OPTSCHED_PROGRESS={self.folder}/".encode()
        assert not [pid for pid in processes.every() if mark in _environment(pid)]
        self.executor.close()


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A cluster for all tests of Slurm of this process."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def holding() -> Iterator[SlurmCluster]:
    """A cluster that holds the jobs which users submit, for all tests of this process."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster(holds=True) as cluster:
        yield cluster


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.clear()
