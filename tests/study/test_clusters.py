"""Studies on Ray and Dask clusters: the same results, whatever stops them, and a sentence where a worker is not fit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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


def write(folder: Path) -> Path:
    """A study with an instance that is none."""
    (folder / "faulty.json").write_text("{}")
    path = folder / "study.toml"
    path.write_text(TINY.replace('"faulty.json"', f'"{folder / "faulty.json"}"'))
    return path


def said(results: list[Result]) -> list[str]:
    """All that a run says, but what the clock said and where it ran."""
    return [
        json.dumps([one.run.method, one.run.parameters, one.reason,
                    {name: value for name, value in (one.answer or {}).items() if name != "decision_wall_s"}])
        for one in results
    ]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A Dask cluster of one process with two threads on this machine."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'optsched[dask]'")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def test_dask_gives_the_same_results(tmp_path: Path, scheduler: str) -> None:
    study = read_study(write(tmp_path))
    here = run_study(study, Results(tmp_path / "here"), workers=2)
    there = run_study(study, Results(tmp_path / "there"), on=scheduler)
    assert said(there) == said(here)
    assert {one.run.method for one in here if one.answer is None and one.run.instance == "mixed"} == {"nobody"}
    assert all(one.reason for one in here if one.run.instance == "faulty")
    assert [one.address for one in there] == [one.address for one in here]


@pytest.mark.slow
def test_an_interrupted_study_goes_on_elsewhere(tmp_path: Path, scheduler: str) -> None:
    text = TINY[:TINY.rindex("[[instances]]")].replace(', "nobody"', "").replace("[1]", "[1, 2, 3, 4, 5]")
    (tmp_path / "study.toml").write_text(text)
    line = [sys.executable, "-m", "optsched", "study", "study.toml", "-o", "out"]
    process = subprocess.Popen([*line, "--on", scheduler, "--workers", "1"], cwd=tmp_path, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    finished = tmp_path / "out" / "runs"
    while process.poll() is None and not list(finished.glob("*.json")):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.wait()
    kept = {one.name: one.read_bytes() for one in finished.glob("*.json")}
    assert 0 < len(kept) < 5
    assert subprocess.run([*line, "-q", "--workers", "2"], cwd=tmp_path, timeout=120).returncode == 0
    assert len(list(finished.glob("*.json"))) == 5
    for name, data in kept.items():
        assert (finished / name).read_bytes() == data


def test_a_worker_without_optsched_is_said(tmp_path: Path, scheduler: str) -> None:
    from distributed import Client

    def hide(name: str, module: Any) -> Any:
        import sys

        return sys.modules.pop(name, None) if module == "there" else sys.modules.__setitem__(name, None)

    with Client(scheduler, set_as_default=False) as client:
        client.run(hide, "optsched.study.worker", None)
        try:
            with pytest.raises(InputError, match="has no optsched that runs studies"):
                run_study(read_study(write(tmp_path)), Results(tmp_path / "out"), on=scheduler)
        finally:
            client.run(hide, "optsched.study.worker", "there")


def test_a_worker_with_another_optsched_is_said() -> None:
    errand = {"command": "simulate --policy fifo", "instance": "a.json", "time_limit_s": 5.0, "memory_gib": 1.0,
              "plans": False, "version": "0.0.1+0"}
    found = carried()(errand, b"")
    assert found == run_errand(errand, b"")
    assert f"has optsched {code_version()}, this machine has 0.0.1+0" in found["unfit"]


@pytest.mark.parametrize(("on", "said"), [
    ("local", "--on local: is ray://HOST:PORT"), ("tcp://", "is ray://HOST:PORT"), ("http://x:1", "is ray://HOST:PORT"),
])
def test_bad_addresses(on: str, said: str) -> None:
    with pytest.raises(InputError) as error, connected(on):
        pass
    assert said in str(error.value)


@pytest.mark.slow
def test_ray_gives_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'optsched[ray]'")
    study = read_study(write(tmp_path))
    here = run_study(study, Results(tmp_path / "here"), workers=2)
    there = run_study(study, Results(tmp_path / "there"), on="ray://local")
    assert said(there) == said(here)
