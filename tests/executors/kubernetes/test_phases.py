"""What pods say of themselves, in words; their statuses are those that kubelets write."""

import time
from typing import Any

import pytest

from optsched.executors.kubernetes import phases


def pod(
    phase: str = "Pending",
    *,
    node: str | None = "gpu-1",
    state: Any = None,
    deleted: str | None = None,
    **status: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "uid": "u"}
    if deleted is not None:
        metadata["deletionTimestamp"] = deleted
    made: dict[str, Any] = {"phase": phase, **status}
    if state is not None:
        made["containerStatuses"] = [
            {"name": "istio-proxy", "state": {"running": {}}},
            {"name": "job", "state": state},
        ]
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": made}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            pod(
                "Failed",
                reason="OutOfnvidia.com/gpu",
                message="Pod was rejected: Node didn't have enough resource.",
            ),
            "its node has too little left (OutOfnvidia.com/gpu): Pod was rejected: Node didn't "
            "have enough resource",
        ),
        (
            pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
            "its node evicted it: The node was low on resource: memory",
        ),
        (
            pod("Failed", reason="UnexpectedAdmissionError", message="Allocate failed"),
            "its node would not have it: UnexpectedAdmissionError: Allocate failed",
        ),
        (
            pod(
                "Failed",
                conditions=[
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "PreemptionByScheduler",
                        "message": "preempting to accommodate a higher priority pod",
                    }
                ],
            ),
            "Kubernetes removed its pod: PreemptionByScheduler: preempting to accommodate a "
            "higher priority pod",
        ),
        (pod("Failed", deleted="2026-01-01T00:00:00Z"), "its pod was deleted by somebody else"),
        (
            pod(
                "Failed",
                state={
                    "terminated": {
                        "exitCode": 128,
                        "reason": "StartError",
                        "message": 'exec: "python3": executable file not found in $PATH',
                    }
                },
            ),
            "its container ended with status 128 (StartError), and its supervisor said nothing: "
            'exec: "python3": executable file not found in $PATH',
        ),
        (pod("Failed"), "its pod failed without a word"),
    ],
)
def test_how_a_pod_ended(seen: dict[str, Any], words: str) -> None:
    assert phases.how_it_ended(seen) == words


def test_what_a_pod_waits_for() -> None:
    pulls = {
        "waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere/x"'}
    }
    assert phases.hopeless(pod(state=pulls)) == (
        'its container cannot begin: ImagePullBackOff: Back-off pulling image "nowhere/x"'
    )
    assert phases.hopeless(pod(state=pulls), for_good=True) is None
    never = {"waiting": {"reason": "InvalidImageName", "message": "couldn't parse image name"}}
    assert phases.hopeless(pod(state=never), for_good=True) is not None
    creates = pod(state={"waiting": {"reason": "ContainerCreating"}})
    assert phases.hopeless(creates) is None
    assert phases.waits_for(creates) == "its container waits: ContainerCreating"
    assert phases.waits_for(None) == "Kubernetes does not have its pod"
    assert phases.waits_for(pod(node=None)) == "its pod is not bound to its node"
    assert phases.waits_for(pod()) == "its node has not begun with its pod"


def test_whether_it_has_ended() -> None:
    runs, ended = {"running": {}}, {"terminated": {"exitCode": 0, "reason": "Completed"}}
    cases = [
        (None, True),
        (pod("Succeeded"), True),
        (pod("Failed"), True),
        (pod("Running", state=runs), False),
        (pod("Unknown"), False),
        (pod("Running", state=ended), False),
    ]
    assert [phases.final(seen) for seen, _ in cases] == [final for _, final in cases]
    assert phases.stopped(
        pod("Running", state=ended)
    )  # a container that a site adds to all pods runs on
    assert not phases.stopped(pod("Running", state=runs))
    assert [phases.ran(pod(state=state)) for state in (None, {"waiting": {}}, runs, ended)] == [
        False,
        False,
        True,
        True,
    ]


def test_memory() -> None:
    assert phases.out_of_memory(
        pod("Failed", state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    )
    assert not phases.out_of_memory(
        pod("Failed", state={"terminated": {"exitCode": 137, "reason": "Error"}})
    )


def test_for_how_long_it_should_have_ended() -> None:
    assert phases.overdue_s(pod()) == -float("inf")
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 100))
    assert 99 < phases.overdue_s(pod(deleted=until)) < 160
