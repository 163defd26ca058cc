"""The first process of a container, as a process of this host: what it is told, and what it writes
down."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import optsched.executors.kubernetes
from optsched.executors import program
from optsched.executors.attempts.folder import AttemptFolder
from optsched.executors.base import AttemptKey
from optsched.testing.executors import until

ENTRY = Path(str(optsched.executors.kubernetes.__file__)).with_name("entry.py")
GPUS = ("GPU-aaaa", "GPU-bbbb")


class Pods:
    """The containers of an attempt, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entry = program.lay_down(folder / "kubernetes", ENTRY)
        (folder / "attempts").mkdir()
        self.attempt = AttemptFolder(folder / "attempts", AttemptKey("job", 1))
        self.running: list[subprocess.Popen[bytes]] = []

    def prepare(
        self, script: str, *names: str, gpus: int = 0, grace_s: float = 30.0, **more: Any
    ) -> None:
        nodes = [
            {
                "name": name,
                "gpus": gpus,
                "cpus": 0,
                "cores": None,
                "memory_gib": 0,
                "cgroups": {},
                "environment": {"OPTSCHED_NODE": name, "OPTSCHED_NODE_RANK": str(rank)},
            }
            for rank, name in enumerate(names or ("n1",))
        ]
        self.attempt.prepare(
            {
                "key": "optsched:job:1",
                "argv": ["/bin/sh", "-c", script],
                "directory": str(self.folder),
                "checkpoint_directory": "",
                "user": None,
                "environment": {"MINE": "1"},
                "grace_s": grace_s,
                "start_timeout_s": 60.0,
                "nodes": nodes,
                **more,
            }
        )

    def run(self, node: str = "n1", **environment: str) -> subprocess.Popen[bytes]:
        made = subprocess.Popen(
            [sys.executable, "-S", "-E", str(self.entry), str(self.attempt.path / node)],
            env={"PATH": os.defpath, **environment},
            start_new_session=True,
        )
        self.running.append(made)
        return made

    def printed(self, node: str = "n1") -> str:
        return (self.attempt.path / node / "stdout").read_text()

    def record(self, *parts: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.attempt.path.joinpath(*parts).read_text())
        return found

    def end(self, process: subprocess.Popen[bytes]) -> int:
        return process.wait(timeout=60)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    made = Pods(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("environment", "gpu_ids", "visible"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa,GPU-bbbb"}, GPUS, "GPU-aaaa,GPU-bbbb"),
        ({"NVIDIA_VISIBLE_DEVICES": "4,6"}, ("4", "6"), "0,1"),
        ({"CUDA_VISIBLE_DEVICES": "4,6", "NVIDIA_VISIBLE_DEVICES": "all"}, ("4", "6"), "4,6"),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "FAKE": "1"}, GPUS, "GPU-aaaa,GPU-bbbb"),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "FAKE": "MIG"}, ("MIG-cc", "MIG-dd"), "MIG-cc,MIG-dd"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, (), "0,1"),
    ],
)
def test_which_gpus_it_has(
    pods: Pods, environment: dict[str, str], gpu_ids: tuple[str, ...], visible: str
) -> None:
    """As device plugins say it: by id, by number, or not at all (CDI), when NVIDIA's own program is
    asked."""
    lists = "GPU 0: NVIDIA A100 (UUID: GPU-aaaa)\n"
    lists += "  MIG 1g.5gb Device 0: (UUID: MIG-cc)\n  MIG 1g.5gb Device 1: (UUID: MIG-dd)\n" * (
        environment.get("FAKE") == "MIG"
    )
    lists += "GPU 1: NVIDIA A100 (UUID: GPU-bbbb)\n"
    programs = pods.folder / "bin"
    programs.mkdir()
    if environment.pop("FAKE", None):
        (programs / "nvidia-smi").write_text(
            f"#!/bin/sh\ntest $1 = -L && cat <<'END'\n{lists}END\n"
        )
        (programs / "nvidia-smi").chmod(0o755)
    pods.prepare('echo "$CUDA_VISIBLE_DEVICES"', gpus=2)
    assert pods.end(pods.run(PATH=f"{programs}:{os.defpath}", **environment)) == 0
    assert pods.printed() == f"{visible}\n"
    assert pods.record("n1", "claim.json")["gpu_ids"] == list(gpu_ids)


def test_without_gpus_it_sees_none(pods: Pods) -> None:
    pods.prepare('echo "<$CUDA_VISIBLE_DEVICES>$OF_THE_IMAGE$OPTSCHED_POD_ADDRESS$MINE"')
    pods.end(
        pods.run(
            NVIDIA_VISIBLE_DEVICES="all", OF_THE_IMAGE="image", OPTSCHED_POD_ADDRESS="10.0.0.7"
        )
    )
    assert pods.printed() == "<>image1\n"


def test_nothing_runs_twice(pods: Pods) -> None:
    pods.prepare("echo ran; exit 3")
    assert [pods.end(pods.run()) for _ in range(2)] == [3, 0]
    assert pods.printed() == "ran\n"


def test_nothing_runs_on_another_node_or_after_it_was_forgotten(pods: Pods) -> None:
    pods.prepare("echo ran")
    assert pods.end(pods.run(OPTSCHED_POD_NODE="n2")) == 64
    assert (
        pods.attempt.exit("n1") is None and not (pods.attempt.path / "n1" / "claim.json").exists()
    )
    pods.attempt.remove(outputs=True)
    assert pods.end(pods.run()) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_deletion_is_a_request_to_save_to_the_whole_gang(pods: Pods, number: int) -> None:
    pods.prepare(
        "trap 'exit 85' TERM; touch $OPTSCHED_NODE; while :; do sleep 0.05; done", "n1", "n2"
    )
    first, second = pods.run("n1"), pods.run("n2")
    until(lambda: all((pods.folder / name).exists() for name in ("n1", "n2")))
    second.send_signal(number)
    assert pods.end(second) == pods.end(first) == 85
    assert (
        pods.record("progress", "told.json")["lost"]
        == "its pod was deleted or evicted by somebody else"
    )
    assert not (pods.attempt.path / "stop.json").exists()


def test_a_deletion_that_was_asked_for_says_nothing_more(pods: Pods) -> None:
    pods.prepare("trap 'exit 85' TERM; touch ready; while :; do sleep 0.05; done")
    process = pods.run()
    until(lambda: (pods.folder / "ready").exists())
    pods.attempt.write_stop({"asked_s": 1.0, "grace_s": 30.0, "overdue": "late", "lost": None})
    process.send_signal(signal.SIGTERM)
    assert pods.end(process) == 85
    assert not (pods.attempt.path / "progress" / "told.json").exists()


def test_its_grace_when_it_is_deleted(pods: Pods) -> None:
    pods.prepare("trap '' TERM; touch ready; while :; do sleep 0.05; done", grace_s=0.3)
    process = pods.run()
    until(lambda: (pods.folder / "ready").exists())
    process.send_signal(signal.SIGTERM)
    assert pods.end(process) == 128 + 9
    assert (
        pods.record("n1", "exit.json")["reason"]
        == "did not stop within the 0.3 s it was given, and was killed"
    )


def test_one_that_was_given_up_and_forgotten_ends(pods: Pods) -> None:
    """A node that comes back finds nothing of its attempt any more."""
    pods.prepare("trap '' TERM; touch ready; while :; do sleep 0.05; done")
    process = pods.run()
    until(lambda: (pods.folder / "ready").exists())
    pods.attempt.remove(outputs=False)
    assert pods.end(process) != 0


def test_a_gang_begins_together_or_not_at_all(pods: Pods) -> None:
    pods.prepare("echo ran", "n1", "n2", start_timeout_s=1.0)
    pods.end(pods.run("n1"))
    assert pods.record("progress", "failed.json") == {
        "node": "n2",
        "status": None,
        "reason": "its pod did not start within 1 s",
    }
    ending = pods.record("n1", "exit.json")
    assert (ending["status"], ending["started_s"]) == (None, None)
    pods.end(pods.run("n2"))
    assert not list(pods.attempt.path.glob("*/stdout"))


def test_where_a_gang_meets(pods: Pods) -> None:
    pods.prepare("echo $MASTER_ADDR $MASTER_PORT", "n1", "n2")
    running = [
        pods.run("n1", OPTSCHED_POD_ADDRESS="10.1.2.3"),
        pods.run("n2", OPTSCHED_POD_ADDRESS="10.1.2.4"),
    ]
    assert [pods.end(process) for process in running] == [0, 0]
    address, port = pods.printed("n1").split()
    assert address == "10.1.2.3" and 1023 < int(port) < 65536
    assert pods.printed("n2") == pods.printed("n1")
