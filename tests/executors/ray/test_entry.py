"""What a Ray job runs on its node, started here as Ray would: real processes, without Ray."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.attempts.folder import AttemptFolder
from optsched.executors.base import AttemptKey, NodeStatus, Order
from optsched.executors.program import lay_down
from optsched.executors.ray.executor import PROGRAM
from optsched.executors.ray.nodes import RayNode
from optsched.executors.ray.spec import specification
from optsched.executors.supervision import processes, records
from optsched.model.cluster import Node
from optsched.model.instance import Slot
from tests.executors.ray.conftest import until

NODES = {
    name: RayNode(
        status=NodeStatus(node=Node(name=name, gpus=4)), ray_id=name * 3, address="10.0.0.1"
    )
    for name in ("n1", "n2")
}


class Attempt:
    """An attempt whose files are there; Ray is played by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entry = lay_down(folder / "ray", *PROGRAM)
        self.files = AttemptFolder(folder / "attempts", AttemptKey("job", 1))
        self.started: list[subprocess.Popen[bytes]] = []

    def prepare(
        self,
        script: str,
        nodes: tuple[str, ...] = ("n1",),
        gpus: int = 0,
        grace_s: float = 60.0,
        start_timeout_s: float = 120.0,
    ) -> None:
        (self.folder / "attempts").mkdir()
        order = Order(
            key=self.files.key,
            placement=tuple(Slot(node=name, gpus=gpus) for name in nodes),
            argv=("/bin/sh", "-c", script),
            directory=str(self.folder),
        )
        spec = specification(order, NODES, {}, self.files, grace_s, start_timeout_s)
        self.files.prepare(spec)

    def run(self, name: str = "n1", **environment: str) -> "subprocess.Popen[bytes]":
        """As Ray does: a process group of its own, of which Ray kills all."""
        words = [sys.executable, "-S", "-E", str(self.entry), str(self.files.path / name)]
        self.started.append(
            subprocess.Popen(words, env={**os.environ, **environment}, start_new_session=True)
        )
        return self.started[-1]

    def failed(self) -> dict[str, Any] | None:
        return records.read(self.files.path / "failed.json")

    def ending(self, name: str = "n1") -> dict[str, Any]:
        found: dict[str, Any] = until(lambda: self.files.exit(name))
        return found

    def printed(self, name: str = "n1") -> str:
        return (self.files.path / name / "stdout").read_text()

    def running(self) -> list[int]:
        return processes.marked(f"OPTSCHED_PROGRESS={self.files.progress_path}".encode())


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    made = Attempt(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()
    until(lambda: not made.running())


def test_the_ranks_gpus_and_status_are_handed_on(attempt: Attempt) -> None:
    attempt.prepare("env; exit 85", gpus=2)
    ray = {"CUDA_VISIBLE_DEVICES": "5,7", "RAY_JOB_STOP_WAIT_TIME_S": "1", "GIVEN": "by Ray"}
    assert attempt.run(**ray).wait(timeout=60) == 85
    variables = dict(line.split("=", 1) for line in attempt.printed().splitlines())
    assert variables["CUDA_VISIBLE_DEVICES"] == "5,7" and variables["GIVEN"] == "by Ray"
    assert (
        variables["OPTSCHED_KEY"] == "optsched:job:1"
        and "RAY_JOB_STOP_WAIT_TIME_S" not in variables
    )
    assert json.loads((attempt.files.path / "n1" / "ready.json").read_text())["gpu_ids"] == [
        "5",
        "7",
    ]
    assert attempt.ending()["status"] == 85
    assert (attempt.files.path / "n1" / "stderr").read_text() == ""


def test_a_job_that_ray_gave_too_few_gpus_does_not_run(attempt: Attempt) -> None:
    attempt.prepare("touch ran", gpus=2)
    assert attempt.run(CUDA_VISIBLE_DEVICES="5").wait(timeout=60) == 1
    failed = attempt.failed()
    assert failed is not None and failed["reason"] == "Ray gave it 1 of its 2 GPUs"
    assert not (attempt.folder / "ran").exists()


def test_nothing_is_run_twice(attempt: Attempt) -> None:
    attempt.prepare("echo run >> runs; sleep 0.5")
    first, second = attempt.run(), attempt.run()
    assert (first.wait(timeout=60), second.wait(timeout=60)) == (0, 0)
    assert attempt.run().wait(timeout=60) == 0
    assert (attempt.folder / "runs").read_text() == "run\n"


def test_what_was_taken_back_does_not_run(attempt: Attempt) -> None:
    attempt.prepare("touch ran")
    records.write_first(str(attempt.files.path / "n1" / "claim.json"), {"by": "executor"})
    assert attempt.run().wait(timeout=60) == 0
    assert not (attempt.folder / "ran").exists() and attempt.files.exit("n1") is None


def test_it_ends_when_ray_kills_its_process(attempt: Attempt) -> None:
    attempt.prepare("trap '' TERM; setsid sleep 600 & touch ready; sleep 600")
    process = attempt.run()
    until((attempt.folder / "ready").exists)
    os.killpg(process.pid, signal.SIGKILL)
    ending = attempt.ending()
    assert ending["status"] is None and ending["reason"].startswith("Ray ended it")
    until(lambda: not attempt.running())


def test_a_signal_to_all_below_rays_process_reaches_the_command_once(attempt: Attempt) -> None:
    """`ray job stop` signals the process and its descendants."""
    attempt.prepare(
        "trap 'echo told; sleep 1; exit 85' TERM; touch ready; while :; do sleep 0.1; done"
    )
    process = attempt.run()
    until((attempt.folder / "ready").exists)
    processes.send_all([process.pid, *processes.descendants(process.pid)], signal.SIGTERM)
    assert process.wait(timeout=60) == 85
    assert attempt.printed() == "told\n" and attempt.ending()["asked"]


def test_a_stop_that_ray_asks_for_has_a_deadline(attempt: Attempt) -> None:
    attempt.prepare("trap '' TERM; touch ready; while :; do sleep 0.1; done", grace_s=1.0)
    process = attempt.run()
    until((attempt.folder / "ready").exists)
    process.terminate()
    assert process.wait(timeout=60) == 128 + signal.SIGKILL
    assert attempt.ending()["reason"] == "did not stop within the 1 s it was given, and was killed"


def test_a_stop_is_seen_without_a_signal(attempt: Attempt) -> None:
    attempt.prepare("trap 'exit 85' TERM; touch ready; while :; do sleep 0.1; done")
    process = attempt.run()
    until((attempt.folder / "ready").exists)
    attempt.files.write_stop({"asked_s": time.time(), "grace_s": 60.0, "overdue": "late"})
    assert process.wait(timeout=60) == 85


def test_a_kill_overtakes_a_stop(attempt: Attempt) -> None:
    attempt.prepare("trap '' TERM; touch ready; while :; do sleep 0.1; done")
    process = attempt.run()
    until((attempt.folder / "ready").exists)
    attempt.files.write_stop({"asked_s": time.time(), "grace_s": 600.0, "overdue": "late"})
    time.sleep(1.5)
    assert process.poll() is None
    attempt.files.write_stop({"asked_s": time.time(), "grace_s": None, "overdue": None})
    process.wait(timeout=60)
    assert (attempt.ending()["status"], attempt.ending()["reason"]) == (-9, None)


def test_a_gang_waits_for_its_last_node(attempt: Attempt) -> None:
    attempt.prepare("echo $OPTSCHED_NODE_RANK $MASTER_ADDR $MASTER_PORT", nodes=("n2", "n1"))
    first = attempt.run("n2")
    until(lambda: (attempt.files.path / "n2" / "ready.json").exists())
    time.sleep(0.5)
    assert first.poll() is None and records.read(attempt.files.path / "n2" / "pid.json") is None
    second = attempt.run("n1")
    assert (first.wait(timeout=60), second.wait(timeout=60)) == (0, 0)
    ranks = [attempt.printed(name).split() for name in ("n2", "n1")]
    assert [rank[0] for rank in ranks] == ["0", "1"] and ranks[0][1:] == ranks[1][1:]
    assert ranks[0][1] == "10.0.0.1" and int(ranks[0][2]) > 1023


def test_a_gang_of_which_one_never_comes_ends(attempt: Attempt) -> None:
    attempt.prepare("touch ran", nodes=("n2", "n1"), start_timeout_s=1.0)
    assert attempt.run("n2").wait(timeout=60) == 1
    failed = attempt.failed()
    assert failed is not None and (failed["node"], failed["reason"]) == (
        "n1",
        "Ray did not start it within 1 s",
    )
    assert attempt.run("n1").wait(timeout=60) == 1
    assert not (attempt.folder / "ran").exists()


def test_one_of_a_gang_is_lost(attempt: Attempt) -> None:
    attempt.prepare(
        "trap '' TERM; touch $OPTSCHED_NODE; while :; do sleep 0.1; done", nodes=("n2", "n1")
    )
    lost, other = attempt.run("n2"), attempt.run("n1")
    until(lambda: (attempt.folder / "n1").exists() and (attempt.folder / "n2").exists())
    lost.kill()
    failed = until(attempt.failed)
    assert (
        failed["node"] == "n2"
        and failed["status"] is None
        and failed["reason"].startswith("Ray ended it")
    )
    other.wait(timeout=60)
    assert attempt.ending("n1")["status"] == -9


def test_what_a_killed_supervisor_leaves_is_ended(attempt: Attempt) -> None:
    attempt.prepare("setsid sleep 600 & sleep 600 & touch ready; wait")
    process = attempt.run()
    until((attempt.folder / "ready").exists)
    begun = records.read(attempt.files.path / "n1" / "pid.json")
    assert begun is not None
    os.kill(begun["shim"][0], signal.SIGKILL)
    assert process.wait(timeout=60) == 1
    assert not attempt.running()
    assert (attempt.ending()["status"], attempt.ending()["reason"]) == (
        None,
        "its supervisor was killed",
    )
