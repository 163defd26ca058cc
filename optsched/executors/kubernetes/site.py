"""How a site's pods are made: image, volumes, what its GPUs are called."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ...errors import InputError

DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
RESOURCE = re.compile(
    r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
OWN_POD_FIELDS = (
    "containers",
    "initContainers",
    "nodeName",
    "restartPolicy",
    "schedulerName",
    "terminationGracePeriodSeconds",
    "activeDeadlineSeconds",
)
OWN_CONTAINER_FIELDS = (
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "restartPolicy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume that every pod has at `mount`: exactly one of a PersistentVolumeClaim (`claim`), an
    export of NFS (`nfs`, as `server:/export`) and a folder of the node (`host`), of it only
    `sub_path` where that is given."""

    mount: str
    claim: str | None = None
    nfs: str | None = None
    host: str | None = None
    sub_path: str | None = None
    read_only: bool = False

    def source(self) -> dict[str, Any]:
        """What a pod says of it."""
        if self.claim is not None:
            return {
                "persistentVolumeClaim": {"claimName": self.claim, **_only_read(self.read_only)}
            }
        if self.nfs is not None:
            server, _, path = self.nfs.partition(":")
            return {"nfs": {"server": server, "path": path, **_only_read(self.read_only)}}
        return {"hostPath": {"path": self.host, "type": "Directory"}}


def _only_read(read_only: bool) -> dict[str, Any]:
    return {"readOnly": True} if read_only else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all pods have in common.

    `gpu` is the resource that is a GPU there (`nvidia.com/gpu`, `amd.com/gpu`,
    `nvidia.com/mig-1g.10gb`), `rack_label` the label of nodes whose value is the rack,
    `node_selector` a label selector for the nodes to use. `pod` and `container` are further fields
    of pods and of their container. `python` runs the supervisor, in each image. `grace_s` is for
    pods that somebody else deletes.
    """

    image: str | None = None
    gpu: str = "nvidia.com/gpu"
    rack_label: str = "topology.kubernetes.io/rack"
    node_selector: str | None = None
    volumes: tuple[Volume, ...] = ()
    pod: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    python: str = "python3"
    poll_s: float = 1.0
    start_timeout_s: float = 600.0
    grace_s: float = 60.0

    @property
    def tolerations(self) -> list[dict[str, Any]]:
        """Of taints; that which keeps jobs without GPUs from a node is no matter here."""
        return [{"key": self.gpu, "operator": "Exists"}, *self.pod.get("tolerations", ())]

    def mounted(self, path: str) -> Volume | None:
        """The volume on which `path` is in each pod."""
        found = [
            volume for volume in self.volumes if PurePosixPath(path).is_relative_to(volume.mount)
        ]
        return max(found, key=lambda volume: len(PurePosixPath(volume.mount).parts), default=None)

    def check(self, shared: str) -> None:
        """Raises InputError for what no pod can be made of, or pods that would not have the folder
        `shared`."""
        if not RESOURCE.fullmatch(self.gpu):
            raise InputError(
                f"kubernetes.gpu: {self.gpu!r} is no name of a resource, as nvidia.com/gpu"
            )
        for each in self.volumes:
            _check_volume(each)
        mounts = [volume.mount for volume in self.volumes]
        twice = next((mount for mount in mounts if mounts.count(mount) > 1), None)
        if twice is not None:
            raise InputError(f"kubernetes.volumes: two have mount = {twice!r}; leave one out")
        for where, given, own in (
            ("pod", self.pod, OWN_POD_FIELDS),
            ("container", self.container, OWN_CONTAINER_FIELDS),
        ):
            taken = next((name for name in given if name in own), None)
            if taken is not None:
                raise InputError(f"kubernetes.{where}: {taken} is set for each job; leave it out")
        volume = self.mounted(shared)
        if volume is None or volume.read_only:
            what = "is not on one of" if volume is None else "can only be read on"
            raise InputError(
                f"shared: {shared} {what} kubernetes.volumes, so that no pod could report there; "
                "name the volume it is "
                'on, as volumes = [{mount = "/shared", claim = "shared"}]'
            )


def _check_volume(volume: Volume) -> None:
    given = [name for name in ("claim", "nfs", "host") if getattr(volume, name) is not None]
    if len(given) != 1:
        said = f"has {' and '.join(given)}" if given else "has none of claim, nfs and host"
        raise InputError(f"kubernetes.volumes: that at {volume.mount!r} {said}; give one of them")
    if (
        not PurePosixPath(volume.mount).is_absolute()
        or ":" in volume.mount
        or ".." in volume.mount.split("/")
    ):
        raise InputError(
            f"kubernetes.volumes: mount = {volume.mount!r} is no absolute path without : and .."
        )
    if volume.nfs is not None and not re.fullmatch(r"[^:/]+:/.*", volume.nfs):
        raise InputError(
            f"kubernetes.volumes: nfs = {volume.nfs!r} is no export; write server:/path"
        )
    if volume.host is not None and not PurePosixPath(volume.host).is_absolute():
        raise InputError(f"kubernetes.volumes: host = {volume.host!r} is no absolute path")
