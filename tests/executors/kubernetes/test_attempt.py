"""What an attempt is seen to be, for each thing that its files, its pods and their nodes can
say."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.attempts.attempt import FENCE_S, LOST_GRACE_S, SETTLE_S
from optsched.executors.base import AttemptKey, AttemptState, NodeStatus, Observation
from optsched.executors.kubernetes.attempt import HOPELESS_S, KubernetesAttempt
from optsched.executors.kubernetes.nodes import KubernetesNode
from optsched.executors.kubernetes.view import Seen
from optsched.model.cluster import Node

RUNS, DONE = {"running": {}}, {"terminated": {"exitCode": 0, "reason": "Completed"}}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
SILENT = KubernetesNode(
    status=NodeStatus(node=Node(name="n1"), usable=False, reason="does not answer"),
    ready=False,
    lost=None,
)
LOST = KubernetesNode(status=SILENT.status, ready=False, lost="its node does not answer any more")


class Case:
    """An attempt on n1 (and n2), and a clock that a test turns."""

    def __init__(self, folder: Path, nodes: int = 1, memory_gib: float = 2.0) -> None:
        self.attempt = KubernetesAttempt(folder, AttemptKey("job", 1), "tag")
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.attempt.folder.prepare(
            {
                "key": "optsched:job:1",
                "made_s": time.time(),
                "user": None,
                "checkpoint_directory": "",
                "grace_s": 60.0,
                "start_timeout_s": 600.0,
                "nodes": [
                    {"name": name, "gpus": 1, "memory_gib": memory_gib} for name in self.names
                ],
            }
        )
        self.at_s = 0.0

    def write(self, name: str, record: Mapping[str, Any], node: str = "n1") -> None:
        (self.attempt.folder.path / node / name).write_text(json.dumps(record))

    def begun(self, node: str = "n1") -> None:
        self.write("claim.json", {"by": "pod", "gpu_ids": ["GPU-1"]}, node)
        self.write("pid.json", {"started_s": 5.0}, node)

    def ended(self, status: int | None, node: str = "n1", started_s: float | None = 5.0) -> None:
        self.write(
            "exit.json",
            {"status": status, "reason": None, "started_s": started_s, "ended_s": 9.0},
            node,
        )

    def look(
        self,
        *pods: Mapping[str, Any] | None,
        node: KubernetesNode | None = None,
        after_s: float = 0.0,
        gone: bool = False,
    ) -> Observation:
        self.at_s += after_s
        well = {
            name: KubernetesNode(status=NodeStatus(node=Node(name=name)), ready=True, lost=None)
            for name in self.names
        }
        nodes = {**well, **({"n1": node} if node else {})}
        if gone:
            del nodes["n1"]
        names = self.attempt.pod_names()
        listed = {name: each for name, each in zip(names, pods, strict=True) if each is not None}
        return self.attempt.look(Seen(at_s=self.at_s, nodes=nodes, pods=listed))

    @property
    def stop(self) -> dict[str, Any]:
        return self.attempt.folder.stop_record() or {}


def pod(
    phase: str = "Running", state: Any = RUNS, deleted_s: float | None = None, **status: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "uid": "u"}
    if deleted_s is not None:
        metadata["deletionTimestamp"] = time.strftime(
            "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + deleted_s)
        )
    made = {
        "phase": phase,
        "containerStatuses": [{"name": "job", "state": state}] if state else [],
        **status,
    }
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": made}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_from_its_beginning_to_its_end(case: Case) -> None:
    assert case.look(None).state is AttemptState.STARTING
    assert case.look(pod("Pending", None)).state is AttemptState.STARTING
    assert not case.attempt.soon
    assert case.look(pod()).state is AttemptState.STARTING
    assert case.attempt.soon
    case.begun()
    seen = case.look(pod())
    assert (seen.state, seen.started_s, dict(seen.gpu_ids)) == (
        AttemptState.RUNNING,
        5.0,
        {"n1": ("GPU-1",)},
    )
    case.ended(0)
    assert case.look(pod()).state is AttemptState.RUNNING  # its pod has the GPUs yet
    seen = case.look(pod("Succeeded", DONE))
    assert (seen.state, seen.exit_status, seen.reason, seen.ended_s) == (
        AttemptState.ENDED,
        0,
        None,
        9.0,
    )


def test_a_container_that_others_add_runs_on(case: Case) -> None:
    """Then the pod is deleted, for its phase never is a final one."""
    case.begun()
    case.ended(0)
    assert case.look(pod(state=DONE)).state is AttemptState.RUNNING
    assert not case.attempt.over
    case.look(pod(state=DONE), after_s=SETTLE_S)
    assert case.attempt.over
    assert case.look(None).state is AttemptState.ENDED


def test_words_that_come_late(case: Case) -> None:
    """A shared file system may be slower than Kubernetes."""
    case.begun()
    assert case.look(pod("Succeeded", DONE)).state is AttemptState.RUNNING
    case.ended(85)
    assert case.look(pod("Succeeded", DONE)).exit_status == 85


def test_out_of_memory(tmp_path: Path) -> None:
    said = {2.0: "its memory limit of 2 GiB was exceeded", 0.0: "its container ran out of memory"}
    for memory_gib, words in said.items():
        folder = tmp_path / str(memory_gib)
        folder.mkdir()
        case = Case(folder, memory_gib=memory_gib)
        case.begun()
        case.look(pod("Failed", KILLED))
        seen = case.look(pod("Failed", KILLED), after_s=SETTLE_S)
        assert (seen.state, seen.exit_status, seen.reason) == (AttemptState.ENDED, -9, words)


def test_a_gang_of_which_one_is_out_of_memory(tmp_path: Path) -> None:
    case = Case(tmp_path, nodes=2)
    case.begun("n1")
    case.begun("n2")
    case.look(pod("Failed", KILLED), pod())
    assert case.look(pod("Failed", KILLED), pod(), after_s=SETTLE_S).state is AttemptState.RUNNING
    case.ended(-15, "n2")  # its supervisor has read failed.json
    seen = case.look(pod("Failed", KILLED), pod("Failed", DONE))
    assert (seen.exit_status, seen.reason) == (-9, "on n1 its memory limit of 2 GiB was exceeded")


def test_a_node_that_is_silent_for_a_while(case: Case) -> None:
    case.begun()
    seen = case.look(pod(), node=SILENT)
    assert (seen.state, seen.reason) == (AttemptState.UNREACHABLE, "its node n1 does not answer")
    assert case.look(pod(), node=SILENT, after_s=1000).state is AttemptState.UNREACHABLE
    assert not case.stop
    assert case.look(pod()).state is AttemptState.RUNNING


@pytest.mark.parametrize("how", ["lost", "gone", "overdue", "removed"])
def test_what_is_lost_is_fenced_first(case: Case, how: str) -> None:
    def look(after_s: float) -> Observation:
        if how == "lost":
            return case.look(pod(), node=LOST, after_s=after_s)
        if how == "gone":
            return case.look(pod(), gone=True, after_s=after_s)
        if how == "overdue":
            return case.look(pod(deleted_s=-40), node=SILENT, after_s=after_s)
        return case.look(None, after_s=after_s)

    case.begun()
    assert look(0).state is AttemptState.RUNNING
    seen = look(SETTLE_S)
    assert seen.state is AttemptState.UNREACHABLE and seen.reason == case.stop["lost"]
    assert case.stop["grace_s"] == LOST_GRACE_S
    assert look(FENCE_S - 0.1).state is AttemptState.UNREACHABLE
    seen = look(0.2)
    assert (seen.state, seen.exit_status, seen.reason) == (
        AttemptState.ENDED,
        None,
        case.stop["lost"],
    )


def test_a_lost_node_of_an_attempt_that_was_to_save(case: Case) -> None:
    """Its grace may be hours; the node's supervisor gets a new and shorter one."""
    case.begun()
    case.attempt.write_stop(7200.0)
    case.look(pod(), node=LOST)
    case.look(pod(), node=LOST, after_s=SETTLE_S)
    assert (case.stop["grace_s"], case.stop["lost"]) == (
        LOST_GRACE_S,
        "its node does not answer any more",
    )
    case.ended(85)  # it could after all
    seen = case.look(pod(), node=LOST)
    assert (seen.state, seen.exit_status) == (AttemptState.ENDED, 85)


def test_a_lost_node_is_why_the_rest_of_a_gang_failed(tmp_path: Path) -> None:
    case = Case(tmp_path, nodes=2)
    case.begun("n1")
    case.begun("n2")
    case.ended(1, "n2")  # its collective operation has failed
    (tmp_path / "job" / "1" / "progress" / "failed.json").write_text(
        json.dumps({"node": "n2", "status": 1})
    )
    for after_s in (0, SETTLE_S, FENCE_S):
        seen = case.look(pod(), pod("Failed", DONE), node=LOST, after_s=after_s)
    assert (seen.state, seen.exit_status) == (AttemptState.ENDED, None)
    assert seen.reason == "on n1 its node does not answer any more"


def test_a_pod_that_never_began_on_a_lost_node(case: Case) -> None:
    seen = case.look(pod("Pending", None), node=LOST)
    assert (seen.state, seen.exit_status, seen.reason) == (AttemptState.ENDED, None, LOST.lost)
    assert (
        json.loads((case.attempt.folder.path / "n1" / "claim.json").read_text())["by"] == "executor"
    )


def test_a_deletion_by_somebody_else(case: Case) -> None:
    case.begun()
    disruption = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "drained",
    }
    assert case.look(pod(deleted_s=60, conditions=[disruption])).state is AttemptState.RUNNING
    assert (case.stop["grace_s"], case.stop["lost"]) == (
        60.0,
        "Kubernetes removed its pod: EvictionByEvictionAPI: drained",
    )
    case.ended(-15)
    seen = case.look(pod("Failed", DONE))
    assert (seen.exit_status, seen.reason) == (
        None,
        "Kubernetes removed its pod: EvictionByEvictionAPI: drained",
    )


@pytest.mark.parametrize("jump_s", [86400.0, -86400.0])
def test_a_clock_that_jumps_while_a_pod_ends(
    case: Case, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """Its node, which does not answer, has as long as it was given."""
    leaves, now_s = pod(deleted_s=100), time.time()
    case.begun()
    assert case.look(leaves, node=SILENT).state is AttemptState.UNREACHABLE
    monkeypatch.setattr(time, "time", lambda: now_s + jump_s)
    case.look(leaves, node=SILENT, after_s=100.0)
    case.look(leaves, node=SILENT, after_s=SETTLE_S)
    assert not case.stop
    case.look(leaves, node=SILENT, after_s=30.0)
    case.look(leaves, node=SILENT, after_s=SETTLE_S)
    assert "did not end its pod in time" in case.stop["lost"]


def test_a_start_that_takes_too_long(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    creating = pod("Pending", {"waiting": {"reason": "ContainerCreating"}})
    assert case.look(creating).state is AttemptState.STARTING
    later_s = time.monotonic() + 601
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert (
        case.look(creating).state is AttemptState.STARTING
    )  # until the pod has let go of its GPUs
    assert (
        case.stop["lost"] == "it did not begin within 600 s: its container waits: ContainerCreating"
    )
    assert case.look(None).reason == case.stop["lost"]


def test_an_image_that_a_registry_has_after_all(case: Case) -> None:
    def waits(reason: str) -> dict[str, Any]:
        return pod("Pending", {"waiting": {"reason": reason, "message": "no such host"}})

    case.look(waits("ErrImagePull"))
    assert (
        case.look(waits("ImagePullBackOff"), after_s=HOPELESS_S - 1).state is AttemptState.STARTING
    )
    case.look(waits("ContainerCreating"), after_s=1)
    case.look(waits("ErrImagePull"), after_s=1)
    case.look(waits("ImagePullBackOff"), after_s=HOPELESS_S - 1)
    assert not case.stop
    case.look(waits("ErrImagePull"), after_s=1)
    assert case.stop["lost"] == "its container cannot begin: ErrImagePull: no such host"


def test_an_image_that_there_can_never_be(case: Case) -> None:
    case.look(pod("Pending", {"waiting": {"reason": "InvalidImageName"}}))
    assert case.stop["lost"] == "its container cannot begin: InvalidImageName"


def test_what_a_user_writes_is_believed_with_care(case: Case) -> None:
    case.begun()
    case.write("claim.json", {"by": "pod", "gpu_ids": 5})
    (case.attempt.folder.path / "progress" / "failed.json").write_text('{"node": ["n1"]}')
    assert case.look(pod()).gpu_ids == {"n1": ()}
    case.write(
        "exit.json", {"status": "0", "reason": 7, "started_s": "soon", "ended_s": -1, "cpu_s": True}
    )
    seen = case.look(pod("Succeeded", DONE))
    assert (seen.state, seen.exit_status, seen.ended_s, seen.cpu_s) == (
        AttemptState.ENDED,
        None,
        None,
        None,
    )
