"""`executor = "kubernetes"` in cluster.toml."""

import json
from pathlib import Path

import pytest

from optsched.control.settings import read_settings
from optsched.errors import InputError
from optsched.executors.base import AttemptKey as Key
from optsched.executors.base import NoAnswerError, Order, RefusedError
from optsched.executors.kubernetes import KubernetesExecutor
from optsched.executors.opening import open_executor
from optsched.model.instance import Slot
from optsched.plugins import registry

HEAD = 'format = "optsched-cluster/1"\nexecutor = "kubernetes"\n'


def opened(folder: Path, text: str, nodes: str = "") -> KubernetesExecutor:
    pytest.importorskip("kubernetes", reason="needs: pip install 'optsched[kubernetes]'")
    (folder / "kubeconfig").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    (folder / "cluster.toml").write_text(
        f'{HEAD}{nodes}[kubernetes]\nkubeconfig = "{folder}/kubeconfig"\ntimeout = "2s"\n{text}\n'
    )
    found = open_executor(read_settings(folder / "cluster.toml"))
    assert isinstance(found, KubernetesExecutor)
    return found


def volume(folder: Path, more: str = "") -> str:
    return f'volumes = [{{mount = "{folder}", claim = "shared"{more}}}]'


def test_it_is_listed() -> None:
    titles = {found.name: found.title for found in registry.listed("executors")}
    assert titles["kubernetes"] == (
        "Pods of the Kubernetes cluster that `[kubernetes]` names, one a node"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"shared: .*/state is not on one of kubernetes.volumes"),
        (
            'volumes = [{mount = "{here}", claim = "shared", read_only = true}]',
            r"shared: .*/state can only be read on kubernetes.volumes",
        ),
        (
            'volumes = [{mount = "{here}"}]',
            r"kubernetes.volumes: that at '.*' has none of claim, nfs and host",
        ),
        (
            'volumes = [{mount = "{here}", claim = "a", nfs = "b:/c"}]',
            r"that at '.*' has claim and nfs; give one",
        ),
        ('volumes = [{mount = "here", claim = "a"}]', r"mount 'here' is not an absolute path"),
        (
            'volumes = [{mount = "{here}", nfs = "/export"}]',
            r"nfs = '/export' is not an export; write server:/path",
        ),
        ('volumes = [{mount = "{here}", host = "data"}]', r"host = 'data' is not an absolute path"),
        (
            'volumes = [{mount = "{here}", claim = "a"}, {mount = "{here}", claim = "b"}]',
            r"two have mount = ",
        ),
        (
            'volumes = [{mount = "{here}", clam = "a"}]',
            r"kubernetes.volumes.0..clam: is not a known field",
        ),
        ('{volume}\ngpu = "gpu"', r"kubernetes.gpu: 'gpu' is not the name of a resource"),
        (
            '{volume}\nnamespace = "My Jobs"',
            r"kubernetes.namespace: 'My Jobs' is not the name of a namespace",
        ),
        ("{volume}\npoll = 0", r"kubernetes.poll: must be longer than 0 s"),
        ('{volume}\nstart_timeout = "0s"', r"kubernetes.start_timeout: must be longer than 0 s"),
        (
            '{volume}\npod = {nodeName = "n1"}',
            r"kubernetes.pod: nodeName is set for each job; leave it out",
        ),
        (
            '{volume}\ncontainer = {image = "x"}',
            r"kubernetes.container: image is set for each job; leave it out",
        ),
        ('{volume}\nkubeconfig_ = "x"', r"kubernetes.kubeconfig_: is not a known field"),
    ],
)
def test_faults(tmp_path: Path, text: str, words: str) -> None:
    text = text.replace("{volume}", volume(tmp_path)).replace("{here}", str(tmp_path))
    with pytest.raises(InputError, match=words):
        opened(tmp_path, text)
    assert not (tmp_path / "state").exists()


def test_emulated_nodes_are_for_others(tmp_path: Path) -> None:
    nodes = '[[nodes]]\nname = "n1"\ngpus = 1\nemulate = true\n'
    with pytest.raises(InputError, match=r"n1 has emulate = true, which is for the local executor"):
        opened(tmp_path, volume(tmp_path), nodes)


def order(**more: object) -> Order:
    return Order(
        key=Key("job", 1), placement=(Slot(node="n1"),), argv=("true",), directory="/", **more
    )  # type: ignore


def test_without_a_server_nothing_starts_and_nothing_is_left(tmp_path: Path) -> None:
    executor = opened(tmp_path, volume(tmp_path))
    try:
        for ask in (executor.inventory, executor.observe, lambda: executor.start(order())):
            with pytest.raises(NoAnswerError, match=r"http://127.0.0.1:9 does not answer"):
                ask()
        assert not (tmp_path / "state" / "attempts" / "job").exists()
        executor.kill(order().key)
        with pytest.raises(NoAnswerError):
            executor.observe()
        executor.start(order())  # it never will be, which is known without a server
        with pytest.raises(RefusedError, match="not the name of an attempt"):
            executor.start(Order(key=Key("..", 1), placement=(), argv=("true",), directory="/"))
    finally:
        executor.close()


def test_one_controller_at_a_time_and_the_mark_of_a_folder_stays(tmp_path: Path) -> None:
    tags = []
    for _ in range(2):
        executor = opened(tmp_path, volume(tmp_path))
        with pytest.raises(InputError, match="is in use by another controller"):
            opened(tmp_path, volume(tmp_path))
        tags.append(executor._tag)
        executor.close()
    assert tags[0] == tags[1]
    (tmp_path / "state" / "kubernetes.json").write_text("{")
    with pytest.raises(InputError, match=r"kubernetes.json is damaged"):
        opened(tmp_path, volume(tmp_path))
