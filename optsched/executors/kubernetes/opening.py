"""The Kubernetes executor of a cluster.toml."""

from ...errors import InputError
from ..opening import ExecutorContext
from .api import KubernetesApi
from .executor import KubernetesExecutor
from .site import DNS_LABEL, Site


def open_kubernetes(context: ExecutorContext, options: Site) -> KubernetesExecutor:
    """Pods of the Kubernetes cluster that `[kubernetes]` names, one a node.

    Attempts are kept below the shared folder, on a volume that every pod mounts. Raises InputError.
    """
    context.refuse_emulated()
    if not DNS_LABEL.fullmatch(options.namespace):
        raise InputError(
            f"kubernetes.namespace: {options.namespace!r} is not the name of a namespace"
        )
    options.check(str(context.attempts))
    api = KubernetesApi(options.kubeconfig, options.context, options.namespace, options.timeout_s)
    return KubernetesExecutor(
        context.attempts, api, options, context.declared, grace_s=context.grace_s
    )
