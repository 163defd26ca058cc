"""What nodes have, as their objects say it; the objects are like those of real clusters."""

from typing import Any

import pytest

from optsched.executors.kubernetes.nodes import (
    KubernetesNode,
    held_by_others,
    quantity,
    read_nodes,
    requests,
    tolerated,
    with_room_for,
)
from optsched.executors.kubernetes.site import Site
from optsched.model.cluster import Node

DEFAULT = Site()


def listed(
    name: str = "gpu-1",
    *,
    ready: str = "True",
    message: str = "kubelet is posting ready status",
    taints: Any = None,
    labels: Any = None,
    unschedulable: bool = False,
    **amounts: str,
) -> dict[str, Any]:
    there = {
        "cpu": "95920m",
        "memory": "1056461024Ki",
        "pods": "110",
        "nvidia.com/gpu": "8",
        **amounts,
    }
    spec: dict[str, Any] = {"providerID": "aws:///eu-1/i-1"}
    if taints is not None:
        spec["taints"] = taints
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "metadata": {
            "name": name,
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
                "nvidia.com/gpu.memory": "81920",
                "topology.kubernetes.io/rack": "r7",
                **(labels or {}),
            },
        },
        "spec": spec,
        "status": {
            "allocatable": {name: text for name, text in there.items() if text},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready, "message": message},
            ],
        },
    }


def bound(name: str, node: str = "gpu-1", phase: str = "Running", **asked: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"nodeName": node, "containers": [{"name": "a", "resources": {"requests": asked}}]},
        "status": {"phase": phase},
    }


def read(
    *nodes: dict[str, Any], site: Site = DEFAULT, pods: Any = (), declared: Any = None
) -> list[KubernetesNode]:
    return list(read_nodes(nodes, held_by_others(pods, ()), site, declared or {}).values())


def test_what_a_node_has() -> None:
    [found] = read(listed())
    assert found.status.node == Node(
        name="gpu-1",
        gpu_type="NVIDIA-A100-SXM4-80GB",
        gpus=8,
        gpu_memory_gib=80.0,
        cpus=95,
        memory_gib=1056461024 / (1 << 20),
        rack="r7",
    )
    assert found.status.usable and found.ready and found.lost is None


def test_nodes_without_gpus_and_with_others() -> None:
    plain = listed("cpu-1", **{"nvidia.com/gpu": ""})
    amd = listed(
        "amd-1",
        labels={"amd.com/gpu.product-name": "AMD_Instinct_MI300X"},
        **{"nvidia.com/gpu": "", "amd.com/gpu": "4"},
    )
    mig = listed(
        "mig-1",
        labels={
            "nvidia.com/mig-1g.10gb.product": "A100-MIG-1g.10gb",
            "nvidia.com/mig-1g.10gb.memory": "9728",
        },
        **{"nvidia.com/mig-1g.10gb": "7"},
    )
    node = read(plain)[0].status.node
    assert (node.gpus, node.gpu_type, node.gpu_memory_gib) == (0, None, None)
    node = read(amd, site=Site(gpu="amd.com/gpu"))[0].status.node
    assert (node.gpus, node.gpu_type) == (4, "AMD_Instinct_MI300X")
    node = read(mig, site=Site(gpu="nvidia.com/mig-1g.10gb"))[0].status.node
    assert (node.gpus, node.gpu_type, node.gpu_memory_gib) == (7, "A100-MIG-1g.10gb", 9.5)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"ready": "Unknown", "message": "Kubelet stopped posting node status."},
            "does not answer: Kubelet stopped posting node status",
        ),
        (
            {"ready": "False", "message": "container runtime is down"},
            "is not ready: container runtime is down",
        ),
        (
            {
                "unschedulable": True,
                "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
            },
            "is cordoned",
        ),
        (
            {"taints": [{"key": "team", "value": "vision", "effect": "NoSchedule"}]},
            "has the taint team=vision:NoSchedule",
        ),
        (
            {
                "taints": [
                    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                    {"key": "soft", "effect": "PreferNoSchedule"},
                ]
            },
            None,
        ),
        ({"name": "gpu.json"}, "its name cannot be that of a folder here"),
    ],
)
def test_why_a_node_is_not_used(more: dict[str, Any], reason: str | None) -> None:
    [found] = read(listed(**more))
    assert (found.status.usable, found.status.reason) == (reason is None, reason)


def test_a_taint_that_the_site_tolerates() -> None:
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    site = Site(pod={"tolerations": [{"key": "team", "operator": "Equal", "value": "vision"}]})
    assert read(listed(taints=[taint]), site=site)[0].status.usable


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "value": "a"}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "team"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], matches: bool) -> None:
    assert tolerated({"key": "team", "value": "a", "effect": "NoSchedule"}, [toleration]) is matches


def test_when_what_runs_on_a_node_is_given_up() -> None:
    unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    service = {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
    }
    silent = {"ready": "Unknown"}
    given_up = [
        read(listed(**silent, taints=[unreachable])),
        read(listed(**silent, taints=[service])),
        read(listed(**silent)),
        read(listed(**silent, taints=[{**unreachable, "effect": "NoSchedule"}])),
        read(listed(ready="False", taints=[not_ready])),
        read(listed(taints=[unreachable])),
    ]
    assert [found[0].lost is not None for found in given_up] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_what_others_hold_is_not_ours_to_give() -> None:
    pods = [
        bound("theirs", **{"nvidia.com/gpu": "3", "cpu": "1500m", "memory": "2Gi"}),
        bound("over", phase="Succeeded", **{"nvidia.com/gpu": "4"}),
        bound("elsewhere", node="gpu-2", **{"nvidia.com/gpu": "4"}),
        bound("mine", **{"nvidia.com/gpu": "2", "cpu": "8"}),
    ]
    held = held_by_others(pods, {"uid-mine"})
    node = read_nodes([listed()], held, DEFAULT, {})["gpu-1"].status.node
    assert (node.gpus, node.cpus) == (5, 94)  # 95.92 - 1.5 = 94.42
    assert node.memory_gib == pytest.approx(1056461024 / (1 << 20) - 2)


def test_a_node_keeps_what_its_jobs_hold() -> None:
    """A GPU that breaks is no longer allocatable, while a job still holds it."""
    [found] = read(listed(**{"nvidia.com/gpu": "7"}))
    assert with_room_for(found, 7, 90, 10.0) == found
    short = with_room_for(found, 8, 90, 10.0)
    assert (short.status.node.gpus, short.status.usable) == (8, False)
    assert short.status.reason == "has only 7 GPUs left of the 8 that its jobs hold"
    [silent] = read(listed(ready="Unknown", message="", **{"nvidia.com/gpu": "0"}))
    assert with_room_for(silent, 8, 0, 0.0).status.reason == "does not answer"


def test_requests_of_pods() -> None:
    """As the scheduler adds them up (Kubernetes documentation, "Init Containers", "Pod
    Overhead")."""
    gpu = "nvidia.com/gpu"
    spec = {
        "containers": [
            {"resources": {"limits": {gpu: "1", "cpu": "4"}, "requests": {"cpu": "2"}}},
            {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
        ],
        "initContainers": [
            {"resources": {"requests": {"cpu": "5", "memory": "256Mi"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        ],
        "overhead": {"cpu": "250m"},
    }
    assert requests(spec) == {gpu: 1.0, "cpu": 5.25, "memory": float(1 << 30)}


def test_declared_nodes() -> None:
    declared = {
        "gpu-2": Node(name="gpu-2", gpu_type="a100", rack="r1", labels=("ssd",)),
        "gone": Node(name="gone", gpu_type="a100", gpus=8),
    }
    found = read(listed(), listed("gpu-2"), declared=declared)
    assert [one.status.node.name for one in found] == ["gpu-2", "gone"]
    assert (
        found[0].status.node.gpu_type,
        found[0].status.node.rack,
        found[0].status.node.labels,
        found[0].status.node.gpus,
    ) == ("a100", "r1", ("ssd",), 8)
    assert found[1].status.reason == "Kubernetes has no node of this name"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        ("2", 2.0),
        ("1Ki", 1024.0),
        ("3G", 3e9),
        ("1e3", 1000.0),
        ("1.5Ei", 1.5 * 2**60),
        ("2E", 2e18),
        (".5", 0.5),
        ("100n", 1e-7),
    ],
)
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("text", ["", "four", "1 Gi", "1gi", "0x10"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity(text)
