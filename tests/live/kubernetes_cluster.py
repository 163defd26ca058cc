"""A real Kubernetes API server with its etcd on this host, and nodes that run pods as processes,
all in one folder.

What the server's own controllers would do about nodes (taints, evictions) is done here; there is no
other scheduler.
"""

import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .kubernetes_api import ApiError
from .kubernetes_container import crash
from .kubernetes_node import GPU, now, pod_path
from .kubernetes_server import NAMESPACE, KubernetesServer, missing, wait_until

UNREACHABLE = "node.kubernetes.io/unreachable"
FOREVER_S = 86400.0


class KubernetesCluster(KubernetesServer):
    """The server, the nodes `names`, and what a test does to them."""

    def __init__(self, folder: Path, nodes: int, gpus: int) -> None:
        self.gpus = gpus
        self.names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self._timers: dict[str, list[threading.Timer]] = {}
        super().__init__(folder, self.names)

    def up(self) -> None:
        """Everything, nodes ready."""
        super().up()
        for name in self.names:
            (self.folder / "nodes" / name).mkdir(parents=True)
            self._make_node(name)
        for name in self.names:
            self._start_agent(name)
        for name in self.names:
            self._until_ready(name)

    def _make_node(self, name: str) -> None:
        amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", GPU: str(self.gpus)}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.count": str(self.gpus),
            "topology.kubernetes.io/zone": "lab",
        }
        self.api.create(
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}},
        )
        addresses = [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": name},
        ]
        status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
        self.api.merge(f"/api/v1/nodes/{name}/status", {"status": status})

    def _start_agent(self, name: str) -> None:
        given = {
            "server": self.server,
            "ca": str(self.certificate),
            "token": self.tokens[name],
            "name": name,
            "folder": str(self.folder / "nodes" / name),
        }
        self._start(name, sys.executable, "-m", "tests.live.kubernetes_node", json.dumps(given))

    # -------------------------------------------------------------------------------------------
    # what happens

    def node(self, name: str) -> dict[str, Any]:
        return self.api.get(f"/api/v1/nodes/{name}")

    def ready(self, name: str) -> bool:
        conditions = self.node(name)["status"].get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def pods(self, node: str | None = None) -> list[dict[str, Any]]:
        return self.api.items(
            "/api/v1/pods", **({} if node is None else {"fieldSelector": f"spec.nodeName={node}"})
        )

    def crash_node(self, name: str) -> None:
        """The host is gone with all that runs there; nobody has noticed yet."""
        crash(self._running[name].pid)
        self._running.pop(name).wait()

    def give_up_node(self, name: str) -> None:
        """What the node lifecycle controller does about a node that has been silent: its state is
        unknown, it is tainted, its pods are not ready and are deleted once they tolerate it no
        longer."""
        silent = {
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": now(),
        }
        conditions = self.node(name)["status"]["conditions"]
        changed = [{**one, **silent} for one in conditions]
        self.api.merge(f"/api/v1/nodes/{name}/status", {"status": {"conditions": changed}})
        self._taint(
            name,
            [
                {"key": UNREACHABLE, "effect": effect, "timeAdded": now()}
                for effect in ("NoSchedule", "NoExecute")
            ],
        )
        for pod in self.pods(name):
            self._not_ready(pod)
            patience_s = _tolerates_s(pod)
            if patience_s < FOREVER_S:
                timer = threading.Timer(patience_s, self._delete_quietly, (pod,))
                timer.daemon = True
                self._timers.setdefault(name, []).append(timer)
                timer.start()

    def kill_node(self, name: str) -> None:
        """A crash of the host that is noticed at once."""
        self.crash_node(name)
        self.give_up_node(name)

    def return_node(self, name: str) -> None:
        """Start the host again, and wait until it takes pods."""
        for timer in self._timers.pop(name, []):
            timer.cancel()
        self._start_agent(name)
        self._until_ready(name)

    def delete_node(self, name: str) -> None:
        """Remove the node and, as the pod garbage collector does, its pods."""
        self.api.delete(f"/api/v1/nodes/{name}")
        for pod in self.pods(name):
            self._delete_quietly(pod, gracePeriodSeconds=0)

    def set_unschedulable(self, name: str, unschedulable: bool) -> None:
        """As `kubectl cordon` and `uncordon`."""
        self.api.merge(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": unschedulable or None}})
        unwanted = [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": now()}
        ]
        self._taint(name, unwanted if unschedulable else [])

    def evict(self, pod: str, namespace: str = NAMESPACE) -> None:
        """As `kubectl drain` does."""
        policy = self.api.get("/apis/policy")["preferredVersion"]["groupVersion"]
        self.api.create(
            f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction",
            {
                "apiVersion": policy,
                "kind": "Eviction",
                "metadata": {"name": pod, "namespace": namespace},
            },
        )

    def _until_ready(self, name: str) -> None:
        """Nodes are tainted when they are made, and when they are lost, until their lifecycle
        controller sees them."""
        wait_until(lambda: self.ready(name))
        self._taint(name, [])

    def _taint(self, name: str, taints: list[dict[str, Any]]) -> None:
        self.api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": taints or None}})

    def _not_ready(self, pod: dict[str, Any]) -> None:
        conditions = [
            {**one, "status": "False", "lastTransitionTime": now()}
            if one["type"] == "Ready"
            else one
            for one in pod["status"].get("conditions") or []
        ]
        with suppress(ApiError):
            self.api.merge(f"{pod_path(pod)}/status", {"status": {"conditions": conditions}})

    def _delete_quietly(self, pod: dict[str, Any], **options: Any) -> None:
        with suppress(ApiError, OSError):
            self.api.delete(pod_path(pod), preconditions={"uid": pod["metadata"]["uid"]}, **options)

    def down(self) -> None:
        """End all that this has started."""
        for timer in (one for timers in self._timers.values() for one in timers):
            timer.cancel()
        for name in self.names:
            if name in self._running:
                self.crash_node(name)
        super().down()


def _tolerates_s(pod: dict[str, Any]) -> float:
    """For how long a pod stays on a node that is unreachable."""
    found = [
        tolerated.get("tolerationSeconds", FOREVER_S)
        for tolerated in pod["spec"].get("tolerations") or []
        if tolerated.get("key", UNREACHABLE) == UNREACHABLE
        and tolerated.get("effect", "NoExecute") == "NoExecute"
    ]
    return float(min(found, default=0.0))


@contextmanager
def kubernetes_cluster(nodes: int = 4, gpus: int = 4) -> Iterator[KubernetesCluster]:
    """A cluster that is up."""
    with tempfile.TemporaryDirectory(
        prefix="optsched-kubernetes-", ignore_cleanup_errors=True
    ) as name:
        cluster = KubernetesCluster(Path(name), nodes, gpus)
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def main() -> None:
    """`python -m tests.live.kubernetes_cluster [NODES [GPUS]]`: a cluster to try things on, until
    Enter."""
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    with kubernetes_cluster(*map(int, sys.argv[1:])) as cluster:
        print(f"export KUBECONFIG={cluster.kubeconfig}        # what optsched may do")
        input(f"export KUBECONFIG={cluster.admin_kubeconfig}  # everything\nup; Enter ends it: ")


if __name__ == "__main__":
    main()
