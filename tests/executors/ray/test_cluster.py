"""What is particular to Ray, on a real cluster; `test_conformance` has what every executor does."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from optsched.errors import InputError
from optsched.executors.base import AttemptState, NoAnswerError, RefusedError
from optsched.executors.ray import JobServer, RayExecutor, Site
from optsched.executors.supervision import processes
from optsched.model.cluster import Node
from tests.executors.ray.conftest import PATIENCE_S, RAY, RayCluster, RayHost, until

pytestmark = pytest.mark.slow

BOTH = ("n2", "n1")


def test_the_nodes_are_those_with_labels(host: RayHost) -> None:
    assert [
        (one.node.name, one.node.gpus, one.node.cpus, one.usable)
        for one in host.executor.inventory()
    ] == [("n1", 4, 4, True), ("n2", 4, 4, True)]


def test_it_runs_on_the_very_node_it_was_given(host: RayHost) -> None:
    """n1 would do as well for the second and third; Ray says where each was."""
    ids = {
        node["labels"].get("optsched-node"): node["node_id"] for node in host.cluster.server.nodes()
    }
    for i, node in enumerate(BOTH):
        key = host.shell(f"job{i}", "exit 3", nodes=(node,), gpus=4)
        assert host.end(key).exit_status == 3
        jobs = [
            job for name, job in host.cluster.server.jobs().items() if name.startswith(f"{key}:0:")
        ]
        assert ids[node] in [job["driver_node_id"] for job in jobs]


def test_gpus_are_handed_out_once(host: RayHost) -> None:
    first, second = (
        host.shell("first", "sleep 600", gpus=3),
        host.shell("second", "sleep 600", gpus=1),
    )
    ids = [
        gpu
        for key in (first, second)
        for gpu in host.reach(key, AttemptState.RUNNING).gpu_ids["n1"]
    ]
    assert sorted(ids) == ["0", "1", "2", "3"]
    with pytest.raises(RefusedError, match="node n1 has 0 of its 4 GPUs free, not 1"):
        host.shell("third", "true")


def test_a_gang_begins_whole_or_not_at_all(tmp_path: Path, cluster: RayCluster) -> None:
    """Another user of the cluster holds n1: nothing of the gang runs, and nothing of it is left on
    n2."""
    cluster.server.submit(
        {
            "submission_id": f"other-{time.time()}",
            "entrypoint": "exec sleep 600",
            "entrypoint_num_gpus": 4,
            "entrypoint_label_selector": {"optsched-node": "n1"},
        }
    )
    other = until(
        lambda: [
            name
            for name, job in cluster.server.jobs().items()
            if name.startswith("other-") and job["status"] == "RUNNING"
        ]
    )
    host = RayHost(tmp_path, cluster, start_timeout_s=15.0)
    try:
        key = host.shell("gang", "echo ran", nodes=BOTH)
        seen = host.end(key)
        assert seen.exit_status is None and seen.reason is not None
        assert seen.reason.startswith("on n1 Ray did not start it within 15 s")
        assert not host.printed(key, "n1") and not host.printed(key, "n2")
    finally:
        for name in other:
            cluster.server.stop(name)
        host.clear()
    until(
        lambda: all(
            job["status"] not in ("PENDING", "RUNNING") for job in cluster.server.jobs().values()
        )
    )
    assert not host.printed(key, "n1")  # not even when n1 came free


def test_a_grace_longer_than_rays(host: RayHost) -> None:
    """Ray by itself kills a job 3 s after it was asked to stop."""
    key = host.shell("slow", "trap 'sleep 5; exit 85' TERM; touch ready; sleep 600 & wait")
    until((host.folder / "ready").exists)
    host.executor.checkpoint_stop(key, PATIENCE_S)
    host.executor.checkpoint_stop(key, 0.1)  # asked before
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (85, None)


def test_a_killed_one_that_waits_in_ray_never_runs(host: RayHost) -> None:
    """Its GPUs are held by another user: killed at once, and nothing runs when they come free."""
    name = f"holds-{time.time()}"
    host.cluster.server.submit(
        {
            "submission_id": name,
            "entrypoint": "exec sleep 600",
            "entrypoint_num_gpus": 4,
            "entrypoint_label_selector": {"optsched-node": "n1"},
        }
    )
    until(lambda: host.cluster.server.jobs()[name]["status"] == "RUNNING")
    key = host.shell("waits", "touch ran")
    assert host.see(key).state is AttemptState.STARTING
    host.executor.kill(key)
    assert host.end(key).exit_status is None
    host.cluster.server.stop(name)
    until(
        lambda: all(
            job["status"] not in ("PENDING", "RUNNING")
            for job in host.cluster.server.jobs().values()
        )
    )
    assert not (host.folder / "ran").exists()


def test_a_start_whose_answer_was_lost(host: RayHost) -> None:
    """The job server takes the job, and the answer is lost: the same key starts nothing twice."""

    class Deaf(JobServer):
        def submit(self, job: object) -> None:
            super().submit(job)  # type: ignore[arg-type]
            raise NoAnswerError("the answer was lost")

    order = host.order("once", "sh", "-c", "echo run >> runs; sleep 1")
    host.executor._server = Deaf(host.cluster.server.address, {}, None, 20.0)
    with pytest.raises(NoAnswerError):
        host.executor.start(order)
    host.restart()
    host.executor.start(order)
    assert host.end(order.key).exit_status == 0
    assert (host.folder / "runs").read_text() == "run\n"


def test_rays_own_stop_is_a_request_to_save(host: RayHost) -> None:
    """Somebody uses `ray job stop`."""
    key = host.shell("job", "trap 'exit 85' TERM; touch ready; sleep 600 & wait")
    until((host.folder / "ready").exists)
    name = next(name for name in host.cluster.server.jobs() if name.startswith(f"{key}:"))
    subprocess.run(
        [RAY, "job", "stop", "--no-wait", "--address", host.cluster.server.address, name],
        check=True,
        timeout=PATIENCE_S,
        capture_output=True,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
    )
    assert host.end(key).exit_status == 85


def test_ray_forgets_what_is_forgotten(host: RayHost) -> None:
    key = host.shell("short", "echo printed")
    seen = host.end(key)
    host.executor.forget(key)
    assert (
        host.executor.observe() == ()
        and seen.output
        and Path(seen.output).read_text() == "printed\n"
    )

    def forgotten() -> bool:
        host.executor.observe()
        return not [name for name in host.cluster.server.jobs() if name.startswith(f"{key}:")]

    until(forgotten)


def test_a_node_without_the_folder_is_explained(tmp_path: Path, cluster: RayCluster) -> None:
    host = RayHost(tmp_path, cluster, python="no-such-python")
    key = host.shell("job", "true")
    seen = host.end(key)
    assert seen.exit_status is None and seen.reason is not None
    assert seen.reason.startswith("Ray could not start it:") and "no-such-python" in seen.reason
    host.clear()


def test_declared_nodes_that_ray_does_not_have(host: RayHost) -> None:
    host.nodes = [Node(name="n1", gpus=4), Node(name="n7", gpus=4), Node(name="n2", gpus=8)]
    host.restart()
    reasons = {one.node.name: one.reason for one in host.executor.inventory()}
    assert reasons == {
        "n1": None,
        "n7": "no node of Ray has the label optsched-node=n7",
        "n2": "Ray knows 4 GPUs of it, 8 are declared",
    }
    with pytest.raises(
        RefusedError, match="node n7 cannot be used: no node of Ray has the label optsched-node=n7"
    ):
        host.shell("job", "true", nodes=("n7",))
    with pytest.raises(RefusedError, match="node n9 is not one of this executor"):
        host.shell("job", "true", nodes=("n9",))


def test_a_folder_has_one_controller(host: RayHost) -> None:
    with pytest.raises(InputError, match="in use by another controller"):
        RayExecutor(host.folder, host.cluster.server, Site())


def test_a_raylet_that_dies_takes_its_jobs_with_it(host: RayHost) -> None:
    """Without a trace on the node, and known: the node is dead, later one of the same name is
    usable again."""
    key = host.shell("gang", "trap '' TERM; while :; do sleep 1; done", nodes=BOTH)
    other = host.shell("other", "until test -e go; do sleep 0.05; done; exit 3", nodes=("n1",))
    host.reach(key, AttemptState.RUNNING)
    host.reach(other, AttemptState.RUNNING)
    host.cluster.kill_raylet("n2")
    try:
        seen = host.end(key)
        assert (
            seen.exit_status is None
            and seen.reason is not None
            and seen.reason.startswith("on n2 Ray ended it")
        )
        assert not host.running(key)
        until(lambda: not host.executor.inventory()[1].usable)
        assert "its Ray node is dead" in str(host.executor.inventory()[1].reason)
        with pytest.raises(RefusedError, match="node n2 cannot be used: its Ray node is dead"):
            host.shell("late", "true", nodes=("n2",))
    finally:
        host.cluster.start_node("n2")
    assert host.end(host.shell("again", "exit 5", nodes=("n2",))).exit_status == 5
    (host.folder / "go").touch()
    assert host.end(other).exit_status == 3


def test_a_node_that_is_lost_without_a_word(host: RayHost) -> None:
    """As when its power fails: nothing of it writes anything any more."""
    key = host.shell("job", "sleep 600", nodes=("n2",))
    host.reach(key, AttemptState.RUNNING)
    supervisor = host.executor._attempts[key].began("n2")
    assert supervisor is not None
    pid = supervisor["shim"][0]
    os.kill(pid, signal.SIGSTOP)
    host.cluster.kill("n2")
    processes.send_all([*processes.descendants(pid), pid], signal.SIGKILL)
    try:
        seen = host.end(key)
        assert (seen.exit_status, seen.started_s) == (None, supervisor["started_s"])
        assert seen.reason is not None and seen.reason.startswith("its Ray node is dead")
    finally:
        host.cluster.start_node("n2")


def test_a_head_that_is_started_anew(host: RayHost) -> None:
    """Without a store of its own Ray's head forgets all, and its nodes end: so do attempts, with a
    reason."""
    key = host.shell("job", "sleep 600")
    host.reach(key, AttemptState.RUNNING)
    host.cluster.kill("head")
    with pytest.raises(NoAnswerError, match="does not answer"):
        until(lambda: host.executor.observe() and None)
    with pytest.raises(NoAnswerError):
        host.executor.inventory()
    for name in ("n1", "n2"):
        host.cluster.kill(name)
    host.cluster.start_head()
    for name in ("n1", "n2"):
        host.cluster.start_node(name)
    seen = host.end(key)
    assert seen.exit_status is None and seen.reason
    assert not host.running(key)
    assert host.end(host.shell("next", "exit 6")).exit_status == 6
