"""The local executor does what every executor must."""

from collections.abc import Callable
from pathlib import Path

import pytest

from optsched.executors.local import LocalExecutor, LocalNode
from optsched.model.cluster import Node
from optsched.testing.executors import Conformance, Place


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
def open_place() -> Callable[[Path], LocalPlace]:
    return LocalPlace


class TestLocal(Conformance):
    pass
