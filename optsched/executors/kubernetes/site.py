"""How a site's pods are made: image, volumes, what its GPUs are called."""

import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Annotated

from ...errors import InputError
from ...plugins.options import PluginOptions, PositiveDuration, declared_options
from ..base import Record

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


@declared_options
class Volume(PluginOptions):
    """A volume that every pod has at `mount`: exactly one of a PersistentVolumeClaim (`claim`), an
    export of NFS (`nfs`, as `server:/export`) and a folder of the node (`host`), of it only
    `sub_path` where that is given."""

    mount: str
    claim: str | None = None
    nfs: str | None = None
    host: str | None = None
    sub_path: str | None = None
    read_only: bool = False

    def source(self) -> Record:
        """Return what a pod says of it."""
        only_read = {"readOnly": True} if self.read_only else {}
        if self.claim is not None:
            return {"persistentVolumeClaim": {"claimName": self.claim, **only_read}}
        if self.nfs is not None:
            server, _, path = self.nfs.partition(":")
            return {"nfs": {"server": server, "path": path, **only_read}}
        return {"hostPath": {"path": self.host, "type": "Directory"}}


@declared_options
class Site(PluginOptions):
    """The table `[kubernetes]`: which cluster, and what all pods have in common."""

    kubeconfig: Annotated[Path | None, "How to reach the cluster; none: as kubectl does."] = None
    context: Annotated[str | None, "The context to use; none: the current one."] = None
    namespace: Annotated[str, "Where pods are made."] = "optsched"
    image: Annotated[str | None, "The image of jobs that name none."] = None
    gpu: Annotated[str, "The resource that is a GPU, as amd.com/gpu or nvidia.com/mig-1g.10gb."] = (
        "nvidia.com/gpu"
    )
    rack_label: Annotated[str, "The label of nodes that is their rack."] = (
        "topology.kubernetes.io/rack"
    )
    node_selector: Annotated[str | None, "A label selector for the nodes to use."] = None
    volumes: Annotated[
        tuple[Volume, ...],
        "Volumes of every pod, that of the shared folder among them: each a mount with claim, nfs "
        "or host.",
    ] = ()
    pod: Annotated[Record, "Further fields of pods."] = field(default_factory=dict)
    container: Annotated[Record, "Further fields of their container."] = field(default_factory=dict)
    python: Annotated[str, "The Python in each image, which runs the supervisor."] = "python3"
    poll_s: Annotated[PositiveDuration, "How often to poll Kubernetes."] = 1.0
    timeout_s: Annotated[PositiveDuration, "How long a call may take."] = 10.0
    start_timeout_s: Annotated[PositiveDuration, "How long an attempt may take to begin."] = 600.0

    @property
    def tolerations(self) -> list[Record]:
        """Return the tolerations of taints; that which keeps jobs without GPUs from a node is no
        matter here."""
        return [{"key": self.gpu, "operator": "Exists"}, *self.pod.get("tolerations", ())]

    def mounted(self, path: str) -> Volume | None:
        """Return the volume on which `path` is in each pod."""
        volumes = [
            volume for volume in self.volumes if PurePosixPath(path).is_relative_to(volume.mount)
        ]
        return max(volumes, key=lambda volume: len(PurePosixPath(volume.mount).parts), default=None)

    def check(self, shared: str) -> None:
        """Raise InputError for what no pod can be made of, or pods that would not have the folder
        `shared`."""
        mounts = [volume.mount for volume in self.volumes]
        twice = next((mount for mount in mounts if mounts.count(mount) > 1), None)
        own = {
            f"kubernetes.{where}: {name} is set for each job; leave it out": True
            for where, given, taken in (
                ("pod", self.pod, OWN_POD_FIELDS),
                ("container", self.container, OWN_CONTAINER_FIELDS),
            )
            for name in given
            if name in taken
        }
        volume = self.mounted(shared)
        what = "is not on one of" if volume is None else "can only be read on"
        faults = {
            f"kubernetes.gpu: {self.gpu!r} is not the name of a resource, as nvidia.com/gpu": (
                not RESOURCE.fullmatch(self.gpu)
            ),
            **{fault: True for volume in self.volumes for fault in _faults(volume)},
            f"kubernetes.volumes: two have mount = {twice!r}; leave one out": twice is not None,
            **own,
            f"shared: {shared} {what} kubernetes.volumes, so that no pod could report there; name "
            'the volume it is on, as volumes = [{mount = "/shared", claim = "shared"}]': (
                volume is None or volume.read_only
            ),
        }
        for fault, is_so in faults.items():
            if is_so:
                raise InputError(fault)


def _faults(volume: Volume) -> Iterator[str]:
    """Return what is wrong with a volume by itself."""
    given = [name for name in ("claim", "nfs", "host") if getattr(volume, name) is not None]
    if len(given) != 1:
        said = f"has {' and '.join(given)}" if given else "has none of claim, nfs and host"
        yield f"kubernetes.volumes: that at {volume.mount!r} {said}; give one of them"
    path = PurePosixPath(volume.mount)
    if not path.is_absolute() or ":" in volume.mount or ".." in path.parts:
        yield f"kubernetes.volumes: mount {volume.mount!r} is not an absolute path without : or .."
    if volume.nfs is not None and not re.fullmatch(r"[^:/]+:/.*", volume.nfs):
        yield f"kubernetes.volumes: nfs = {volume.nfs!r} is not an export; write server:/path"
    if volume.host is not None and not PurePosixPath(volume.host).is_absolute():
        yield f"kubernetes.volumes: host = {volume.host!r} is not an absolute path"
