"""The API server: the few calls that are needed, each bounded in time.

The package `kubernetes` reads kubeconfigs, finds the service account within a cluster, keeps tokens
and certificates fresh, and holds the connections. Objects are plain dicts, as the server sends them
(Kubernetes API reference, core/v1).
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from ...errors import InputError
from ..base import Entry, NoAnswerError, Record, RefusedError, because, in_one_line

PIECE_BYTES = 1 << 16
NOT_NOW = (401, 408, 429)
"""Statuses between 400 and 499 of which it is not known whether they stay."""
GONE, NOT_FOUND, CONFLICT = 410, 404, 409


class RejectedError(Exception):
    """The server understood and did not do it: its HTTP status, and what it said."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class KubernetesApi:
    """One cluster, and the namespace there in which pods are made."""

    def __init__(
        self, kubeconfig: Path | None, context: str | None, namespace: str, timeout_s: float
    ) -> None:
        """Read how to reach it: from `kubeconfig`, else the usual places, else as a pod of the
        cluster itself.

        Nothing is asked yet. Raises InputError where the package is missing or nothing says how.
        """
        self.namespace, self._timeout_s = namespace, timeout_s
        try:
            from kubernetes import client
            from kubernetes.config import load_incluster_config, load_kube_config
        except ImportError:
            raise InputError(
                "the executor kubernetes needs the package of that name; pip install "
                "'optsched[kubernetes]'"
            ) from None
        made = client.Configuration()
        inside = (
            kubeconfig is None
            and "KUBERNETES_SERVICE_HOST" in os.environ
            and "KUBECONFIG" not in os.environ
        )
        try:
            if inside:
                load_incluster_config(client_configuration=made)
            else:
                given = None if kubeconfig is None else str(kubeconfig.expanduser())
                load_kube_config(given, context, client_configuration=made, persist_config=False)
        except Exception as error:  # the package, and whatever a site's own programs for tokens do
            raise InputError(
                f"kubernetes.kubeconfig: nothing says how to reach the cluster{because(error)}"
            ) from None
        self._configuration = made
        if (
            not made.verify_ssl
        ):  # which is the kubeconfig's word, and not to be said again with each call
            import urllib3

            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._pool = client.ApiClient(made).rest_client.pool_manager
        self.address = str(made.host).rstrip("/")

    # ----------------------------------------------------------------------------------------------
    # --- what is asked

    def nodes(self, selector: str | None) -> list[Record]:
        """Return all nodes that `selector` matches. Raises NoAnswerError."""
        return self._list("/api/v1/nodes", "nodes", labelSelector=selector)[0]

    def bound_pods(self) -> list[Record]:
        """Return pods of all namespaces that hold something of a node. Raises NoAnswerError."""
        which = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
        return self._list("/api/v1/pods", "pods of all namespaces", fieldSelector=which)[0]

    def pods(self, selector: str) -> tuple[list[Record], str]:
        """Return pods of the namespace that `selector` matches, and the version of that list.
        Raises NoAnswerError."""
        return self._list(
            self._path(), f"pods of namespace {self.namespace}", labelSelector=selector
        )

    def create(self, pod: Entry) -> Record:
        """Make a pod; the one that is there where its name is taken. Raises RejectedError,
        NoAnswerError."""
        try:
            return self._ask("POST", self._path(), pod, fieldValidation="Strict")
        except RejectedError as error:
            if error.status != CONFLICT:
                raise
            return self._ask("GET", self._path(pod["metadata"]["name"]))

    def bind(self, name: str, binding: Entry) -> None:
        """Bind a pod to a node; nothing if it is bound to it. Raises RejectedError,
        NoAnswerError."""
        try:
            self._ask("POST", f"{self._path(name)}/binding", binding)
        except RejectedError as error:
            if error.status != CONFLICT:
                raise
            pod = self._ask("GET", self._path(name))
            if pod["spec"].get("nodeName") != binding["target"]["name"]:
                raise

    def delete(self, name: str, options: Entry) -> None:
        """Have a pod end; nothing if it is gone or another one has its name. Raises RejectedError,
        NoAnswerError."""
        try:
            self._ask("DELETE", self._path(name), options)
        except RejectedError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

    def watch(self, selector: str, version: str, seconds: int) -> Iterator[Record]:
        """Yield changes of pods since a list had `version`, for so long. Raises RejectedError (410:
        list anew), NoAnswerError."""
        query = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        answer = self._open(
            "GET", f"{self._path()}?{urlencode(query)}", None, seconds + self._timeout_s
        )
        try:
            text = b""
            for piece in self._pieces(answer, time.monotonic() + seconds + self._timeout_s):
                *lines, text = (text + piece).split(b"\n")
                for line in filter(None, lines):
                    event = json.loads(line)
                    if event.get("type") == "ERROR":
                        raise RejectedError(
                            int(event["object"].get("code") or GONE),
                            str(event["object"].get("message")),
                        )
                    yield event
        except (ValueError, RecursionError) as error:
            raise self._silence(f"says of changes what is no JSON: {error}") from None
        finally:
            answer.close()

    # ----------------------------------------------------------------------------------------------
    # --- how

    def _silence(self, how: str) -> NoAnswerError:
        return NoAnswerError(f"the API server at {self.address} {how}")

    def _path(self, name: str | None = None) -> str:
        there = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods"
        return there if name is None else f"{there}/{quote(name, safe='')}"

    def _list(self, path: str, what: str, **query: str | None) -> tuple[list[Record], str]:
        """Return the objects by namespace and name, and the version of the list.

        A list from the server's cache, which resourceVersion=0 allows, comes in no order.
        """
        try:
            answer = self._ask("GET", path, None, resourceVersion="0", **query)
            items = sorted(answer["items"], key=_full_name)
            return items, str(answer["metadata"]["resourceVersion"])
        except RejectedError as error:
            raise self._silence(f"does not list {what}: {error}") from None
        except (KeyError, TypeError):
            raise NoAnswerError(
                f"what answers at {self.address} is no API server of Kubernetes"
            ) from None

    def _ask(
        self, method: str, path: str, body: Entry | None = None, **query: str | None
    ) -> Record:
        words = {name: value for name, value in query.items() if value is not None}
        until_s = time.monotonic() + self._timeout_s
        answer = self._open(
            method, f"{path}?{urlencode(words)}" if words else path, body, self._timeout_s
        )
        text = b"".join(self._pieces(answer, until_s))
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise NoAnswerError(f"what answers at {self.address} is no API server of Kubernetes")
        return said

    def _open(self, method: str, path: str, body: Entry | None, timeout_s: float) -> Any:
        """Return the answer, to be read."""
        import urllib3

        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind, "User-Agent": "optsched"}
        try:
            for setting in self._configuration.auth_settings().values():
                headers[str(setting["key"])] = str(setting["value"])
            answer = self._pool.request(
                method,
                self.address + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=self._timeout_s, read=timeout_s),
                retries=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._silence(f"does not answer: {_why(error)}") from None
        if 200 <= answer.status < 300:
            return answer
        text = b"".join(self._pieces(answer, time.monotonic() + self._timeout_s))
        said = _message(text) or str(answer.reason or "without a word")
        if 400 <= answer.status < 500 and answer.status not in NOT_NOW:
            raise RejectedError(answer.status, said)
        raise self._silence(f"answered with status {answer.status}: {said}")

    def _pieces(self, answer: Any, until_s: float) -> Iterator[bytes]:
        import urllib3

        try:
            while piece := answer.read1(PIECE_BYTES):
                yield piece
                if time.monotonic() > until_s:
                    raise self._silence("takes too long to answer")
            answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._silence(f"does not answer: {_why(error)}") from None


def refused(error: RejectedError) -> RefusedError:
    """Return what the server said, as an executor's own word."""
    return RefusedError(f"Kubernetes refused it: {error}")


def _full_name(item: Entry) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def _why(error: BaseException) -> str:
    words = str(getattr(error, "reason", None) or error)
    return in_one_line(words.rpartition(": ")[2]) or type(error).__name__


def _message(text: bytes) -> str:
    try:
        return in_one_line(json.loads(text).get("message"))
    except (ValueError, AttributeError, RecursionError):
        return in_one_line(text.decode(errors="replace"))
