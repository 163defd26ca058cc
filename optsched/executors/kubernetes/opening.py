"""The Kubernetes executor of a cluster.toml."""

from typing import TYPE_CHECKING

from ...errors import InputError
from .api import KubernetesApi
from .executor import KubernetesExecutor
from .site import DNS_LABEL, Site, Volume

if TYPE_CHECKING:
    from ...control.settings import Settings


def open_kubernetes(settings: "Settings") -> KubernetesExecutor:
    """Pods of the Kubernetes cluster that `[kubernetes]` names, one a node.

    Attempts are kept below the shared folder, on a volume that every pod mounts. Raises InputError.
    """
    given = settings.kubernetes
    emulated = next((part.name for part in settings.nodes if part.emulate), None)
    if emulated is not None:
        raise InputError(
            f"nodes: {emulated} has emulate = true, which is for the local executor; leave it out"
        )
    if not DNS_LABEL.fullmatch(given.namespace):
        raise InputError(f"kubernetes.namespace: {given.namespace!r} is no name of a namespace")
    site = Site(
        image=given.image,
        gpu=given.gpu,
        rack_label=given.rack_label,
        node_selector=given.node_selector,
        volumes=tuple(Volume(**volume.model_dump()) for volume in given.volumes),
        pod=given.pod,
        container=given.container,
        python=given.python,
        poll_s=float(given.poll),
        start_timeout_s=float(given.start_timeout),
        grace_s=float(settings.grace),
    )
    site.check(str(settings.attempts))
    api = KubernetesApi(given.kubeconfig, given.context, given.namespace, float(given.timeout))
    declared = {node.name: node for part in settings.nodes for node in part.nodes()}
    return KubernetesExecutor(settings.attempts, api, site, declared)
