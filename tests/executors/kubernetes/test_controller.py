"""The controller on a real API server: jobs preempt others, are saved and resumed, whoever is
killed meanwhile."""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import AttemptKey, AttemptState
from optsched.testing.executors import until
from tests.live.kubernetes_cluster import KubernetesCluster, kubernetes_cluster
from tests.live.kubernetes_server import NAMESPACE, missing
from tests.live.slurm_cluster import everybodys_python
from tests.live.test_fault_campaign import JOBS, check, control, leftovers, set_up

from .conftest import KubernetesPlace

pytestmark = pytest.mark.slow
TOML = """
format = "optsched-cluster/1"
executor = "kubernetes"
every = "5s"
budget = "5s"
[kubernetes]
kubeconfig = "{cluster.kubeconfig}"
namespace = "{namespace}"
image = "host"
poll = "0.2s"
volumes = [{{mount = "{folder}", host = "{folder}"}}]
"""
POINTS = int(os.environ.get("OPTSCHED_FAULT_POINTS", "40"))


@pytest.fixture(scope="module")
def small() -> Iterator[KubernetesCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with kubernetes_cluster(nodes=2, gpus=2) as made:
        yield made


@pytest.fixture
def lab(small: KubernetesCluster) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="optsched-lab-") as name:
        folder = Path(name)
        prepare(folder, small)
        yield folder
        for process in leftovers(folder):
            with suppress(Exception):
                process.kill()


def prepare(folder: Path, cluster: KubernetesCluster) -> None:
    set_up(folder)
    (folder / "cluster.toml").write_text(
        TOML.format(cluster=cluster, folder=folder, namespace=NAMESPACE)
    )


def campaign(folder: Path, draw: random.Random, times: int) -> int:
    """Kill controllers at random points until all is done or this has happened so many `times`; how
    often it did."""
    killed = 0
    while killed < times:
        done = control(folder, draw.randint(1, 24))
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
        killed += 1
    else:
        done = control(folder, 0)
        assert done.returncode == 0, done.stderr
    until(lambda: not leftovers(folder))  # a container ends a moment after its pod
    check(folder)
    return killed


def test_killed_again_and_again(lab: Path) -> None:
    assert len(JOBS) == 5
    campaign(lab, random.Random(1), 3)


def test_killed_at_many_points(small: KubernetesCluster) -> None:
    draw, killed = random.Random(0), 0
    while killed < POINTS:
        with tempfile.TemporaryDirectory(prefix="optsched-lab-") as name:
            prepare(Path(name), small)
            killed += max(1, campaign(Path(name), draw, min(10, POINTS - killed)))


@pytest.mark.parametrize("uid", [0, 65534])
def test_the_commands(lab: Path, small: KubernetesCluster, uid: int) -> None:
    """`optsched run`, `submit --image`, `queue` and `cancel`, as root or another user types
    them."""
    python = everybodys_python() if uid else sys.executable
    as_user: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
    environment = {
        **os.environ,
        "OPTSCHED_CONFIG": str(lab / "cluster.toml"),
        "HOME": str(lab),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    if uid:
        same = f"import sys, optsched; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        asked: dict[str, Any] = {"env": environment, "capture_output": True, "check": False}
        if python is None or subprocess.run([python, "-c", same], **asked, **as_user).returncode:
            pytest.skip("other users may not enter the folders of Python and its packages")
        for path in (lab, lab / "cluster.toml"):
            os.chown(path, uid, uid)
        own = lab / "kubeconfig"
        own.write_bytes(small.kubeconfig.read_bytes())
        own.chmod(0o644)
        text = (lab / "cluster.toml").read_text()
        (lab / "cluster.toml").write_text(text.replace(str(small.kubeconfig), str(own)))
    ours = [str(python), "-m", "optsched"]

    def optsched(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ours, *words],
            capture_output=True,
            text=True,
            cwd=lab,
            timeout=120,
            check=False,
            env=environment,
            **as_user,
        )

    running = subprocess.Popen(
        [*ours, "run", "--config", "cluster.toml", "--quiet"], cwd=lab, env=environment, **as_user
    )
    try:
        until(lambda: optsched("queue").returncode == 0)
        done = optsched("submit", "--gpus", "4", "--nodes", "2", "--wait", "--", "id", "-u")
        assert (done.returncode, done.stdout) == (0, f"{uid}\n"), done.stderr
        done = optsched(
            "submit",
            "--gpus",
            "2",
            "--image",
            "torch:2",
            "--wait",
            "--",
            "sh",
            "-c",
            "echo $OPTSCHED_NODE $CUDA_VISIBLE_DEVICES",
        )
        assert done.returncode == 0, done.stderr
        node, ids = done.stdout.split()
        assert node in ("n1", "n2") and len(ids.split(",")) == 2
        bad = optsched("submit", "--image", "registry.invalid/x", "--name", "bad", "--", "true")
        assert bad.returncode == 0, bad.stderr
        until(lambda: "ImagePullBackOff" in optsched("explain", "bad").stdout)
        assert optsched("cancel", "bad").returncode == 0
    finally:
        running.terminate()
        assert running.wait(60) == 0


def test_round_trips(kubernetes: KubernetesCluster) -> None:
    """Medians of observe, start and stop, printed (`-s`)."""
    with tempfile.TemporaryDirectory(prefix="optsched-lab-") as name:
        Path(name).chmod(0o755)
        place = KubernetesPlace(Path(name), kubernetes, poll_s=1.0)
        executor = place.executor
        found: dict[str, list[float]] = {
            what: [] for what in ("start", "until it runs", "observe", "stop", "until it ended")
        }

        def timed(what: str, since_s: float) -> float:
            found[what].append(time.monotonic() - since_s)
            return time.monotonic()

        def reach(key: AttemptKey, state: AttemptState) -> None:
            while place.see(key).state is not state:
                executor.changes(1.0)

        executor.changes(0.1)
        for i in range(15):
            script = "trap 'exit 85' TERM; touch run$OPTSCHED_JOB; while :; do sleep 0.01; done"
            order = place.order(f"job{i}", "sh", "-c", script)
            executor.inventory()
            since_s = time.monotonic()
            executor.start(order)
            since_s = timed("start", since_s)
            reach(order.key, AttemptState.RUNNING)
            timed("until it runs", since_s)
            until(lambda i=i: (place.folder / f"runjob{i}").exists())
            executor._view.changed = True
            time.sleep(0.2)
            since_s = time.monotonic()
            executor.observe()
            since_s = timed("observe", since_s)
            executor.checkpoint_stop(order.key, 30)
            since_s = timed("stop", since_s)
            reach(order.key, AttemptState.ENDED)
            timed("until it ended", since_s)
            assert place.see(order.key).exit_status == 85
        print(
            json.dumps(
                {what: f"{1000 * statistics.median(each):.0f} ms" for what, each in found.items()}
            )
        )
        place.clear()


def test_many_at_once() -> None:
    """64 pods on 8 nodes; what looking at them costs is printed (`-s`)."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with (
        kubernetes_cluster(nodes=8, gpus=8) as big,
        tempfile.TemporaryDirectory(prefix="optsched-lab-") as name,
    ):
        Path(name).chmod(0o755)
        place = KubernetesPlace(Path(name), big, poll_s=1.0)
        orders = [
            place.order(f"job{i}", "sleep", "600", nodes=(big.names[i % 8],)) for i in range(64)
        ]
        since_s = time.monotonic()
        for order in orders:
            place.executor.start(order)
        started_s = time.monotonic() - since_s
        until(lambda: all(seen.state is AttemptState.RUNNING for seen in place.executor.observe()))
        running_s = time.monotonic() - since_s
        seen = place.executor.observe()
        ids = [gpu for one in seen for each in one.gpu_ids.values() for gpu in each]
        assert len(seen) == len(set(ids)) == len(ids) == 64
        looks: list[float] = []
        for _ in range(5):
            place.executor._view.changed = True  # type: ignore[attr-defined]
            time.sleep(0.2)
            since_s = time.monotonic()
            place.executor.observe()
            looks.append(time.monotonic() - since_s)
        figures: dict[str, Any] = {
            "all started, s": round(started_s, 1),
            "all run, s": round(running_s, 1),
            "a look, ms": round(1000 * statistics.median(looks)),
        }
        print(json.dumps(figures))
        place.clear()
