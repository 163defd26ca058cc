"""Pods as the API server is given them, and which attempt one belongs to."""

import hashlib
import math
import re
from pathlib import Path

from ..base import AttemptKey, Entry, Record, inner
from .site import Site

TAG, JOB, ATTEMPT, RANK = (
    "optsched.io/tag",
    "optsched.io/job",
    "optsched.io/attempt",
    "optsched.io/rank",
)
"""Labels of pods."""
KEY, FOLDER = "optsched.io/key", "optsched.io/folder"
"""Annotations of pods."""
SCHEDULER = "optsched"
"""Under this name no other scheduler takes them."""
CONTAINER = "job"
ADDRESS = "OPTSCHED_POD_ADDRESS"
NODE = "OPTSCHED_POD_NODE"
"""Variables in which a pod finds its address, and the node it is bound to (see `entry`)."""
OVERTIME_S = 10
"""So long after its grace Kubernetes ends what a supervisor has not."""
SLUG_CHARACTERS = 32
ROOT = 0


def pod_name(key: AttemptKey, rank: int, tag: str) -> str:
    """Return the name of one node's pod of an attempt: the same for the same, at most 63
    characters, a name for a host too."""
    slug = re.sub(r"[^a-z0-9]", "-", key.job.lower())[:SLUG_CHARACTERS]
    mark = hashlib.sha256(f"{tag}/{key}/{rank}".encode()).hexdigest()[:10]
    return f"{slug}-{key.number}-{rank}-{mark}"


def key_of(pod: Entry, tag: str) -> AttemptKey | None:
    """Return the attempt to which a pod belongs, None if it is not one of this tag."""
    metadata = pod["metadata"]
    if inner(metadata, "labels").get(TAG) != tag:
        return None
    return AttemptKey.parse(str(inner(metadata, "annotations").get(KEY)))


def attempt_pod(spec: Entry, rank: int, site: Site, entry: Path, folder: Path, tag: str) -> Record:
    """Return the pod of one node of an attempt, not bound to it yet. `folder` is that of the
    attempt."""
    node, key = spec["nodes"][rank], AttemptKey.parse(spec["key"])
    assert key is not None
    labels = {
        "app.kubernetes.io/managed-by": "optsched",
        TAG: tag,
        JOB: key.job,
        ATTEMPT: str(key.number),
        RANK: str(rank),
    }
    metadata = {
        "name": pod_name(key, rank, tag),
        "labels": labels,
        "annotations": {KEY: str(key), FOLDER: str(folder / node["name"])},
    }
    extra = {
        name: value for name, value in site.pod.items() if name not in ("tolerations", "volumes")
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **extra,
        "securityContext": {**_user(spec["ids"]), **site.pod.get("securityContext", {})},
        "restartPolicy": "Never",
        "schedulerName": SCHEDULER,
        "terminationGracePeriodSeconds": math.ceil(spec["grace_s"]) + OVERTIME_S,
        "tolerations": site.tolerations,
        "volumes": [*_volumes(site), *site.pod.get("volumes", ())],
        "containers": [_container(node, spec, site, entry, folder)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def binding(name: str, uid: str, node: str) -> Record:
    """Return what binds a pod to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def deletion(uid: str, grace_s: float) -> Record:
    """Return what deletes this very pod; a supervisor gets `grace_s` to end it."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": math.ceil(grace_s),
        "preconditions": {"uid": uid},
    }


def _user(ids: Entry) -> Record:
    made: Record = {"runAsUser": ids["uid"], "runAsGroup": ids["gid"]}
    if ids["groups"]:
        made["supplementalGroups"] = list(ids["groups"])
    if ids["uid"] != ROOT:
        made |= {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return made


def _container(node: Entry, spec: Entry, site: Site, entry: Path, folder: Path) -> Record:
    resources = {site.gpu: str(node["gpus"])} if node["gpus"] else {}
    if node["cpus"]:
        resources["cpu"] = str(node["cpus"])
    if node["memory_gib"]:
        resources["memory"] = str(math.ceil(node["memory_gib"] * (1 << 30)))
    more = {
        name: value
        for name, value in site.container.items()
        if name not in ("env", "resources", "volumeMounts", "securityContext")
    }
    given = site.container.get("resources", {})
    security: Record = {"allowPrivilegeEscalation": False}
    if spec["ids"]["uid"] != ROOT:
        security["capabilities"] = {"drop": ["ALL"]}
    environment: list[Record] = [
        {"name": ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    if not node["gpus"]:  # images for GPUs ask for all of them
        environment.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    return {
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **more,
        "name": CONTAINER,
        "image": spec["image"],
        "command": [site.python, "-S", "-E", str(entry), str(folder / node["name"])],
        "env": [*site.container.get("env", ()), *environment],
        "resources": {
            "limits": {**given.get("limits", {}), **resources},
            "requests": {**given.get("requests", {}), **resources},
        },
        "securityContext": {**security, **site.container.get("securityContext", {})},
        "volumeMounts": [*_mounts(site), *site.container.get("volumeMounts", ())],
    }


def _volumes(site: Site) -> list[Record]:
    """Return those of the site, and memory that processes share: what containers have by themselves
    is too little to train."""
    made = [{"name": f"site-{i}", **volume.source()} for i, volume in enumerate(site.volumes)]
    return [*made, {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]


def _mounts(site: Site) -> list[Record]:
    made = []
    for i, volume in enumerate(site.volumes):
        mount: Record = {"name": f"site-{i}", "mountPath": volume.mount}
        if volume.read_only:
            mount["readOnly"] = True
        if volume.sub_path is not None:
            mount["subPath"] = volume.sub_path
        made.append(mount)
    return [*made, {"name": "shared-memory", "mountPath": "/dev/shm"}]
