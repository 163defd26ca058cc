"""The Slurm executor does what every executor must, on a real cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest

from optsched.executors.slurm import SlurmExecutor
from optsched.executors.slurm.batch import AGENT
from optsched.testing.executors import Conformance, Place
from tests.live.slurm_cluster import SlurmCluster, everybodys_python


class SlurmPlace(Place):
    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.nodes = tuple(f"n{number}" for number in range(1, cluster.nodes + 1))
        if everybodys_python() is None or not all(
            one.stat().st_mode & 0o001 for one in Path(AGENT).parents
        ):
            self.not_for_others = "other users may not enter the folder of the package or of Python"
        self.executor = self.open()

    def open(self) -> SlurmExecutor:
        return self.cluster.executor(self.folder / "state")

    def lose_node(self, node: str) -> None:
        self.cluster.set_node(int(node[1:]), "down")

    def return_node(self, node: str) -> None:
        self.cluster.set_node(int(node[1:]), "resume")

    def clear(self) -> None:
        super().clear()
        self.cluster.recount()

    def restart_manager(self) -> None:
        self.cluster.until_saved()  # jobs that it has not written down yet it forgets
        self.cluster.kill_controller()
        self.cluster.start_controller()


@pytest.fixture
def open_place(slurm: SlurmCluster) -> Callable[[Path], SlurmPlace]:
    return lambda folder: SlurmPlace(folder, slurm)


class TestSlurm(Conformance):
    pass
