"""The Ray executor does what every executor must, on a real cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest

from optsched.executors.ray import RayExecutor, Site
from optsched.testing.executors import Conformance, Place
from tests.executors.ray.conftest import PATIENCE_S, RayCluster

pytestmark = pytest.mark.slow


class RayPlace(Place):
    nodes = ("n1", "n2")

    def __init__(self, folder: Path, cluster: RayCluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.executor = self.open()

    def open(self) -> RayExecutor:
        site = Site(poll_s=0.3, start_timeout_s=PATIENCE_S)
        return RayExecutor(self.folder / "state", self.cluster.server, site)

    def lose_node(self, node: str) -> None:
        self.cluster.kill(node)

    def return_node(self, node: str) -> None:
        self.cluster.start_node(node)

    def restart_manager(self) -> None:
        self.cluster.restart_job_server()


@pytest.fixture
def open_place(cluster: RayCluster) -> Callable[[Path], RayPlace]:
    return lambda folder: RayPlace(folder, cluster)


class TestRay(Conformance):
    pass
