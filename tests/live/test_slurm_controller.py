"""The controller on a real Slurm cluster: jobs preempt others, are saved and resumed, whoever is
killed meanwhile."""

import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optsched import Job, Profile
from optsched.control.journal.events import Submitted
from optsched.control.opening import opened
from optsched.control.settings import read_settings
from optsched.control.submission import Submission
from optsched.executors.base import AttemptKey, AttemptState, Order
from optsched.executors.slurm.executor import SlurmExecutor
from optsched.executors.slurm.site import split_nodes
from optsched.model.instance import Slot

from .slurm_cluster import SlurmCluster, missing, slurm_cluster
from .test_fault_campaign import JOBS, check, control, leftovers, set_up

TOML = """
format = "optsched-cluster/1"
executor = "slurm"
every = "5s"
budget = "5s"
[slurm]
conf = "{conf}"
partition = "optsched"
poll = "0.2s"
"""
POINTS = int(os.environ.get("OPTSCHED_FAULT_POINTS", "40"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster(nodes=2, gpus=2) as made:
        yield made


@pytest.fixture
def lab(cluster: SlurmCluster) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="optsched-lab-") as name:
        folder = Path(name)
        prepare(folder, cluster)
        yield folder
        for process in leftovers(folder):
            process.kill()


def prepare(folder: Path, cluster: SlurmCluster) -> None:
    set_up(folder)
    (folder / "cluster.toml").write_text(TOML.format(conf=cluster.conf))


def attempts(cluster: SlurmCluster, folder: Path) -> list[str]:
    """The comment of each job that Slurm had of this folder."""
    text = cluster.slurm("squeue", "-h", "--states=all", "-o", "%k %Z")
    return [
        line.split()[0] for line in text.splitlines() if line.split()[1].startswith(f"{folder}/")
    ]


def campaign(folder: Path, cluster: SlurmCluster, draw: random.Random, times: int) -> int:
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
    check(folder)
    made = attempts(cluster, folder)
    assert len(set(made)) == len(made) >= len(JOBS)
    return killed


def test_killed_again_and_again(lab: Path, cluster: SlurmCluster) -> None:
    campaign(lab, cluster, random.Random(1), 3)


@pytest.mark.slow
def test_killed_at_many_points(cluster: SlurmCluster) -> None:
    draw, killed = random.Random(0), 0
    while killed < POINTS:
        with tempfile.TemporaryDirectory(prefix="optsched-lab-") as name:
            prepare(Path(name), cluster)
            killed += max(1, campaign(Path(name), cluster, draw, min(10, POINTS - killed)))


@pytest.mark.slow
def test_128_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 jobs on 1,024 GPUs: all run where the plan said; round trips are printed (`-s`)."""
    with (
        slurm_cluster(nodes=128, gpus=8) as big,
        tempfile.TemporaryDirectory(prefix="optsched-lab-") as name,
    ):
        folder = Path(name)
        (folder / "cluster.toml").write_text(TOML.format(conf=big.conf))
        draw = random.Random(0)
        sizes = draw.choices((1, 2, 4, 8), (6, 2, 1, 0.5), k=500)
        with opened(read_settings(folder / "cluster.toml")) as controller:
            for i, gpus in enumerate(sizes):
                job = Job(id=f"job{i}", gpus=gpus, duration_s=3600, profile=Profile())
                controller.record(
                    Submitted(
                        submission=Submission(
                            job=job, argv=("sleep", "1000"), directory="/", grace_s=5.0
                        )
                    )
                )
            spent = dict.fromkeys(("observe", "decide", "slurm"), 0.0)

            def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
                def timing(*given: Any, **named: Any) -> Any:
                    since_s = time.monotonic()
                    try:
                        return call(*given, **named)
                    finally:
                        spent[name] += time.monotonic() - since_s

                return timing

            executor = controller.executor
            assert isinstance(executor, SlurmExecutor)
            monkeypatch.setattr(controller, "observe", timed("observe", controller.observe))
            monkeypatch.setattr(controller, "decide", timed("decide", controller.decide))
            monkeypatch.setattr(executor.client, "ask", timed("slurm", executor.client.ask))
            began_s = time.monotonic()
            steps = []
            started: set[str] = set()
            while time.monotonic() < began_s + 400:
                at_s = time.monotonic()
                controller.step()
                steps.append(time.monotonic() - at_s)
                live = {one.key.job: one for one in controller.state.live_attempts()}
                started = {job for job, one in live.items() if one.started_s is not None}
                if len(started) == len(sizes):
                    break
                controller.executor.changes(0.2)
            wall_s = time.monotonic() - began_s
            turning_s, took_s = sum(steps), {**spent}
            held = sum(slot.gpus for one in live.values() for slot in one.placement)
            placed: dict[str, list[str]] = {}
            for line in big.slurm("squeue", "-h", "--states=RUNNING", "-o", "%k %N").splitlines():
                comment, node = line.split()
                key = AttemptKey.parse(comment)
                assert key is not None
                placed.setdefault(key.job, []).extend(split_nodes(node))
            expected = {job: [slot.node for slot in one.placement] for job, one in live.items()}
            assert {job: sorted(nodes) for job, nodes in placed.items()} == {
                job: sorted(nodes) for job, nodes in expected.items()
            }
            assert len(started) == len(sizes) and held == sum(sizes)
            ids = [
                (slot.node, gpu)
                for job, one in live.items()
                for slot in one.placement
                for gpu in controller.observed[one.key].gpu_ids[slot.node]
            ]
            assert len(ids) == len(set(ids)) == held
            looks = []
            for _ in range(5):
                time.sleep(0.3)
                at_s = time.monotonic()
                controller.executor.observe()
                looks.append(time.monotonic() - at_s)
            at_s = time.monotonic()
            big.slurm("squeue", "-h", "--states=all", "-o", "%i|%T|%N|%k")
            alone_s = time.monotonic() - at_s
            print(
                json.dumps(
                    {
                        "running": len(started),
                        "GPUs held": held,
                        "until all run, s": round(wall_s, 1),
                        "turns": len(steps),
                        "longest turn, s": round(max(steps), 2),
                        "all turns, s": round(turning_s, 1),
                        "observe, s": round(took_s["observe"], 1),
                        "solve, s": round(took_s["decide"], 1),
                        "apply, s": round(turning_s - took_s["observe"] - took_s["decide"], 1),
                        "in Slurm's programs, s": round(took_s["slurm"], 1),
                        "share that is not Slurm's": round(1 - took_s["slurm"] / turning_s, 2),
                        "a later look, ms": round(1000 * statistics.median(looks)),
                        "squeue alone, ms": round(1000 * alone_s),
                    }
                )
            )


@pytest.mark.slow
def test_round_trips(cluster: SlurmCluster) -> None:
    """Medians of observe, start and stop, printed (`-s`)."""
    with tempfile.TemporaryDirectory(prefix="optsched-lab-") as name:
        executor = cluster.executor(Path(name))
        what_is_timed = ("start", "until it runs", "observe", "stop", "until it ended")
        found: dict[str, list[float]] = {what: [] for what in what_is_timed}

        def timed(what: str, since_s: float) -> float:
            found[what].append(time.monotonic() - since_s)
            return time.monotonic()

        def reach(key: AttemptKey, state: AttemptState) -> None:
            while next(seen.state for seen in executor.observe() if seen.key == key) is not state:
                time.sleep(0.01)

        for i in range(15):
            key = AttemptKey(f"job{i}", 1)
            script = f"import signal, sys, time; signal.signal(15, lambda *_: sys.exit(85)); open('{name}/{i}', 'w')"  # noqa: E501
            order = Order(
                key=key,
                placement=(Slot(node="n1", gpus=1, cpus=1),),
                directory="/",
                argv=(sys.executable, "-S", "-c", f"{script}; time.sleep(600)"),
            )
            since_s = time.monotonic()
            executor.start(order)
            timed("start", since_s)
            reach(key, AttemptState.RUNNING)
            timed("until it runs", since_s)
            while not (Path(name) / str(i)).exists():
                time.sleep(0.01)
            time.sleep(0.1)
            since_s = time.monotonic()
            executor.observe()
            since_s = timed("observe", since_s)
            executor.checkpoint_stop(key, 30)
            timed("stop", since_s)
            reach(key, AttemptState.ENDED)
            timed("until it ended", since_s)
        executor.close()
        print(
            json.dumps(
                {
                    f"{what}, ms": round(1000 * statistics.median(all_s))
                    for what, all_s in found.items()
                }
            )
        )
        assert all(all_s for all_s in found.values())
