"""Studies on Ray and Dask clusters: the same results, whatever stops them, and a sentence where a
worker is not fit."""

import csv
import ctypes
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from optsched.errors import InputError
from optsched.study.address import code_version
from optsched.study.clusters import carried, connected
from optsched.study.design import read_study
from optsched.study.results import Result, Results
from optsched.study.runner import run_study
from optsched.study.worker import run_errand

TINY = """
format = "optsched-study/1"
name = "tiny"
title = "One rule, and one that is not there"
policies = ["fifo", "nobody"]
seeds = [1]

[[instances]]
name = "mixed"
command = "generate --like mixed --jobs 10 --gpus 16 --seed {seed}"

[[instances]]
name = "faulty"
file = "faulty.json"
"""


ALONE = TINY[: TINY.rindex("[[instances]]")].replace(', "nobody"', "")
PATIENCE_S = 600
"""Far more than any of these tests needs; a test that hangs fails after it."""


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    def give_up(number: int, frame: Any) -> None:
        raise TimeoutError(f"the test has not ended within {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write(folder: Path) -> Path:
    """A study with an instance that is none."""
    (folder / "faulty.json").write_text("{}")
    path = folder / "study.toml"
    path.write_text(TINY.replace('"faulty.json"', f'"{folder / "faulty.json"}"'))
    return path


def said(results: list[Result]) -> list[str]:
    """All that a run says, but what the clock said and where it ran."""
    return [
        json.dumps(
            [
                one.run.method,
                one.run.parameters,
                one.reason,
                {
                    name: value
                    for name, value in (one.answer or {}).items()
                    if name != "decision_wall_s"
                },
            ]
        )
        for one in results
    ]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A Dask cluster of one process with two threads on this machine."""
    distributed = pytest.importorskip(
        "distributed", reason="Dask is not installed: pip install 'optsched[dask]'"
    )
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def test_dask_gives_the_same_results(tmp_path: Path, scheduler: str) -> None:
    study = read_study(write(tmp_path))
    here = run_study(study, Results(tmp_path / "here"), workers=2)
    there = run_study(study, Results(tmp_path / "there"), on=scheduler)
    assert said(there) == said(here)
    assert {
        one.run.method for one in here if one.answer is None and one.run.instance == "mixed"
    } == {"nobody"}
    assert all(one.reason for one in here if one.run.instance == "faulty")
    assert [one.address for one in there] == [one.address for one in here]


@pytest.mark.slow
def test_an_interrupted_study_goes_on_elsewhere(tmp_path: Path, scheduler: str) -> None:
    (tmp_path / "study.toml").write_text(ALONE.replace("[1]", "[1, 2, 3, 4, 5]"))
    line = [sys.executable, "-m", "optsched", "study", "study.toml", "-o", "out"]
    process = subprocess.Popen(
        [*line, "--on", scheduler, "--workers", "1"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    finished = tmp_path / "out" / "runs"
    while process.poll() is None and not list(finished.glob("*.json")):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.wait(timeout=PATIENCE_S)
    kept = {one.name: one.read_bytes() for one in finished.glob("*.json")}
    assert 0 < len(kept) < 5
    assert (
        subprocess.run([*line, "-q", "--workers", "2"], cwd=tmp_path, timeout=PATIENCE_S).returncode
        == 0
    )
    assert len(list(finished.glob("*.json"))) == 5
    for name, data in kept.items():
        assert (finished / name).read_bytes() == data


def test_a_worker_without_optsched_is_said(tmp_path: Path, scheduler: str) -> None:
    from distributed import Client

    def hide(name: str, module: Any) -> Any:
        import sys

        return (
            sys.modules.pop(name, None)
            if module == "there"
            else sys.modules.__setitem__(name, None)
        )

    with Client(scheduler, set_as_default=False) as client:
        client.run(hide, "optsched.study.worker", None)
        try:
            with pytest.raises(InputError, match="has no optsched that runs studies"):
                run_study(read_study(write(tmp_path)), Results(tmp_path / "out"), on=scheduler)
        finally:
            client.run(hide, "optsched.study.worker", "there")


def test_a_worker_with_another_optsched_is_said() -> None:
    errand = {
        "command": "simulate --policy fifo",
        "instance": "a.json",
        "time_limit_s": 5.0,
        "memory_gib": 1.0,
        "plans": False,
        "version": "0.0.1+0",
    }
    found = carried()(errand, b"")
    assert found == run_errand(errand, b"")
    assert f"has optsched {code_version()}, this machine has 0.0.1+0" in found["unfit"]


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("local", "--on local: is ray://HOST:PORT"),
        ("tcp://", "is ray://HOST:PORT"),
        ("http://x:1", "is ray://HOST:PORT"),
        ("ray://here", "is ray://HOST:PORT"),
        ("here:", "is ray://HOST:PORT"),
    ],
)
def test_bad_addresses(on: str, said: str) -> None:
    with pytest.raises(InputError) as error, connected(on):
        pass
    assert said in str(error.value)


def test_a_lost_worker_costs_one_run_at_most(tmp_path: Path) -> None:
    """Kill -9 of the worker: once in the first run, which is tried again elsewhere, and in both
    tries of the second."""
    distributed = pytest.importorskip(
        "distributed", reason="Dask is not installed: pip install 'optsched[dask]'"
    )
    import dask

    (tmp_path / "study.toml").write_text(ALONE.replace("[1]", "[1, 2, 3]"))
    study = read_study(tmp_path / "study.toml")
    here = run_study(study, Results(tmp_path / "here"))
    there: list[Result] = []
    came: list[Result] = []
    kills: list[int] = []

    def kill_workers(client: Any, pids: dict[str, int]) -> None:
        while len(kills) < 3:
            for address, tasks in client.processing().items():
                pid = pids.get(address, 0)
                runs_there = any(
                    str(task).startswith("run-") for task in tasks
                )  # not what brings the instance
                if (
                    runs_there
                    and pid not in (0, *kills)
                    and len(came) == (0 if not kills else 1)
                    and len(kills) < 3
                ):
                    kills.append(pid)
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    # Four workers, of which none is needed again: Dask does not start every killed one anew.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        killer = threading.Thread(
            target=kill_workers, args=(client, client.run(os.getpid)), daemon=True
        )
        killer.start()
        there = run_study(
            study,
            Results(tmp_path / "there"),
            workers=1,
            on=cluster.scheduler_address,
            on_result=came.append,
        )
        killer.join(timeout=PATIENCE_S)
        assert not killer.is_alive() and len(kills) == 3
        assert said([there[0], there[2]]) == said([here[0], here[2]])
        assert there[1].answer is None and "the cluster lost it 2 times" in (there[1].reason or "")
        assert len(list((tmp_path / "there" / "runs").glob("*.json"))) == 2
        again = run_study(study, Results(tmp_path / "there"), on=cluster.scheduler_address)
        assert said(again) == said(here)


@pytest.mark.slow
def test_ray_gives_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'optsched[ray]'")
    study = read_study(write(tmp_path))
    here = run_study(study, Results(tmp_path / "here"), workers=2)
    there = run_study(study, Results(tmp_path / "there"), on="ray://local")
    assert said(there) == said(here)


@pytest.fixture(scope="module")
def ray_addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A Ray cluster of one core with a client server, started as a person does: its address, and
    that of the client."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'optsched[ray]'")
    sockets = [socket.socket() for _ in range(3)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    port, client_port, agent_port = (one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    log = tmp_path_factory.mktemp("ray") / "log"
    folder = (
        Path("/tmp") / f"optsched-ray-{os.getpid()}"
    )  # short: names of sockets have at most 107 characters
    # grpcio's handlers make processes that a Ray Client server forks crash.
    more = {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "GRPC_ENABLE_FORK_SUPPORT": "0",
    }

    def start() -> "subprocess.Popen[bytes]":
        with log.open("w") as out:
            return subprocess.Popen(
                [
                    str(Path(sys.executable).parent / "ray"),
                    "start",
                    "--head",
                    "--block",
                    "--port",
                    str(port),
                    "--ray-client-server-port",
                    str(client_port),
                    "--runtime-env-agent-port",
                    str(agent_port),
                    "--num-cpus",
                    "1",
                    "--include-dashboard",
                    "false",
                    "--temp-dir",
                    str(folder),
                    "--object-store-memory",
                    "80000000",
                ],
                stdout=out,
                stderr=out,
                env={**os.environ, **more},
                start_new_session=True,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(
                    1, signal.SIGTERM
                ),  # ends with the tests, however they end
            )

    head = start()
    try:
        until_s = time.monotonic() + PATIENCE_S
        while "block forever" not in (said := log.read_text()):
            assert time.monotonic() < until_s, said
            if head.poll() is not None:
                assert "timed out during startup" in said, (
                    said
                )  # it gives up after 30 s, which a busy machine may need
                head = start()
            time.sleep(0.2)
        yield f"127.0.0.1:{port}", f"ray://127.0.0.1:{client_port}"
    finally:
        head.terminate()
        try:
            head.wait(timeout=30)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def untimed(folder: Path) -> list[dict[str, str]]:
    """The lines of runs.csv without what the clock said."""
    found = csv.DictReader(io.StringIO((folder / "runs.csv").read_text()))
    return [
        {name: value for name, value in row.items() if name != "run_s" and "decision" not in name}
        for row in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1], ids=["address", "client"])
def test_a_ray_cluster_by_address(
    tmp_path: Path, ray_addresses: tuple[str, str], which: int
) -> None:
    path = write(tmp_path)
    line = [sys.executable, "-m", "optsched", "study", str(path), "-q", "-o"]
    alone = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    subprocess.run([*line, "here"], cwd=tmp_path, timeout=PATIENCE_S, env=alone)
    there = subprocess.run(
        [*line, "there", "--on", ray_addresses[which]],
        cwd=tmp_path,
        timeout=PATIENCE_S,
        env=alone,
        capture_output=True,
        text=True,
    )
    assert there.returncode == 1 and not there.stderr, there.stderr
    assert (
        untimed(tmp_path / "there") == untimed(tmp_path / "here")
        and len(untimed(tmp_path / "here")) == 4
    )
    for one in (tmp_path / "here" / "runs").glob("*.json"):  # what is kept is the same, too
        first, second = (
            json.loads(path.read_text()) for path in (one, tmp_path / "there" / "runs" / one.name)
        )
        for found in (first, second):
            for name in ("wall_s", "cpu_s", "memory_gib"):
                found.pop(name)
            (found["answer"] or {}).pop("decision_wall_s", None)
        assert first == second


@pytest.mark.slow
def test_a_ray_worker_that_is_killed(tmp_path: Path, ray_addresses: tuple[str, str]) -> None:
    """Kill -9 of the worker's process in the first run: the run is tried again, and the table is
    the same."""
    psutil = pytest.importorskip("psutil")
    (tmp_path / "study.toml").write_text(ALONE.replace("[1]", "[1, 2]"))
    line = [sys.executable, "-m", "optsched", "study", "study.toml", "-q", "-o"]
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    subprocess.run([*line, "here"], cwd=tmp_path, timeout=PATIENCE_S, env=env, check=True)
    process = subprocess.Popen([*line, "there", "--on", ray_addresses[0]], cwd=tmp_path, env=env)
    killed: list[int] = []
    while process.poll() is None and not killed:
        for one in psutil.process_iter(["cmdline", "ppid"]):
            worker = one.parent() if "optsched.study.warm" in (one.info["cmdline"] or []) else None
            if worker is not None and worker.name().startswith("ray::"):
                killed.append(worker.pid)
                worker.kill()
                break
        time.sleep(0.02)
    assert process.wait(timeout=PATIENCE_S) == 0 and killed
    assert untimed(tmp_path / "there") == untimed(tmp_path / "here")
