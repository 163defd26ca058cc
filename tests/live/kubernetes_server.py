"""A real Kubernetes API server with its etcd on this host, in one folder, and who may do what
there."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .kubernetes_api import Api, ApiError, write_kubeconfig
from .kubernetes_container import ends_with_its_parent

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes.yaml"
BUILT = Path("~/.cache/optsched/kubernetes").expanduser()
PROGRAMS = ("etcd", "kube-apiserver")
NAMESPACE = ACCOUNT = "optsched"
TOKEN_S = 86400


def missing() -> str | None:
    """Why no cluster can be had here, None if one can."""
    if find_spec("kubernetes") is None:
        return "the Python package kubernetes is not installed: pip install 'optsched[kubernetes]'"
    absent = [name for name in PROGRAMS if program(name) is None]
    if absent:
        return f"{' and '.join(absent)} not found; `make test-kubernetes` builds what is needed"
    if absent := [name for name in ("openssl", "unshare", "setpriv") if shutil.which(name) is None]:
        return f"{' and '.join(absent)} not found"
    return None if os.geteuid() == 0 else "only root can start containers"


def program(name: str) -> str | None:
    """Where one of the server's programs is."""
    given = os.environ.get("OPTSCHED_KUBERNETES_BIN")
    places = (given or "", os.environ.get("PATH", os.defpath), str(BUILT))
    return next(
        (found for place in places if place and (found := shutil.which(name, path=place))), None
    )


def manifests() -> list[dict[str, Any]]:
    """The documents of deploy/kubernetes.yaml."""
    import yaml  # comes with the package kubernetes

    return list(yaml.safe_load_all(MANIFEST.read_text()))


class KubernetesServer:
    """The server, and its processes.

    `api` is an administrator; `admin_kubeconfig` is too. `kubeconfig` is the service account of
    deploy/kubernetes.yaml.
    """

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        """`nodes` are the names of those that may speak to it as nodes."""
        self.folder = folder
        self.kubeconfig, self.admin_kubeconfig = folder / "kubeconfig", folder / "admin.kubeconfig"
        self.port, self._etcd_port, self._peer_port = _free_ports(3)
        self.server = f"https://127.0.0.1:{self.port}"
        self.tokens = {name: secrets.token_hex(16) for name in ("admin", *nodes)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def certificate(self) -> Path:
        """Of the authority behind the server's own."""
        return self.folder / "certs" / "apiserver.crt"

    def up(self) -> None:
        """All of it, with what deploy/kubernetes.yaml makes."""
        for name in ("etcd", "certs", "log"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        lines = [
            f"{token},{'admin,admin,system:masters' if name == 'admin' else f'system:node:{name},{name},system:nodes'}"  # noqa: E501
            for name, token in self.tokens.items()
        ]
        tokens = self.folder / "tokens.csv"
        tokens.write_text("\n".join(lines) + "\n")
        tokens.chmod(0o600)
        key = str(self.folder / "service-accounts.key")
        subprocess.run(
            ["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True, timeout=60
        )
        here, peers = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._start(
            "etcd",
            str(program("etcd")),
            "--name=lab",
            f"--data-dir={self.folder}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=lab={peers}",
            "--log-level=warn",
        )
        self._start_server()
        self.api = Api(self.server, self.certificate, self.tokens["admin"])
        write_kubeconfig(self.admin_kubeconfig, self.api, NAMESPACE)
        for document in manifests():
            self.api.apply(document)
        write_kubeconfig(self.kubeconfig, self.account(), NAMESPACE)

    def account(self, name: str = ACCOUNT) -> Api:
        """A service account, by default that of deploy/kubernetes.yaml, with what it is granted and
        no more."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_S},
        }
        token = self.api.create(path, request)["status"]["token"]
        return Api(self.server, self.certificate, token)

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ends_with_its_parent,
                cwd=ROOT,
            )

    def _start_server(self) -> None:
        key = self.folder / "service-accounts.key"
        self._start(
            "kube-apiserver",
            str(program("kube-apiserver")),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder}/certs",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://lab",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            "--v=1",
        )
        wait_until(self._answers)

    def _answers(self) -> bool:
        server = self._running["kube-apiserver"]
        assert server.poll() is None, (self.folder / "log" / "kube-apiserver.log").read_text()[
            -2000:
        ]
        try:
            Api(self.server, self.certificate, self.tokens["admin"]).get("/readyz")
        except ApiError as error:
            return error.status == 200
        except OSError:
            return False
        return True

    def restart_apiserver(self) -> None:
        """Kill it with -9 and start it again."""
        self.stop_apiserver()
        self.start_apiserver()

    def stop_apiserver(self) -> None:
        """Kill it with -9."""
        self._end("kube-apiserver")

    def start_apiserver(self) -> None:
        """Start it again, and wait until it answers."""
        self._start_server()
        self.api.close()  # the connection was to the one before

    def _end(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()

    def down(self) -> None:
        """End all that this has started."""
        for name in reversed(PROGRAMS):
            self._end(name)


def wait_until(true: Callable[[], object], patience_s: float = 90.0) -> None:
    """Raises TimeoutError where that does not come about."""
    end_s = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    found = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return found
