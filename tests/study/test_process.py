"""Runs forked from a warm process: what a fresh one says, within their limits, and gone with
whoever asked."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from optsched.files import dump_instance, write_text
from optsched.study.process import Ended, Warm, WarmProcesses
from optsched.traces.generate.synth import generate

PATIENCE_S = 120.0
FOREVER = ["--solver", "cpsat", "--time-limit", "1h", "--workers", "2", "--json"]


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    path = tmp_path / "instance.json"
    write_text(path, dump_instance(generate(jobs=60, gpus=16, seed=1)))
    return path


def run(
    warm: Warm, *words: str | Path, time_limit_s: float = PATIENCE_S, memory_gib: float = 4.0
) -> tuple[Ended, bytes, bytes]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        ended = warm.run(
            [str(word) for word in words],
            out,
            err,
            time_limit_s=time_limit_s,
            memory_gib=memory_gib,
        )
        out.seek(0)
        err.seek(0)
        return ended, out.read(), err.read()


def until(holds: Callable[[], bool]) -> bool:
    begun_s = time.monotonic()
    while not holds():
        if time.monotonic() - begun_s > PATIENCE_S:
            return False
        time.sleep(0.05)
    return True


def is_there(pid: int) -> bool:
    """Whether a process is alive; one that has ended and that nobody has asked for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    try:
        mine = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*mine, *(deeper for one in mine for deeper in descendants(one))]


def test_a_run_says_what_a_fresh_interpreter_says(instance: Path) -> None:
    lines: list[list[str | Path]] = [
        ["simulate", instance, "--policy", "srtf", "--json", "--curves"],
        ["simulate", instance, "--policy", "nobody"],
        ["solve", instance, "--solver", "wspt", "--json"],
        ["simulate", "no-such-file", "--policy", "fifo"],
    ]
    with Warm() as warm:
        for line in lines:
            ended, out, err = run(warm, *line)
            command = [sys.executable, "-m", "optsched", *map(str, line)]
            fresh = subprocess.run(command, capture_output=True, timeout=PATIENCE_S)
            assert (ended.status, err) == (fresh.returncode, fresh.stderr)
            assert _untimed(out) == _untimed(fresh.stdout)
            assert ended.cpu_s <= ended.wall_s + 0.1 and ended.memory_gib > 0.01


def _untimed(out: bytes) -> object:
    found = json.loads(out) if out else {}
    return {
        name: value for name, value in found.items() if name not in ("decision_wall_s", "wall_s")
    }


def test_a_run_that_goes_on_is_ended_with_all_that_it_started(instance: Path) -> None:
    with Warm() as warm:
        ended, _, _ = run(warm, "solve", instance, *FOREVER, time_limit_s=8.0)
        assert ended.status is None and ended.wall_s >= 8.0
        assert until(lambda: descendants(warm._process.pid) == [])
        assert (
            run(warm, "simulate", instance, "--policy", "fifo", "--quiet")[0].status == 0
        )  # and it goes on


def test_a_run_has_no_more_memory_than_it_may(instance: Path) -> None:
    with Warm() as warm:
        ended, _, err = run(
            warm,
            "generate",
            "--jobs",
            "1000000",
            "--gpus",
            "100",
            "--like",
            "mixed",
            "-o",
            instance.with_name("large.json"),
            memory_gib=0.4,
        )
        assert ended.status not in (0, None) and (b"MemoryError" in err or ended.status < 0)
        assert ended.memory_gib < 0.4 and not instance.with_name("large.json").exists()


def test_a_warm_process_that_is_killed_takes_its_run_along(instance: Path) -> None:
    found: list[Ended] = []
    with WarmProcesses() as processes:
        warm = processes.take()
        thread = threading.Thread(
            target=lambda: found.append(run(warm, "solve", instance, *FOREVER)[0])
        )
        thread.start()
        assert until(lambda: len(descendants(warm._process.pid)) > 0)
        runs = descendants(warm._process.pid)[:1]
        os.kill(warm._process.pid, signal.SIGKILL)
        thread.join(timeout=PATIENCE_S)
        assert [one.status for one in found] == [-signal.SIGKILL]
        assert until(lambda: not any(is_there(pid) for pid in runs))
        assert until(lambda: not warm.alive)
        processes.give_back(warm)
        other = processes.take()
        assert (
            other is not warm
            and run(other, "simulate", instance, "--policy", "fifo", "--quiet")[0].status == 0
        )


def test_nothing_is_left_of_a_study_that_is_killed(instance: Path) -> None:
    script = (
        "import sys, tempfile; from optsched.study.process import Warm\n"
        "warm = Warm(); out = tempfile.TemporaryFile(); print(warm._process.pid, flush=True)\n"
        "warm.run(sys.argv[1:], out, out, time_limit_s=3600, memory_gib=4)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, "solve", str(instance), *FOREVER],
        stdout=subprocess.PIPE,
        text=True,
    ) as study:
        assert study.stdout is not None
        warm = int(study.stdout.readline())
        assert until(lambda: len(descendants(warm)) > 0)
        there = [warm, *descendants(warm)]
        study.kill()
    assert until(lambda: not any(is_there(pid) for pid in there))
