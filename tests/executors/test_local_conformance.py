"""The local executor does what every executor must."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.executors.local import LocalExecutor, LocalNode
from optsched.model.cluster import Node

from .conformance import Conformance, Place


class LocalPlace(Place):
    nodes = ("n0", "n1")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.executor = self.open()

    def open(self) -> LocalExecutor:
        nodes = [
            LocalNode(node=Node(name=name, gpus=4, cpus=64), emulate=True) for name in self.nodes
        ]
        return LocalExecutor(self.folder / "state", nodes)


@pytest.fixture
def place() -> Iterator[LocalPlace]:
    with tempfile.TemporaryDirectory(prefix="optsched-place-") as name:
        Path(name).chmod(0o755)
        made = LocalPlace(Path(name))
        yield made
        made.clear()


class TestLocal(Conformance):
    pass
