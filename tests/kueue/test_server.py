"""`optsched kueue` against a real API server with Kueue's objects, with no more rights than
deploy/kueue.yaml gives."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optsched.kueue.objects import BOOST
from tests.live.kubernetes_api import Api, ApiError, write_kubeconfig
from tests.live.kubernetes_cluster import KubernetesCluster, kubernetes_cluster, missing, wait_until

from .objects import (
    NAMESPACE,
    Object,
    admission_cycle,
    cluster_queue,
    flavor,
    is_true,
    local_queue,
    stamp,
    workload,
)

pytestmark = pytest.mark.slow
V1, V2 = "v1beta1", "v1beta2"
TOP = f"/apis/kueue.x-k8s.io/{V2}"
WORKLOADS = f"{TOP}/namespaces/{NAMESPACE}/workloads"
ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXTS: Object = {"type": "object", "additionalProperties": {"type": "string"}}
AMOUNTS: Object = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    },
}


def listed(**fields: Object) -> Object:
    return {"type": "array", "items": {"type": "object", "properties": fields}}


TEXT: Object = {"type": "string"}
WORKLOAD_SPEC: Object = {
    "type": "object",
    "properties": {
        "queueName": TEXT,
        "priority": {"type": "integer", "format": "int32"},
        "active": {"type": "boolean"},
        "maximumExecutionTimeSeconds": {"type": "integer", "minimum": 1},
        "podSets": listed(name=TEXT, count={"type": "integer"}, template=ANY),
    },
}
WORKLOAD_STATUS: Object = {
    "type": "object",
    "properties": {
        "conditions": listed(
            type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastTransitionTime=TEXT
        ),
        "admission": {
            "type": "object",
            "nullable": True,
            "properties": {
                "clusterQueue": TEXT,
                "podSetAssignments": listed(
                    name=TEXT, flavors=TEXTS, resourceUsage=AMOUNTS, count={"type": "integer"}
                ),
            },
        },
        "schedulingStats": {
            "type": "object",
            "properties": {
                "evictions": listed(reason=TEXT, underlyingCause=TEXT, count={"type": "integer"})
            },
        },
    },
}
SCHEMAS: dict[str, tuple[str, bool, Object, Object]] = {
    "Workload": ("workloads", True, WORKLOAD_SPEC, WORKLOAD_STATUS),
    "ClusterQueue": ("clusterqueues", False, ANY, ANY),
    "LocalQueue": ("localqueues", True, ANY, ANY),
    "ResourceFlavor": ("resourceflavors", False, ANY, ANY),
}


def definition(kind: str) -> Object:
    """Of Kueue's kinds, with the fields that are of interest here, in both versions that it
    serves."""
    plural, namespaced, spec, status = SCHEMAS[kind]
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == V2,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        }
        for name in (V1, V2)
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.kueue.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": versions,
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
        },
    }


class Lab:
    """Kueue's objects on a real server, and the command as a stranger calls it."""

    def __init__(self, cluster: KubernetesCluster, folder: Path) -> None:
        self.api, self.cluster, self.folder = cluster.api, cluster, folder
        self.kubeconfig = write_kubeconfig(
            folder / "kubeconfig", cluster.account("optsched-kueue"), "optsched"
        )

    def command(self, *words: str, text: str = "", status: int = 0) -> str:
        settings = self.folder / "cluster.toml"
        settings.write_text(
            f'format = "optsched-cluster/1"\n{text}\n[kubernetes]\nkubeconfig = '
            f'"{self.kubeconfig}"\ntimeout = "5s"\n'
        )
        done = subprocess.run(
            [sys.executable, "-m", "optsched", "kueue", "--config", str(settings), *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, (done.stdout, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def create(self, given: Object) -> None:
        made = self.api.apply(given)
        assert made["spec"] == given["spec"]  # nothing was dropped

    def workloads(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: {"status": {}, **one} for one in self.api.items(WORKLOADS)}

    def boosts(self) -> dict[str, str]:
        found = {
            name: (one["metadata"].get("annotations") or {}).get(BOOST)
            for name, one in self.workloads().items()
        }
        return {name: boost for name, boost in found.items() if boost is not None}

    def set_status(self, name: str, status: Object) -> None:
        self.api.merge(f"{WORKLOADS}/{name}/status", {"status": status})

    def kueue_schedules(self) -> list[str]:
        """One cycle of Kueue's scheduler; who holds quota then."""
        queue = self.api.get(f"{TOP}/clusterqueues/main")
        for name, status in admission_cycle(queue, self.workloads().values(), time.time()).items():
            self.set_status(
                name, {"admission": None, "conditions": []} if status is None else status
            )
        return sorted(
            name
            for name, one in self.workloads().items()
            if one["status"].get("admission") and not is_true(one, "Finished")
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    yaml = pytest.importorskip("yaml")
    with kubernetes_cluster(nodes=1) as made:
        for document in yaml.safe_load_all(
            (Path(__file__).parents[2] / "deploy" / "kueue.yaml").read_text()
        ):
            if document["kind"] != "Namespace":
                made.api.apply(document)
        made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        yield made


@pytest.fixture(scope="module")
def kinds(cluster: KubernetesCluster) -> None:
    for kind in SCHEMAS:
        cluster.api.apply(definition(kind))

    def served() -> bool:
        try:
            return all(
                cluster.api.items(f"{TOP}/{plural}") == [] for plural, *_ in SCHEMAS.values()
            )
        except ApiError:
            return False

    wait_until(served)
    for name in ("a100", "v100"):
        cluster.api.apply(flavor(name))
    cluster.api.apply(cluster_queue("main", {"a100": 8}))
    cluster.api.apply(local_queue("main", "main"))


@pytest.fixture
def bare(cluster: KubernetesCluster, tmp_path: Path) -> Lab:
    return Lab(cluster, tmp_path)


@pytest.fixture
def lab(bare: Lab, kinds: None) -> Iterator[Lab]:
    yield bare
    for name in bare.workloads():
        bare.api.delete(f"{WORKLOADS}/{name}")


def test_without_kueue(bare: Lab) -> None:
    """Runs first: there are no kinds yet."""
    assert "there is no Kueue at https://127.0.0.1" in bare.command("--once", status=2)


def test_the_short_one_is_admitted_first(lab: Lab) -> None:
    for name, duration in (("hour", "1h"), ("minutes", "10m")):
        lab.create(workload(name, 8, duration=duration))
        time.sleep(1.1)  # the server's clock counts whole seconds
    said = lab.command("--once", "--dry-run")
    assert "to be changed of 2" in said and "team/minutes" in said and lab.boosts() == {}
    said = lab.command("--once")
    assert "is to be admitted now" in said and list(lab.boosts()) == ["minutes"]
    assert lab.kueue_schedules() == ["minutes"]
    assert "0 boosts changed of 2" in lab.command("--once")
    ended = {
        "type": "Finished",
        "status": "True",
        "reason": "Succeeded",
        "message": "done",
        "lastTransitionTime": stamp(time.time()),
    }
    lab.set_status("minutes", {"conditions": [ended], "admission": None})
    assert "0 boosts changed of 1" in lab.command("--once")
    assert lab.kueue_schedules() == ["hour"]


def test_one_that_runs_gives_way(lab: Lab) -> None:
    lab.create(workload("long", 8, duration="100h", checkpoint_every="1s"))
    assert lab.kueue_schedules() == ["long"]
    lab.create(workload("short", 8, duration="1m"))
    found = json.loads(lab.command("--once", "--json"))
    assert {one["name"]: one["why"].partition(":")[0] for one in found["workloads"]} == {
        "short": "is to be admitted now",
        "long": "gives way",
    }
    assert found["left_out"] == {} and found["round"]["value"] > 0
    assert lab.kueue_schedules() == ["short"]


def test_the_older_version_of_the_api(lab: Lab) -> None:
    """A server that only has v1beta1 of the same objects."""
    from optsched.kueue.server import KueueServer

    lab.create(workload("one", 3, priority=5))
    server = KueueServer(lab.kubeconfig, None, "optsched", 5.0)
    server._version = V1
    wait_until(lambda: server.read()[2])
    queues, flavors, workloads = server.read()
    assert [queue.name for queue in queues] == ["main"] and [one.name for one in flavors] == [
        "a100",
        "v100",
    ]
    server.boost(workloads[0], 7)
    assert lab.boosts() == {"one": "7"}
    server.boost(workloads[0], 0)
    assert lab.boosts() == {}
    lab.api.delete(f"{WORKLOADS}/one")
    server.boost(workloads[0], 7)  # it is gone: nothing


def test_the_loop_goes_on_when_the_server_is_away(lab: Lab) -> None:
    """Until SIGTERM; in between it tells that nobody answers."""
    settings = lab.folder / "cluster.toml"
    settings.write_text(
        'format = "optsched-cluster/1"\nevery = "0.3s"\n[kubernetes]\nkubeconfig = '
        f'"{lab.kubeconfig}"\n'
    )
    errors = lab.folder / "errors"
    with errors.open("w") as err:
        loop = subprocess.Popen(
            [sys.executable, "-u", "-m", "optsched", "kueue", "--config", str(settings)],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
    try:
        lab.create(workload("hour", 8, duration="1h"))
        time.sleep(1.1)
        lab.create(workload("minutes", 8, duration="1m"))
        wait_until(lambda: list(lab.boosts()) == ["minutes"])
        lab.cluster.stop_apiserver()
        wait_until(lambda: "does not answer" in errors.read_text())
        lab.cluster.start_apiserver()
        time.sleep(1.1)
        lab.create(workload("seconds", 8, duration="10s"))
        wait_until(lambda: "seconds" in lab.boosts())
        assert loop.poll() is None
        loop.terminate()
        assert loop.wait(30) == 0
        assert loop.stdout is not None and "team/minutes: boost 0 -> " in loop.stdout.read()
    finally:
        loop.kill()
        loop.wait()


def test_bad_input(lab: Lab) -> None:
    assert "kueue.queues: there is no ClusterQueue 'x'; there are main" in lab.command(
        "--once", text='[kueue]\nqueues = ["x"]', status=2
    )
    assert "kueue.step" in lab.command("--once", text="[kueue]\nstep = 0", status=2)


REFUSED: dict[str, tuple[str, str, Any]] = {
    "a queue's quota": ("PATCH", f"{TOP}/clusterqueues/main", {"spec": {"cohortName": "x"}}),
    "a Workload's end": ("DELETE", f"{WORKLOADS}/one", None),
    "a Workload's status": ("PATCH", f"{WORKLOADS}/one/status", {"status": {"admission": None}}),
    "a new Workload": ("POST", WORKLOADS, workload("new", 1)),
    "pods": ("GET", "/api/v1/pods", None),
    "secrets": ("GET", "/api/v1/secrets", None),
    "nodes": ("GET", "/api/v1/nodes", None),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_else_is_allowed(lab: Lab, what: str) -> None:
    lab.create(workload("one", 1))
    account: Api = lab.cluster.account("optsched-kueue")
    method, path, body = REFUSED[what]
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    with pytest.raises(ApiError) as refused:
        account.request(method, path, body, kind)
    assert refused.value.status == 403
