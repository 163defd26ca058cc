"""deploy/: it is valid in every version of Kubernetes, and may do what the executor does and
nothing else."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optsched.cli import COMMANDS, main
from optsched.control.api.metrics import _families
from optsched.control.measures import Histogram
from optsched.control.settings import Settings, read_settings
from optsched.plugins import registry
from tests.control.hostile import Hostile
from tests.live.kubernetes_api import Api, ApiError
from tests.live.kubernetes_cluster import (
    NAMESPACE,
    KubernetesCluster,
    kubernetes_cluster,
    missing,
    wait_until,
)

DEPLOY = Path(__file__).parents[1] / "deploy"
FILES = ("kubernetes.yaml", "kueue.yaml")
VERSIONS = ("1.25", "1.29", "1.33", "newest")
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
IMAGE = "none.invalid/image"


def documents(file: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip(
        "yaml", reason="PyYAML is not installed: pip install 'optsched[kubernetes]'"
    )
    return [
        document
        for document in yaml.safe_load_all((DEPLOY / file).read_text())
        if document is not None
    ]


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "optsched",
            "containers": [{"name": "job", "image": IMAGE}],
            **spec,
        },
    }


# -------------------------------------------------------------------------------------------------
# always


UNIT, HARDENED = "optsched.service", "optsched-hardened.conf"


def unit(file: str) -> dict[str, str]:
    """What a unit says of its service; the last of what is said twice."""
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string((DEPLOY / file).read_text())
    return dict(parser["Service"])


def test_the_unit_runs_commands_that_there_are() -> None:
    service = unit(UNIT)
    for line in (service["ExecStart"], service["ExecReload"]):
        program, name, *words = shlex.split(line)
        assert Path(program).name == "optsched" and name in COMMANDS
        result = CliRunner().invoke(main, [name, "--help"])
        options = {word for word in words if word.startswith("--")}
        assert result.exit_code == 0 and options <= {*result.output.split()}


def test_the_unit_leaves_jobs_alone() -> None:
    """Jobs of the local executor are in its control group, and live in its name spaces."""
    service = unit(UNIT)
    assert (service["KillMode"], service["Delegate"], service["TasksMax"]) == (
        "process",
        "yes",
        "infinity",
    )
    closed = {"PrivateTmp", "PrivateDevices", "ProtectHome", "ProtectSystem", "NoNewPrivileges"}
    assert not closed & {*service} and closed <= {*unit(HARDENED)}
    assert service["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "optsched"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (DEPLOY / UNIT).read_text().replace("/usr/local/bin/optsched", str(program))
    (tmp_path / UNIT).write_text(text)
    folder = tmp_path / f"{UNIT}.d"
    folder.mkdir()
    shutil.copy(DEPLOY / HARDENED, folder / "hardened.conf")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if UNIT in line or "hardened" in line]
    assert not told


def expressions() -> dict[str, str]:
    """All that is asked of Prometheus, by where."""
    rules = (DEPLOY / "prometheus-rules.yaml").read_text()
    found = {
        name: f"{expression} {more}"
        for name, expression, more in re.findall(
            r"- alert: (\w+)\n +expr: (.*)\n((?:          .*\n)*)", rules
        )
    }
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        found |= {f"{panel['title']} {own['refId']}": own["expr"] for own in panel["targets"]}
    return found


def test_alerts_and_dashboard_ask_for_numbers_that_there_are(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    lab.submit({"gpus": 1, "duration_s": 5.0, "tenant": "a"}, 5.0, 0.0, 0, None)
    lab.run(10)
    numbers: dict[str, set[str]] = {}
    for family in _families(lab.controller):
        for sample in family.samples:
            numbers.setdefault(sample.name, set()).update(sample.labels)
            for value in sample.labels.values():
                assert re.fullmatch(r"[A-Za-z0-9_.:/+-]*", value), "labels are identifiers"
    asked = expressions()
    assert len(asked) > 20
    seen: set[str] = set()
    for where, expression in asked.items():
        names = set(re.findall(r"optsched_\w+", expression))
        assert names <= numbers.keys(), where
        assert names or "up{" in expression, where
        labels = re.findall(r"(?:by|on) \(?([\w, ]*)\)|\{(\w+)!?=", expression)
        words = {word for pair in labels for text in pair for word in re.findall(r"\w+", text)}
        there = {"job"} | {label for name in names for label in numbers[name]}
        assert words <= there, where
        seen |= names
    assert len(seen) > 15


def test_labels_stay_few(tmp_path: Path) -> None:
    """Whatever users name as their tenant, there are no more labels than tenants."""
    lab = Hostile(tmp_path)
    for number in range(30):
        tenant = f"made up {number}" if number % 2 else "a"
        lab.submit({"gpus": 1, "duration_s": 2.0, "tenant": tenant}, 2.0, 0.0, 0, None)
    lab.run(40)
    tenants = {
        sample.labels["tenant"]
        for family in _families(lab.controller)
        for sample in family.samples
        if "tenant" in sample.labels
    }
    assert tenants <= {"", "a", "b", "other"}


def test_a_histogram_adds_up() -> None:
    histogram = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 2.0, 100.0):
        histogram.observe(value)
    assert histogram.buckets() == [("1", 2.0), ("10", 3.0), ("+Inf", 4.0)]
    assert histogram.sum == 103.5


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES)
def test_every_document_is_valid(file: str, version: str) -> None:
    checker = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install it"
    )
    wanted = checker.latest_version() if version == "newest" else version
    for document in documents(file):
        assert checker.validate(document, wanted, strict=True).startswith(wanted.removesuffix(".0"))
        misspelt = {**document, "metaData": document["metadata"]}
        with pytest.raises(checker.ValidationError):
            checker.validate(misspelt, wanted, strict=True)


def settings_of(file: str, folder: Path) -> Settings:
    [settings] = [document for document in documents(file) if document["kind"] == "ConfigMap"]
    [(name, text)] = settings["data"].items()
    (folder / name).write_text(text)
    return read_settings(folder / name)


def test_its_settings_can_be_read(tmp_path: Path) -> None:
    settings = settings_of("kubernetes.yaml", tmp_path)
    assert (settings.executor, settings.api.port) == ("kubernetes", 8080)
    [volume] = settings.table("kubernetes").volumes
    assert settings.attempts == Path("/shared/optsched")
    assert settings.attempts.is_relative_to(volume.mount)
    assert settings.state == Path("/var/lib/optsched/state")
    registry.executor(settings.executor)


def test_those_of_kueue_too(tmp_path: Path) -> None:
    settings = settings_of("kueue.yaml", tmp_path)
    assert (settings.kueue.queues, settings.kueue.step, settings.every, settings.runs) == (
        (),
        None,
        60.0,
        3600.0,
    )


@pytest.mark.parametrize("file", FILES)
def test_what_belongs_together_has_one_name(file: str) -> None:
    """The objects refer to each other by name, which no schema checks."""
    by_kind = {document["kind"]: document for document in documents(file)}
    deployment = by_kind["Deployment"]["spec"]
    template = deployment["template"]
    assert deployment["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert deployment["replicas"] == 1 and deployment["strategy"]["type"] == "Recreate"
    account = by_kind["ServiceAccount"]["metadata"]["name"]
    assert template["spec"]["serviceAccountName"] == account
    for kind in {"ClusterRoleBinding", "RoleBinding"} & set(by_kind):
        binding = by_kind[kind]
        assert binding["roleRef"]["name"] == by_kind[binding["roleRef"]["kind"]]["metadata"]["name"]
        [subject] = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (
            account,
            by_kind["Namespace"]["metadata"]["name"],
        )
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    [container] = template["spec"]["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    if "PersistentVolumeClaim" in by_kind:
        claim = volumes["shared"]["persistentVolumeClaim"]["claimName"]
        journal = volumes["journal"]["persistentVolumeClaim"]["claimName"]
        claims = {
            document["metadata"]["name"]: document["spec"]["accessModes"]
            for document in documents(file)
            if document["kind"] == "PersistentVolumeClaim"
        }
        assert claims == {journal: ["ReadWriteOnce"], claim: ["ReadWriteMany"]}
        assert f'claim = "{claim}"' in by_kind["ConfigMap"]["data"]["cluster.toml"]
    assert volumes["settings"]["configMap"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]


@pytest.mark.parametrize("file", FILES)
def test_its_pod_has_no_more_rights_than_it_needs(file: str) -> None:
    """Kubernetes' own "restricted" standard (pod security standards), by hand."""
    [deployment] = [one for one in documents(file) if one["kind"] == "Deployment"]
    template = deployment["spec"]["template"]["spec"]
    security = template["securityContext"]
    assert security["runAsNonRoot"] is True and security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(template.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    assert not any("hostPath" in volume for volume in template["volumes"])
    for container in template["containers"]:
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False and own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}


# ------------------------------------------------------------------------------------- against a
# real server


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with kubernetes_cluster(nodes=1) as made:
        yield made


@pytest.fixture(scope="module")
def account(cluster: KubernetesCluster) -> Api:
    return cluster.account()


@pytest.mark.slow
def test_it_does_what_the_executor_does(cluster: KubernetesCluster, account: Api) -> None:
    made = account.create(PODS, pod("mine"))
    target = {"apiVersion": "v1", "kind": "Node", "name": cluster.names[0]}
    account.create(
        f"{PODS}/mine/binding",
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "mine"}, "target": target},
    )
    assert account.get(f"{PODS}/mine")["spec"]["nodeName"] == cluster.names[0]
    assert [one["metadata"]["name"] for one in account.items(PODS)] == ["mine"]
    assert [one["metadata"]["name"] for one in account.items("/api/v1/pods")] == ["mine"]
    assert [one["metadata"]["name"] for one in account.items("/api/v1/nodes")] == list(
        cluster.names
    )
    assert (
        account.get(f"/api/v1/nodes/{cluster.names[0]}")["status"]["allocatable"]["nvidia.com/gpu"]
        == "4"
    )
    version = made["metadata"]["resourceVersion"]
    for path in (PODS, "/api/v1/pods"):
        events = account.watch(path, resourceVersion=version, timeoutSeconds=1)
        assert next(event["object"]["metadata"]["name"] for event in events) == "mine"
    assert list(account.watch("/api/v1/nodes", timeoutSeconds=1))
    account.delete(
        f"{PODS}/mine", gracePeriodSeconds=0, preconditions={"uid": made["metadata"]["uid"]}
    )


@pytest.mark.slow
def test_a_controller_with_these_settings_and_rights_runs_a_job(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    """`optsched run` as the service account, with the ConfigMap's settings but for the volume;
    asked by the probe."""
    [text] = [
        document["data"]["cluster.toml"]
        for document in documents("kubernetes.yaml")
        if document["kind"] == "ConfigMap"
    ]
    shared = tmp_path / "shared"
    shared.mkdir()
    changed = text.replace("/shared", str(shared)).replace(
        'claim = "optsched"', f'host = "{shared}"'
    )
    changed = changed.replace("/var/lib/optsched", str(tmp_path)).replace("port = 8080", "port = 0")
    (tmp_path / "cluster.toml").write_text(changed)
    settings = str(tmp_path / "cluster.toml")
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "OPTSCHED_CONFIG": settings}
    [deployment] = [
        document for document in documents("kubernetes.yaml") if document["kind"] == "Deployment"
    ]
    [container] = deployment["spec"]["template"]["spec"]["containers"]

    def optsched(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "optsched", *words],
            env=environment,
            cwd=shared,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def probe(kind: str) -> bool:
        program, *words = container[kind]["exec"]["command"]
        assert program == "optsched"
        return optsched(*words).returncode == 0

    assert container["args"][0] == "run" and not probe("startupProbe")
    with (tmp_path / "log").open("w") as log:
        controller = subprocess.Popen(
            [sys.executable, "-m", "optsched", "run"], env=environment, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: controller.poll() is not None or probe("startupProbe"))
        assert controller.poll() is None, (tmp_path / "log").read_text()
        assert probe("readinessProbe") and probe("livenessProbe")
        done = optsched(
            "submit", "--gpus", "2", "--wait", "--", "sh", "-c", "echo on $OPTSCHED_NODE; exit 3"
        )
        assert done.returncode == 3 and "on n1" in done.stdout, (
            done,
            (tmp_path / "log").read_text(),
        )
        wait_until(lambda: not cluster.api.items(PODS))
        controller.terminate()
        assert controller.wait(60) == 0
    finally:
        controller.kill()
        controller.wait()


OTHER = "/api/v1/namespaces/default"
REFUSED = {
    "secrets": ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets", None),
    "one secret": ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/one", None),
    "all secrets": ("GET", "/api/v1/secrets", None),
    "settings": ("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/optsched", None),
    "exec": ("POST", f"{PODS}/ours/exec?command=id", None),
    "attach": ("POST", f"{PODS}/ours/attach", None),
    "forward": ("POST", f"{PODS}/ours/portforward", None),
    "a log": ("GET", f"{PODS}/ours/log", None),
    "a container more": ("PATCH", f"{PODS}/ours/ephemeralcontainers", {"spec": {}}),
    "a pod's labels": ("PATCH", f"{PODS}/ours", {"metadata": {"labels": {"a": "b"}}}),
    "a pod's status": ("PATCH", f"{PODS}/ours/status", {"status": {"phase": "Succeeded"}}),
    "an eviction": (
        "POST",
        f"{PODS}/ours/eviction",
        {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "ours"}},
    ),
    "all pods at once": ("DELETE", PODS, None),
    "another's pod": ("DELETE", f"{OTHER}/pods/theirs", None),
    "a pod elsewhere": ("POST", f"{OTHER}/pods", pod("new")),
    "a binding elsewhere": (
        "POST",
        f"{OTHER}/pods/theirs/binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "theirs"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        },
    ),
    "a node's labels": ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}}),
    "a node's state": ("PATCH", "/api/v1/nodes/n1/status", {"status": {"phase": "x"}}),
    "a node": ("DELETE", "/api/v1/nodes/n1", None),
    "a node's kubelet": ("GET", "/api/v1/nodes/n1/proxy/pods", None),
    "namespaces": ("GET", "/api/v1/namespaces", None),
    "a namespace": ("DELETE", f"/api/v1/namespaces/{NAMESPACE}", None),
    "a token": (
        "POST",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/optsched/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ),
    "more rights": (
        "PATCH",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/optsched",
        {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
    ),
    "a role": (
        "POST",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "more"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
        },
    ),
    "deployments": ("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", None),
    "volumes": ("GET", "/api/v1/persistentvolumes", None),
}


@pytest.fixture(scope="module")
def theirs(cluster: KubernetesCluster, account: Api) -> None:
    """A pod of somebody else, one of ours, and a secret: what is refused is there."""
    for namespace, name in (("default", "theirs"), (NAMESPACE, "ours")):
        cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod(name))
    cluster.api.create(
        f"/api/v1/namespaces/{NAMESPACE}/secrets",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "one"},
            "stringData": {"password": "1234"},
        },
    )


@pytest.mark.slow
@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize("what", REFUSED)
def test_all_else_is_refused(account: Api, what: str) -> None:
    method, path, body = REFUSED[what]
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    with pytest.raises(ApiError) as refused:
        account.request(method, path, body, kind)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")


@pytest.mark.slow
@pytest.mark.usefixtures("theirs")
def test_what_is_refused_is_possible(cluster: KubernetesCluster) -> None:
    """An administrator may: it was the right that was missing, not the object."""
    api = cluster.api
    assert api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/one")["data"]
    assert (
        api.merge("/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}})["metadata"]["labels"][
            "a"
        ]
        == "b"
    )
    assert (
        api.merge(f"{PODS}/ours", {"metadata": {"labels": {"a": "b"}}})["metadata"]["labels"]["a"]
        == "b"
    )
    assert api.get("/api/v1/namespaces/default/pods/theirs")


@pytest.mark.slow
def test_nobody_without_a_token(cluster: KubernetesCluster) -> None:
    for token, status in (("", 403), ("wrong", 401)):
        with pytest.raises(ApiError) as refused:
            Api(cluster.server, cluster.certificate, token).get("/api/v1/nodes")
        assert refused.value.status == status
