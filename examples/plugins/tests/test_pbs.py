"""The executor for PBS does what every executor must, with commands that stand in for PBS."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from optsched_examples.pbs import PbsExecutor, PbsOptions
from pbs_stand_in import Server, install

from optsched.control.settings import read_settings
from optsched.errors import InputError
from optsched.executors.base import AttemptKey, AttemptState, NoAnswerError, Order, RefusedError
from optsched.executors.opening import open_executor
from optsched.model import Slot
from optsched.testing.executors import Conformance, Place, until


class PbsPlace(Place):
    nodes = ("n1", "n2")
    not_for_others = "what stands in for PBS runs everything as ourselves"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = install(folder, list(self.nodes))
        self.server = Server(folder / "pbs")
        self.executor = self.open()

    def open(self) -> PbsExecutor:
        options = PbsOptions(programs=self.programs, poll_s=0.2, start_timeout_s=120.0)
        return PbsExecutor(self.folder / "state", options)

    def lose_node(self, node: str) -> None:
        (self.server.state / f"down-{node}").touch()
        with self.server.jobs() as jobs:
            for job in jobs.values():
                if job["node"] == node:
                    self.server.end(job, f"node {node} went down")

    def return_node(self, node: str) -> None:
        (self.server.state / f"down-{node}").unlink()

    def restart_manager(self) -> None:
        (self.server.state / "stopped").touch()
        with pytest.raises(NoAnswerError, match="cannot connect to server"):
            self.executor.inventory()
        (self.server.state / "stopped").unlink()


@pytest.fixture
def open_place() -> Callable[[Path], PbsPlace]:
    return PbsPlace


class TestPbs(Conformance):
    def test_what_to_run_after_a_login(self, place: PbsPlace) -> None:
        """It is said where there is no way in, and gives what it says."""
        key = place.shell("job", "touch ready; sleep 600", environment={"MINE": "a b"})
        until((place.folder / "ready").exists)
        place.reach(key, AttemptState.RUNNING)
        with pytest.raises(RefusedError, match="log in to n1 as user") as refusal:
            place.executor.shell(key, terminal=True)
        told = str(refusal.value).partition(" and run: ")[2].removesuffix("bash")
        script = "echo $MINE $OPTSCHED_JOB; pwd"
        done = subprocess.run(
            [*shlex.split(told), "sh", "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"a b job\n{place.folder}\n"


def cluster(folder: Path, table: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(f'format = "optsched-cluster/1"\nexecutor = "pbs"\n{table}')
    return path


def test_its_table_of_cluster_toml(tmp_path: Path) -> None:
    programs = install(tmp_path, ["a", "b"])
    table = f'[pbs]\nprograms = "{programs}"\npoll = "100ms"\nqueue = "gpu"\n'
    settings = read_settings(cluster(tmp_path, table))
    assert settings.table("pbs") == PbsOptions(programs=programs, poll_s=0.1, queue="gpu")
    executor = open_executor(settings)
    try:
        assert [status.node.gpus for status in executor.inventory()] == [4, 4]
        key = AttemptKey("job", 1)
        slot = Slot(node="b", gpus=1, cpus=1)
        executor.start(Order(key=key, placement=(slot,), argv=("true",), directory=str(tmp_path)))
        until(lambda: executor.observe()[0].state is AttemptState.ENDED)
        assert executor.observe()[0].exit_status == 0
    finally:
        executor.close()


def test_faults_in_its_table(tmp_path: Path) -> None:
    table = '[pbs]\nqueu = "gpu"\npoll = 0\n'
    with pytest.raises(InputError) as refused:
        read_settings(cluster(tmp_path, table))
    assert (
        "pbs.queu: is not a known field; remove it or correct its name (did you mean queue?)"
        in (str(refused.value))
    )
    assert "pbs.poll: must be longer than 0 s" in str(refused.value)


def test_what_waits_in_vain_is_taken_back(tmp_path: Path) -> None:
    programs = install(tmp_path, ["a"])
    (tmp_path / "pbs" / "down-a").touch()
    executor = PbsExecutor(
        tmp_path / "state", PbsOptions(programs=programs, poll_s=0.1, start_timeout_s=1.0)
    )
    try:
        slot = Slot(node="a", gpus=1, cpus=1)
        key = AttemptKey("job", 1)
        executor.start(Order(key=key, placement=(slot,), argv=("true",), directory=str(tmp_path)))
        until(lambda: executor.observe()[0].state is AttemptState.ENDED)
        seen = executor.observe()[0]
        assert seen.exit_status is None and "did not begin within 1 s" in str(seen.reason)
        executor.forget(key)
        assert executor.observe() == ()
    finally:
        executor.close()
