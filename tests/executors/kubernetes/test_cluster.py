"""What Kubernetes and its other users do to attempts, on a real API server."""

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import AttemptKey, AttemptState, NoAnswerError, RefusedError
from optsched.executors.kubernetes import KubernetesApi
from optsched.executors.kubernetes.pods import pod_name
from optsched.executors.supervision import processes
from optsched.testing.executors import until
from tests.live.kubernetes_cluster import KubernetesCluster
from tests.live.kubernetes_node import GPU
from tests.live.kubernetes_server import NAMESPACE

from .conftest import KubernetesPlace

pytestmark = pytest.mark.slow
SAVES = "trap 'exit 85' TERM; touch ready-$OPTSCHED_NODE; while :; do sleep 0.05; done"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture
def place(kubernetes: KubernetesCluster) -> Iterator[KubernetesPlace]:
    with tempfile.TemporaryDirectory(prefix="optsched-place-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        made = KubernetesPlace(Path(name), kubernetes)
        yield made
        made.clear()


@pytest.fixture
def others(kubernetes: KubernetesCluster) -> Iterator["Others"]:
    made = Others(kubernetes)
    yield made
    made.clear()


class Others:
    """Pods of somebody else, in another namespace."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self.cluster, self.made = cluster, list[str]()

    def run(self, name: str, node: str, gpus: int) -> None:
        self.made.append(name)
        resources = {"limits": {GPU: str(gpus), "cpu": "500m"}}
        container = {
            "name": "main",
            "image": "host",
            "command": ["sleep", "1000"],
            "resources": resources,
        }
        self.cluster.api.create(
            "/api/v1/namespaces/default/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"containers": [container], "nodeName": node},
            },
        )
        until(
            lambda: (
                self.cluster.api.get(f"/api/v1/namespaces/default/pods/{name}")["status"]["phase"]
                == "Running"
            )
        )

    def clear(self) -> None:
        for name in self.made:
            self.cluster.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=1)
        until(lambda: not self.cluster.api.items("/api/v1/namespaces/default/pods"))


def pods_of(place: KubernetesPlace, key: AttemptKey) -> list[dict[str, Any]]:
    found = place.cluster.api.items(PODS, labelSelector=f"optsched.io/tag={place.executor._tag}")  # type: ignore
    return [
        pod for pod in found if pod["metadata"]["annotations"].get("optsched.io/key") == str(key)
    ]


def pod_of(place: KubernetesPlace, key: AttemptKey, rank: int = 0) -> str:
    return pod_name(key, rank, place.executor._tag)  # type: ignore[attr-defined]


def ready(place: KubernetesPlace, *nodes: str) -> None:
    until(lambda: all((place.folder / f"ready-{node}").exists() for node in nodes))


# ------------------------------------------------------------------------------------------------
# other users


def test_gpus_of_others_are_not_given(place: KubernetesPlace, others: Others) -> None:
    others.run("theirs", "n1", 3)
    place.reopen()
    found = {status.node.name: status.node for status in place.executor.inventory()}
    assert (found["n1"].gpus, found["n1"].cpus, found["n2"].gpus) == (1, 31, 4)
    with pytest.raises(RefusedError, match="node n1 has 1 of its 1 GPUs free, not 2"):
        place.shell("job", "true", gpus=2)
    assert place.end(place.shell("job", "true", gpus=1)).exit_status == 0


def test_a_gang_of_which_a_node_was_taken_meanwhile(place: KubernetesPlace, others: Others) -> None:
    """The node itself refuses the pod; nothing of the gang runs, and nothing of it is left."""
    place.executor.inventory()  # all are free then
    others.run("theirs", "n2", 3)
    key = place.shell("gang", "touch ran", nodes=("n1", "n2"), gpus=2)
    seen = place.end(key)
    assert seen.exit_status is None
    assert seen.reason is not None and seen.reason.startswith(
        f"on n2 its node has too little left (OutOf{GPU})"
    ), seen
    assert not (place.folder / "ran").exists()
    until(lambda: place.see(key) and not pods_of(place, key))


def test_a_pod_that_somebody_binds_elsewhere(place: KubernetesPlace) -> None:
    class Meddled(KubernetesApi):
        def bind(self, name: str, binding: Mapping[str, Any]) -> None:
            other = {**binding, "target": {**binding["target"], "name": "n3"}}
            place.cluster.api.create(f"{PODS}/{name}/binding", other)
            super().bind(name, binding)

    place.executor.api = Meddled(place.cluster.kubeconfig, None, NAMESPACE, 20.0)  # type: ignore[attr-defined]
    key = place.shell("job", "touch ran", nodes=("n2",))
    seen = place.end(key)
    assert seen.exit_status is None
    assert seen.reason is not None and seen.reason.startswith(
        "Kubernetes did not bind its pod to n2"
    ), seen
    assert not (place.folder / "ran").exists()


# ------------------------------------------------------------------------------------------------
# pods that must go


def test_evicted_while_it_can_save(place: KubernetesPlace) -> None:
    key = place.shell("job", SAVES)
    ready(place, "n1")
    place.cluster.evict(pod_of(place, key))
    seen = place.end(key)
    assert seen.exit_status == 85
    assert seen.reason in (
        "its pod was deleted by somebody else",
        "its pod was deleted or evicted by somebody else",
    )


def test_a_gang_is_asked_to_save_when_one_pod_is_evicted(place: KubernetesPlace) -> None:
    key = place.shell("gang", SAVES, nodes=("n1", "n2"))
    ready(place, "n1", "n2")
    place.cluster.evict(pod_of(place, key, 1))
    assert place.end(key).exit_status == 85


def test_deleted_while_nobody_looks(place: KubernetesPlace) -> None:
    """The supervisors alone have all of the gang save."""
    key = place.shell("gang", SAVES, nodes=("n1", "n2"), environment={"PLACE": str(place.folder)})
    ready(place, "n1", "n2")
    name = pod_of(place, key)
    place.executor.close()
    try:
        place.cluster.api.delete(f"{PODS}/{name}")
        until(lambda: not place.processes(key))
    finally:
        place.executor = place.open()
    seen = place.end(key)
    assert (seen.exit_status, seen.reason) == (
        85,
        "its pod was deleted or evicted by somebody else",
    )


def test_evicted_and_nothing_saved(place: KubernetesPlace) -> None:
    """That is no failure of the command: its status says nothing."""
    key = place.shell("job", "touch ready-$OPTSCHED_NODE; sleep 600")
    ready(place, "n1")
    place.cluster.evict(pod_of(place, key))
    seen = place.end(key)
    assert seen.exit_status is None
    assert seen.reason is not None and "by somebody else" in seen.reason


def test_removed_by_force(place: KubernetesPlace) -> None:
    key = place.shell("job", "touch ready-$OPTSCHED_NODE; trap '' TERM; sleep 600")
    ready(place, "n1")
    place.cluster.api.delete(f"{PODS}/{pod_of(place, key)}", gracePeriodSeconds=0)
    seen = place.end(key)
    assert seen.exit_status is None and seen.reason == "its pod is gone from Kubernetes"


def test_its_supervisor_is_killed(place: KubernetesPlace) -> None:
    key = place.shell(
        "job", "touch ready-$OPTSCHED_NODE; sleep 600", environment={"PLACE": str(place.folder)}
    )
    ready(place, "n1")
    folder = f"{place.folder}/state/attempts/job/1/n1".encode()
    [supervisor] = [
        pid
        for pid in processes.every()
        if _words(pid)[-1:] == [folder]
        and b"python" in _words(pid)[0]
        and b"unshare" not in _words(pid)[0]
    ]
    os.kill(supervisor, signal.SIGKILL)
    seen = place.end(key)
    assert seen.exit_status is None
    assert seen.reason is not None and "its supervisor said nothing" in seen.reason
    assert not place.processes(key)


def _words(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    return [b""]


# ------------------------------------------------------------------------------------------------
# nodes


def test_a_cordoned_node_takes_nothing_new(place: KubernetesPlace) -> None:
    key = place.shell("job", SAVES)
    place.reach(key, AttemptState.RUNNING)
    place.cluster.set_unschedulable("n1", True)
    try:
        until(
            lambda: (
                [one.reason for one in place.executor.inventory() if not one.usable]
                == ["is cordoned"]
            )
        )
        with pytest.raises(RefusedError, match="node n1 is cordoned"):
            place.shell("other", "true")
        assert place.see(key).state is AttemptState.RUNNING
    finally:
        place.cluster.set_unschedulable("n1", False)
    until(lambda: all(one.usable for one in place.executor.inventory()))


def test_a_silent_node_that_still_runs_its_command(place: KubernetesPlace) -> None:
    """Its kubelet is cut off, but not its file system: what runs there has ended before another
    attempt may start."""
    script = "trap '' TERM; while :; do date +%s.%N >> counted; sleep 0.05; done"
    key = place.shell("job", script, nodes=("n4",), environment={"PLACE": str(place.folder)})
    counted = place.folder / "counted"
    until(counted.exists)
    agent = place.agent("n4")
    os.kill(agent, signal.SIGSTOP)
    try:
        place.cluster.give_up_node("n4")
        assert (
            place.reach(key, AttemptState.UNREACHABLE).reason == "its node does not answer any more"
        )
        seen = place.end(key)
        assert (seen.exit_status, seen.reason) == (None, "its node does not answer any more")
        assert not place.processes(key)
        before = counted.read_text()
        place.executor.forget(key)
    finally:
        os.kill(agent, signal.SIGCONT)
    until(lambda: place.cluster.ready("n4"))
    place.cluster.set_unschedulable("n4", False)
    until(lambda: place.executor.observe() == () and not pods_of(place, key))
    assert counted.read_text() == before
    until(lambda: all(one.usable for one in place.executor.inventory()))


def test_a_node_that_is_gone_before_its_pod_began(place: KubernetesPlace) -> None:
    os.kill(place.agent("n4"), signal.SIGSTOP)
    key = place.shell("job", "touch ran", nodes=("n4",))
    time.sleep(0.5)
    assert place.see(key).state is AttemptState.STARTING
    os.kill(place.agent("n4"), signal.SIGCONT)  # or the host is not there to be crashed
    place.cluster.kill_node("n4")
    try:
        assert place.end(key).exit_status in (None, 0)
    finally:
        place.cluster.return_node("n4")
    until(lambda: all(one.usable for one in place.executor.inventory()))


# ------------------------------------------------------------------------------------------------
# starting


def test_an_image_that_cannot_be_had(place: KubernetesPlace) -> None:
    key = place.shell("job", "true", image="registry.invalid/nothing:1")
    seen = place.end(key)
    assert seen.exit_status is None
    assert seen.reason is not None and seen.reason.startswith(
        "its container cannot begin: ImagePullBackOff"
    ), seen
    until(lambda: place.see(key) and not pods_of(place, key))


def test_a_state_folder_that_pods_do_not_have(place: KubernetesPlace) -> None:
    """Everything before the supervisor begins is told by Kubernetes alone."""
    place.more["python"] = "no-such-python"
    place.reopen()
    seen = place.end(place.shell("job", "true"))
    assert seen.exit_status is None
    assert (
        seen.reason is not None and "'no-such-python': executable file not found" in seen.reason
    ), seen


def test_a_pod_that_does_not_begin_in_time(place: KubernetesPlace) -> None:
    place.more["start_timeout_s"] = 2.0
    place.reopen()
    agent = place.agent("n4")
    os.kill(agent, signal.SIGSTOP)
    try:
        key = place.shell("gang", "touch ran", nodes=("n3", "n4"))
        until(lambda: place.see(key).state is AttemptState.STARTING)
        until(
            lambda: (
                place.executor.observe()
                and all(  # it is told to end, which its node would have to confirm
                    pod["metadata"].get("deletionTimestamp") for pod in pods_of(place, key)
                )
            )
        )
    finally:
        os.kill(agent, signal.SIGCONT)
    seen = place.end(key)
    assert seen.exit_status is None and not (place.folder / "ran").exists()
    # n3 may be as late, where the machine is busy
    said = "on n[34] it did not begin within 2 s: its node has not begun with its pod"
    assert re.fullmatch(said, seen.reason or "")


@pytest.mark.parametrize("call", ["create", "bind"])
def test_an_answer_that_is_lost(place: KubernetesPlace, call: str) -> None:
    """The controller dies in between, too: there is one pod, and one run."""

    def loses(*given: Any) -> None:
        getattr(KubernetesApi, call)(place.executor.api, *given)  # type: ignore[attr-defined]
        raise NoAnswerError("it is lost")

    setattr(place.executor.api, call, loses)  # type: ignore[attr-defined]
    order = place.order("gang", "sh", "-c", "echo run >> runs", nodes=("n1", "n2"))
    with pytest.raises(NoAnswerError):
        place.executor.start(order)
    place.reopen()
    assert place.see(order.key).state in (AttemptState.STARTING, AttemptState.RUNNING)
    for _ in range(2):
        place.executor.start(order)
    assert place.end(order.key).exit_status == 0
    assert (place.folder / "runs").read_text() == "run\n" * 2


def test_killed_between_pod_and_binding(place: KubernetesPlace) -> None:
    def loses(*given: Any) -> None:
        raise NoAnswerError("it is lost")

    place.executor.api.bind = loses  # type: ignore[attr-defined]
    order = place.order("job", "touch", "ran")
    with pytest.raises(NoAnswerError):
        place.executor.start(order)
    place.reopen()
    place.executor.kill(order.key)
    seen = place.end(order.key)
    assert (seen.exit_status, seen.reason) == (None, "was never started")
    place.executor.start(order)
    assert not (place.folder / "ran").exists() and not pods_of(place, order.key)


# ------------------------------------------------------------------------------------------------
# the server


def test_without_a_server_jobs_go_on_and_can_be_ended(place: KubernetesPlace) -> None:
    mine = {"PLACE": str(place.folder)}
    stays, goes = (
        place.shell(name, SAVES.replace("$OPT", f"{name}-$OPT"), environment=mine) for name in "ab"
    )
    ready(place, "a-n1", "b-n1")
    place.cluster.stop_apiserver()
    try:
        with pytest.raises(
            NoAnswerError, match=r"the API server at https://127.0.0.1:[0-9]+ does not answer"
        ):
            until(lambda: place.executor.observe() is None)
        place.executor.kill(goes)
        until(lambda: not place.processes(goes))
        assert place.processes(stays)
    finally:
        place.cluster.start_apiserver()
    until(lambda: _answers(place))
    assert place.end(goes).exit_status == -9
    assert place.see(stays).state is AttemptState.RUNNING


def _answers(place: KubernetesPlace) -> bool:
    with suppress(NoAnswerError):
        return bool(place.executor.observe())
    return False


def test_no_pod_is_left(place: KubernetesPlace) -> None:
    key = place.shell("gang", "exit 0", nodes=("n1", "n2", "n3"))
    place.end(key)
    place.executor.forget(key)
    until(lambda: place.executor.observe() == () and not pods_of(place, key))


def test_changes_are_noticed_at_once(place: KubernetesPlace) -> None:
    """Long before it is time to ask again."""
    place.more["poll_s"] = 600.0
    place.reopen()
    key = place.shell("job", "until test -e go; do sleep 0.02; done")
    until(lambda: place.executor.changes(1.0) or place.see(key).state is AttemptState.RUNNING)
    (place.folder / "go").touch()
    until(lambda: place.executor.changes(1.0) or place.see(key).state is AttemptState.ENDED)
    assert place.see(key).exit_status == 0
