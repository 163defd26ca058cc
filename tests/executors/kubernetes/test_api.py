"""Every answer that an API server, or what stands before it, can give; from a server that says what
a test tells it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes", reason="needs: pip install 'optsched[kubernetes]'")

from optsched.errors import InputError
from optsched.executors.base import NoAnswerError
from optsched.executors.kubernetes.api import KubernetesApi, RejectedError
from optsched.executors.kubernetes.watching import Watcher
from optsched.testing.executors import until

POD = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}, "spec": {}}
PATIENCE_S = 60.0
HUNG_S = 20
BINDING = {"metadata": {"name": "p"}, "target": {"name": "n1"}}


class Server:
    """Answers each request with the next of `answers`, the last one again and again; `asked` is
    what was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = [(200, {})]
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                headers = {name.lower(): text for name, text in self.headers.items()}
                server.asked.append((self.command, self.path, body, headers))
                status, said = (
                    server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                )
                if callable(said):
                    said(self)
                    return
                text = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *given: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def end(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.end()


def kubeconfig(folder: Path, address: str, user: Any = None) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": address}}],
                "users": [{"name": "u", "user": user or {"token": "secret-token"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return path


@pytest.fixture
def api(server: Server, tmp_path: Path) -> KubernetesApi:
    return KubernetesApi(kubeconfig(tmp_path, server.address), None, "optsched", PATIENCE_S)


def status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def listing(*items: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": list(items)}


def test_what_is_asked(server: Server, api: KubernetesApi) -> None:
    server.answers = [listing(POD)]
    assert api.pods("optsched.io/tag=x") == ([POD], "5")
    method, path, _, headers = server.asked[0]
    assert method == "GET" and headers["authorization"] == "Bearer secret-token"
    assert (
        path
        == "/api/v1/namespaces/optsched/pods?resourceVersion=0&labelSelector=optsched.io%2Ftag%3Dx"
    )
    api.nodes(None)
    api.bound_pods()
    assert [path.partition("?")[0] for _, path, _, _ in server.asked[1:]] == [
        "/api/v1/nodes",
        "/api/v1/pods",
    ]
    assert (
        "labelSelector" not in server.asked[1][1]
        and "fieldSelector=spec.nodeName%21%3D" in server.asked[2][1]
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            status(403, "Forbidden", 'nodes is forbidden: User "x" cannot list resource "nodes"'),
            'does not list nodes: nodes is forbidden: User "x" cannot list resource "nodes"',
        ),
        (status(401, "Unauthorized", "Unauthorized"), "answered with status 401: Unauthorized"),
        (status(429, "TooManyRequests", "wait"), "answered with status 429: wait"),
        ((503, b"<html>no\nbackend</html>"), "answered with status 503: <html>no backend</html>"),
        ((502, b""), "answered with status 502: "),
        ((200, b"It works!"), "is no API server of Kubernetes"),
        ((200, [1]), "is no API server of Kubernetes"),
        ((200, {}), "is no API server of Kubernetes"),
    ],
)
def test_lists_that_fail(
    server: Server, api: KubernetesApi, answer: tuple[int, Any], words: str
) -> None:
    server.answers = [answer]
    with pytest.raises(NoAnswerError) as found:
        api.nodes(None)
    assert words in str(found.value) and server.address in str(found.value)


def drip(handler: Any) -> None:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        for _ in range(10 * HUNG_S):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)


def hang(handler: Any) -> None:
    time.sleep(HUNG_S)


def hang_up(handler: Any) -> None:
    handler.connection.close()


@pytest.mark.parametrize("way", [drip, hang, hang_up])
def test_calls_are_bounded_in_time(
    server: Server, api: KubernetesApi, tmp_path: Path, way: Any
) -> None:
    hasty = KubernetesApi(kubeconfig(tmp_path, server.address), None, "optsched", 0.7)
    server.answers = [(200, way)]
    began_s = time.monotonic()
    with pytest.raises(NoAnswerError):
        hasty.nodes(None)
    assert time.monotonic() - began_s < HUNG_S
    server.answers = [listing()]
    assert api.nodes(None) == []


def test_nobody_there(tmp_path: Path) -> None:
    api = KubernetesApi(kubeconfig(tmp_path, "http://127.0.0.1:9"), None, "optsched", 2.0)
    with pytest.raises(NoAnswerError, match=r"http://127.0.0.1:9 does not answer: .*refused"):
        api.nodes(None)


def test_a_pod_that_is_there_already(server: Server, api: KubernetesApi) -> None:
    server.answers = [status(409, "AlreadyExists", 'pods "p" already exists'), (200, POD)]
    assert api.create(POD) == POD
    assert [(method, path) for method, path, _, _ in server.asked] == [
        ("POST", "/api/v1/namespaces/optsched/pods?fieldValidation=Strict"),
        ("GET", "/api/v1/namespaces/optsched/pods/p"),
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (403, 'pods "p" is forbidden: exceeded quota: gpus'),
        (422, 'Pod "p" is invalid'),
        (404, "namespaces not found"),
        (400, 'strict decoding error: unknown field "spec.hostNet"'),
    ],
)
def test_a_pod_that_is_refused(server: Server, api: KubernetesApi, code: int, message: str) -> None:
    server.answers = [status(code, "Whatever", message)]
    with pytest.raises(RejectedError) as found:
        api.create(POD)
    assert (found.value.status, str(found.value)) == (code, message)


@pytest.mark.parametrize("code", [401, 408, 429, 500, 503, 504])
def test_a_pod_of_which_nobody_knows(server: Server, api: KubernetesApi, code: int) -> None:
    server.answers = [status(code, "Whatever", "not now")]
    with pytest.raises(NoAnswerError):
        api.create(POD)


@pytest.mark.parametrize(("node", "refused"), [("n1", False), ("n2", True), (None, True)])
def test_a_binding_that_is_there_already(
    server: Server, api: KubernetesApi, node: str | None, refused: bool
) -> None:
    bound = {**POD, "spec": {"nodeName": node} if node else {}}
    server.answers = [status(409, "Conflict", "pod p is already assigned to node"), (200, bound)]
    if refused:
        with pytest.raises(RejectedError, match="already assigned"):
            api.bind("p", BINDING)
    else:
        api.bind("p", BINDING)


@pytest.mark.parametrize("code", [404, 409])
def test_a_pod_that_is_gone_or_another_by_now(
    server: Server, api: KubernetesApi, code: int
) -> None:
    server.answers = [status(code, "Whatever", "it is not that one")]
    api.delete("p", {"gracePeriodSeconds": 5, "preconditions": {"uid": "u"}})
    method, path, body, _ = server.asked[0]
    assert (method, path) == ("DELETE", "/api/v1/namespaces/optsched/pods/p")
    assert body == {
        "gracePeriodSeconds": 5,
        "preconditions": {"uid": "u"},
    }  # those of the query would not be heeded


def test_changes(server: Server, api: KubernetesApi) -> None:
    lines = [{"type": "MODIFIED", "object": POD}, {"type": "BOOKMARK", "object": POD}]
    server.answers = [(200, b"".join(json.dumps(line).encode() + b"\n" for line in lines))]
    assert list(api.watch("x", "5", 1)) == lines
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    server.answers = [(200, json.dumps(gone).encode() + b"\n")]
    with pytest.raises(RejectedError) as found:
        list(api.watch("x", "5", 1))
    assert found.value.status == 410
    server.answers = [(200, b"nonsense\n")]
    with pytest.raises(NoAnswerError, match="no JSON"):
        list(api.watch("x", "5", 1))


def test_a_watch_that_is_too_old_begins_anew(server: Server, api: KubernetesApi) -> None:
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    event = {"type": "ADDED", "object": {"metadata": {"resourceVersion": "9"}}}
    server.answers = [
        listing(),
        (200, json.dumps(gone).encode() + b"\n"),
        listing(),
        (200, json.dumps(event).encode() + b"\n"),
        (200, hang),
    ]
    told: list[float] = []
    watcher = Watcher(api, "x", lambda: told.append(time.monotonic()))
    watcher.start()
    try:
        until(lambda: len(server.asked) >= 5)
    finally:
        watcher.close()
    assert [
        f"{path.partition('?')[2]}&".find("watch=true") >= 0 for _, path, _, _ in server.asked[:5]
    ] == [False, True, False, True, True]
    assert "resourceVersion=9&" in server.asked[4][1]  # from the last change on
    assert len(told) == 3  # two lists and an event


# ------------------------------------------------------------------------------------------------
# how it is reached


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "a: [",
        "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n",
        "- 1\n",
    ],
)
def test_no_kubeconfig(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    for path in (tmp_path / "config", tmp_path / "absent"):
        with pytest.raises(
            InputError, match=r"kubernetes.kubeconfig: nothing says how to reach the cluster"
        ):
            KubernetesApi(path, None, "optsched", 2.0)


def test_an_unknown_context(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing says how to reach the cluster: .*other"):
        KubernetesApi(kubeconfig(tmp_path, "http://127.0.0.1:9"), "other", "optsched", 2.0)


def test_a_token_that_a_program_makes(server: Server, tmp_path: Path) -> None:
    """As clouds have it; it is asked again when the token has run out."""
    program = tmp_path / "token"
    program.write_text(f"""#!/bin/sh
echo x >> {tmp_path}/made
n=$(wc -l < {tmp_path}/made)
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status":
  {{"token": "t'$n'", "expirationTimestamp": "2020-01-01T00:00:00Z"}}}}'
""")
    program.chmod(0o755)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(program),
            "interactiveMode": "Never",
        }
    }
    api = KubernetesApi(kubeconfig(tmp_path, server.address, user), None, "optsched", 2.0)
    server.answers = [listing()]
    for _ in range(2):
        api.nodes(None)
    tokens = [headers["authorization"] for _, _, _, headers in server.asked]
    assert tokens[0].startswith("Bearer t") and tokens[0] != tokens[1]
