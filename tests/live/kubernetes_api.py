"""Requests to a Kubernetes API server with the standard library alone, for the test cluster and its
nodes."""

import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

MERGE = "application/merge-patch+json"
TIMEOUT_S = 60.0
PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Service": "services",
    "Pod": "pods",
    "Secret": "secrets",
    "Deployment": "deployments",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "ResourceFlavor": "resourceflavors",
    "Workload": "workloads",
}


class ApiError(Exception):
    """The server refused: `status` of HTTP, and its `reason` and message."""

    def __init__(self, status: int, said: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {said.get('reason', '')}: {said.get('message', '')}")
        self.status, self.reason = status, said.get("reason")


class Api:
    """One user of one server; from any thread."""

    def __init__(self, server: str, ca: Path, token: str) -> None:
        self.server, self.ca, self.token = server, ca, token
        self._address = urlsplit(server).netloc
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._local = threading.local()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, timeout=TIMEOUT_S, context=self._tls)

    def request(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: Any
    ) -> dict[str, Any]:
        """The answer. Raises ApiError where it is refused, OSError or HTTPException where there is
        none."""
        fresh = not hasattr(self._local, "connection")
        if fresh:
            self._local.connection = self._connect()
        try:
            return self._ask(self._local.connection, method, path, body, kind, query)
        except (OSError, http.client.HTTPException):
            self.close()
            if fresh or method == "POST":
                raise
            return self.request(
                method, path, body, kind, **query
            )  # the server had closed an idle connection

    def _ask(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: Any,
        kind: str,
        query: Any,
    ) -> dict[str, Any]:
        text = None if body is None else json.dumps(body)
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": kind,
            "Accept": "application/json",
        }
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, text, headers)
        answer = connection.getresponse()
        read = answer.read()
        try:
            said = json.loads(read)
        except ValueError:
            said = {"message": read.decode(errors="replace")}
        if answer.status >= 400:
            raise ApiError(answer.status, said)
        assert isinstance(said, dict)
        return said

    def close(self) -> None:
        """Let go of this thread's connection."""
        with suppress(AttributeError):
            self._local.connection.close()
            del self._local.connection

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        return self.request("GET", path, **query)

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.request("GET", path, **query)["items"]
        return found

    def create(self, path: str, body: Any) -> dict[str, Any]:
        return self.request("POST", path, body)

    def merge(self, path: str, body: Any) -> dict[str, Any]:
        """What is named in `body` put in place of what stands there."""
        return self.request("PATCH", path, body, MERGE)

    def delete(self, path: str, **options: Any) -> dict[str, Any]:
        """`options` are fields of DeleteOptions."""
        return self.request(
            "DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        )

    def apply(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Create what a manifest describes."""
        return self.create(collection(document), document)

    def watch(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Events until the server ends the stream. Raises as `request`."""
        connection = self._connect()
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
            connection.request(
                "GET", f"{path}?{urlencode({'watch': '1', **query})}", headers=headers
            )
            answer = connection.getresponse()
            if answer.status >= 400:
                raise ApiError(answer.status, json.loads(answer.read()))
            while line := answer.readline():
                yield json.loads(line)
        finally:
            connection.close()


def collection(document: Mapping[str, Any]) -> str:
    """Where objects like this one are created."""
    version, namespace = document["apiVersion"], document["metadata"].get("namespace")
    top = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    inside = f"/namespaces/{namespace}" if namespace is not None else ""
    return f"{top}{inside}/{PLURALS[document['kind']]}"


def write_kubeconfig(path: Path, api: Api, namespace: str) -> Path:
    """A file with which other clients are that user."""
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "lab",
                "clusters": [
                    {
                        "name": "lab",
                        "cluster": {"server": api.server, "certificate-authority": str(api.ca)},
                    }
                ],
                "users": [{"name": "lab", "user": {"token": api.token}}],
                "contexts": [
                    {
                        "name": "lab",
                        "context": {"cluster": "lab", "user": "lab", "namespace": namespace},
                    }
                ],
            },
            indent=1,
        )
    )
    path.chmod(0o600)
    return path
