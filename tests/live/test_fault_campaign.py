"""The controller killed with -9 before and after any of its writes and calls, with real processes.

No job is lost, none runs twice at once, none is left unaccounted, and what runs goes on running.
`pytest -m slow tests/live/test_fault_campaign.py` does 200 points; OPTSCHED_FAULT_POINTS says
otherwise.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from optsched.control.journal.journal import Journal
from optsched.control.journal.state import State
from optsched.testing.executors import COUNTING_JOB

HERE = Path(__file__).parent
POINTS = int(os.environ.get("OPTSCHED_FAULT_POINTS", "200"))
TOML = """
format = "optsched-cluster/1"
every = "5s"
budget = "5s"
[[nodes]]
name = "n[0-1]"
gpus = 2
emulate = true
"""
JOBS = [
    ("big", 4, 8, 0.15),
    ("a", 2, 4, 0.1),
    ("b", 1, 4, 0.1),
    ("c", 1, 12, 0.1),
    ("d", 4, 3, 0.1),
]
"""Name, GPUs, steps and seconds of a step: those after the first are shorter, and preempt it."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for process in leftovers(tmp_path):
        process.kill()


def leftovers(folder: Path) -> list[psutil.Process]:
    """Processes whose command line names the folder."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or ())
        and process.pid != os.getpid()
    ]


def set_up(folder: Path) -> None:
    (folder / "cluster.toml").write_text(TOML)
    entries: list[dict[str, Any]] = [
        {
            "id": name,
            "gpus": gpus,
            "duration_s": steps * seconds * (20 if name == "big" else 1),
            "directory": "/",
            "argv": [
                sys.executable,
                "-S",
                "-E",
                COUNTING_JOB,
                str(folder / name),
                str(steps),
                str(seconds),
            ],
        }
        for name, gpus, steps, seconds in JOBS
    ]
    (folder / "jobs.json").write_text(json.dumps(entries))


def control(folder: Path, point: int) -> subprocess.CompletedProcess[str]:
    """A controller that dies at `point`, or ends when all jobs have."""
    return subprocess.run(
        [
            sys.executable,
            str(HERE / "controller_process.py"),
            str(folder / "cluster.toml"),
            str(point),
            "120",
            str(folder / "jobs.json"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def check(folder: Path) -> None:
    """Every job has completed, each of its steps was done once, in order, and nothing of it is
    left."""
    journal = Journal(folder / "state" / "journal", read_only=True)
    state = State()
    for entry in journal.entries():
        state.apply(entry.at_s, entry.event)
    journal.close()
    for name, _, steps, _ in JOBS:
        job = state.jobs[name]
        assert job.status == "completed", (name, job.status, job.reason)
        lines = [line.split() for line in (folder / name).read_text().splitlines()]
        assert not [line for line in lines if line[0] == "OVERLAP"]
        counted = [int(line[0]) for line in lines if line[0] != "SAVED"]
        assert counted == list(range(1, steps + 1)), (name, counted)
        ran = list(dict.fromkeys(line[1] for line in lines if line[0] != "SAVED"))
        assert ran == sorted(ran, key=int)
        assert {attempt.key.number for attempt in job.attempts} >= {int(one) for one in ran}
        assert all(attempt.ended is not None for attempt in job.attempts)
    assert not leftovers(folder)
    assert not list((folder / "state" / "attempts").rglob("*.json"))


def test_without_a_fault(lab: Path) -> None:
    set_up(lab)
    done = control(lab, 0)
    assert done.returncode == 0, done.stderr
    check(lab)
    assert int(done.stdout) > 60


def test_killed_again_and_again(lab: Path) -> None:
    campaign(lab, random.Random(1), 5)


@pytest.mark.slow
def test_killed_at_many_points(tmp_path_factory: pytest.TempPathFactory) -> None:
    draw, killed = random.Random(0), 0
    while killed < POINTS:
        folder = tmp_path_factory.mktemp("campaign")
        killed += campaign(folder, draw, min(20, POINTS - killed))


def campaign(folder: Path, draw: random.Random, times: int) -> int:
    """Kill controllers at random points until all is done or this has happened so many `times`; how
    often it did."""
    set_up(folder)
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
    return killed


@pytest.mark.slow
def test_killed_at_each_point(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Once at each of the first points of a controller's life, one controller after the other."""
    for first in range(1, 80, 10):
        folder = tmp_path_factory.mktemp("point")
        set_up(folder)
        for point in range(first, first + 10):
            done = control(folder, point)
            if done.returncode == 0:
                break
            assert done.returncode == -9, done.stderr
        else:
            done = control(folder, 0)
        assert done.returncode == 0, done.stderr
        check(folder)
