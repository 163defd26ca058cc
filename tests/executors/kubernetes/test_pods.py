"""Pods: their names, and that every API server takes them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.executors.base import JOB_NAME, AttemptKey
from optsched.executors.kubernetes.pods import (
    ADDRESS,
    NODE,
    attempt_pod,
    binding,
    deletion,
    key_of,
    pod_name,
)
from optsched.executors.kubernetes.site import DNS_LABEL, Site, Volume

VERSIONS = ("1.25.0", "1.29.0", "1.33.0", "latest")
KEYS = st.builds(AttemptKey, st.from_regex(JOB_NAME, fullmatch=True), st.integers(1, 999_999_999))
SITE = Site(
    image="registry.example/torch:2.7",
    volumes=(
        Volume(mount="/shared", claim="shared"),
        Volume(mount="/home", nfs="files:/home", sub_path="users"),
        Volume(mount="/data", host="/mnt/data", read_only=True),
    ),
    pod={
        "tolerations": [
            {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}
        ],
        "imagePullSecrets": [{"name": "pull"}],
        "hostNetwork": True,
        "priorityClassName": "jobs",
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    },
    container={
        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
        "resources": {"limits": {"rdma/hca": "1"}},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    },
)


def spec(gpus: int = 2, uid: int = 1000, **more: Any) -> dict[str, Any]:
    node = {"name": "gpu-1.lab", "gpus": gpus, "cpus": 8, "memory_gib": 1.5}
    return {
        "key": "optsched:Bert_17.b:3",
        "image": "registry.example/torch:2.7",
        "grace_s": 59.5,
        "ids": {"uid": uid, "gid": 100, "groups": [100, 7]},
        "nodes": [node],
        **more,
    }


def pod(site: Site = SITE, **more: Any) -> dict[str, Any]:
    folder = Path("/shared/optsched/attempts/Bert_17.b/3")
    return attempt_pod(
        spec(**more),
        0,
        site,
        Path("/shared/optsched/kubernetes/program-1/entry.py"),
        folder,
        "ab12",
    )


@given(KEYS, st.integers(0, 99_999))
def test_a_name_is_one_for_pods_and_hosts(key: AttemptKey, rank: int) -> None:
    name = pod_name(key, rank, "ab12cd34")
    assert DNS_LABEL.fullmatch(name)
    assert name == pod_name(key, rank, "ab12cd34")
    assert name not in (pod_name(key, rank, "ab12cd35"), pod_name(key, rank + 1, "ab12cd34"))


def test_names_that_look_alike_are_told_apart() -> None:
    alike = [
        AttemptKey(name, 1) for name in ("a.b", "a-b", "a_b", "A-b", "a" * 32 + "1", "a" * 32 + "2")
    ]
    assert len({pod_name(key, 0, "t") for key in alike}) == len(alike)


def test_the_attempt_of_a_pod() -> None:
    assert key_of(pod(), "ab12") == AttemptKey("Bert_17.b", 3)
    assert key_of(pod(), "ab13") is None
    assert key_of({"metadata": {"name": "x"}}, "ab12") is None
    assert (
        key_of({"metadata": {"name": "x", "labels": {"optsched.io/tag": "ab12"}}}, "ab12") is None
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_kubernetes(version: str) -> None:
    schemas = pytest.importorskip(
        "kubernetes_validate", reason="needs: pip install kubernetes-validate"
    )
    wanted = schemas.latest_version() if version == "latest" else version
    assert wanted in schemas.utils.all_versions()
    manifests = [
        pod(),
        pod(gpus=0, uid=0),
        pod(site=Site(image="x", volumes=(Volume(mount="/s", claim="s"),))),
    ]
    for manifest in (*manifests, binding("pod", "uid", "gpu-1")):
        schemas.validate(manifest, wanted, strict=True)
    wrong = pod()
    wrong["spec"]["schedulingGate"] = []
    with pytest.raises(schemas.ValidationError):
        schemas.validate(wrong, wanted, strict=True)


def test_what_a_pod_asks_for() -> None:
    made = pod()["spec"]
    container = made["containers"][0]
    asked = {"nvidia.com/gpu": "2", "cpu": "8", "memory": str(3 << 29)}
    assert container["resources"] == {"limits": {"rdma/hca": "1", **asked}, "requests": asked}
    assert container["command"] == [
        "python3",
        "-S",
        "-E",
        "/shared/optsched/kubernetes/program-1/entry.py",
        "/shared/optsched/attempts/Bert_17.b/3/gpu-1.lab",
    ]
    assert made["terminationGracePeriodSeconds"] == 70  # 59.5 rounded up, and 10 for its supervisor
    assert made["restartPolicy"] == "Never" and made["schedulerName"] == "optsched"
    assert "nodeName" not in made  # it is bound
    assert not made["automountServiceAccountToken"]
    assert made["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
    ]
    assert made["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared"}
    assert made["volumes"][1]["nfs"] == {"server": "files", "path": "/home"}
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [
        "/shared",
        "/home",
        "/data",
        "/dev/shm",
        "/tmp",
    ]
    assert container["volumeMounts"][2]["readOnly"]


def test_as_whom_it_runs() -> None:
    other, root = pod()["spec"], pod(uid=0)["spec"]
    assert other["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 100,
        "supplementalGroups": [100, 7],
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert other["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
    assert root["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 100,
        "supplementalGroups": [100, 7],
    }
    made = pod(site=Site(image="x"))["spec"]
    assert made["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_pod_without_gpus_gets_none_whatever_its_image_asks_for() -> None:
    variables = {
        one["name"]: one.get("value") for one in pod(gpus=0)["spec"]["containers"][0]["env"]
    }
    assert variables == {
        "NCCL_DEBUG": "WARN",
        ADDRESS: None,
        NODE: None,
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    assert "NVIDIA_VISIBLE_DEVICES" not in {
        one["name"] for one in pod()["spec"]["containers"][0]["env"]
    }


def test_a_deletion_names_the_very_pod() -> None:
    assert deletion("u1", 4.2) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 5,
        "preconditions": {"uid": "u1"},
    }
