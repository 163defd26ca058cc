"""A real API server with nodes for all tests of Kubernetes of this process."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import Beside
from optsched.executors.kubernetes import KubernetesApi, KubernetesExecutor, Site, Volume
from optsched.executors.supervision import processes
from optsched.testing.executors import Place
from tests.live.kubernetes_cluster import KubernetesCluster, kubernetes_cluster
from tests.live.kubernetes_server import NAMESPACE, missing


class KubernetesPlace(Place):
    def __init__(self, folder: Path, cluster: KubernetesCluster, **more: Any) -> None:
        self.folder, self.cluster, self.more = folder, cluster, more
        self.nodes = tuple(cluster.names)
        self.executor = self.open()

    def open(self) -> KubernetesExecutor:
        given = {"image": "host", "poll_s": 0.3, "start_timeout_s": 120.0, **self.more}
        site = Site(volumes=(Volume(mount=str(self.folder), host=str(self.folder)),), **given)
        return KubernetesExecutor(self.folder / "state", self.api(), site, {})

    def api(self) -> KubernetesApi:
        return KubernetesApi(self.cluster.kubeconfig, None, NAMESPACE, 20.0)

    def agent(self, node: str) -> int:
        """The process that stands for the node's kubelet; what it runs goes on while it is
        stopped."""
        return self.cluster._running[node].pid

    def enter(self, way: Beside) -> Sequence[str]:
        """What stands for a kubelet has no `exec`: the namespaces of the pod are entered."""
        program, does, pod, *where = way.enter[: way.enter.index("--")]
        assert (program, does) == ("kubectl", "exec")
        assert where == [f"--namespace={NAMESPACE}", "--container=job", "-i"]
        *_, inside = processes.marked(f"HOSTNAME={pod}".encode())
        words = way.enter[way.enter.index("--") + 1 :]
        return ["nsenter", f"--target={inside}", "--pid", "--mount", *words]

    def lose_node(self, node: str) -> None:
        self.cluster.kill_node(node)

    def return_node(self, node: str) -> None:
        self.cluster.return_node(node)

    def restart_manager(self) -> None:
        self.cluster.restart_apiserver()


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubernetesCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with kubernetes_cluster() as cluster:
        yield cluster
