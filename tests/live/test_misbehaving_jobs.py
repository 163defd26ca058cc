"""Jobs that do what they should not: each ends in a defined state, with a sentence."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from optsched.control.journal.events import Cancelled, Cleared
from optsched.control.journal.journal import JournalError

from .lab import PYTHON, lab

IGNORES = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('ready', 'w').close()
time.sleep(600)
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('daemon', 'w').write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists('daemon') or not open('daemon').read():
    time.sleep(0.01)
"""
GREEDY = "import time\nkept = []\nwhile True:\n    kept.append(bytearray(b'x' * 2**24))\n    time.sleep(0.005)"  # noqa: E501


def test_who_ignores_the_request_is_killed_when_its_grace_is_over(tmp_path: Path) -> None:
    with lab(tmp_path) as here:
        here.submit("deaf", *PYTHON, IGNORES, grace_s=1.0)
        here.until((tmp_path / "ready").exists)
        here.controller.record(Cancelled(job="deaf", by="me"))
        here.until_finished("deaf")
        job = here.job("deaf")
        assert (job.status, job.reason) == ("cancelled", "me cancelled it")
        ended = job.attempts[0].ended
        assert (
            ended is not None and ended.exit_status == -9 and "within the 1 s" in str(ended.reason)
        )


def test_who_dies_at_once_or_cannot_begin(tmp_path: Path) -> None:
    with lab(tmp_path) as here:
        here.submit("dies", *PYTHON, "raise SystemExit(7)")
        here.submit("killed", *PYTHON, "import os; os.kill(os.getpid(), 11)")
        here.submit("missing", "no-such-command")
        here.submit("nowhere", sys.executable, "-V", directory=tmp_path / "nowhere")
        here.until_finished("dies", "killed", "missing", "nowhere")
        reasons = {
            name: (here.job(name).status, here.job(name).reason)
            for name in here.controller.state.jobs
        }
        assert reasons["dies"] == ("failed", "its command ended with exit status 7")
        assert reasons["killed"] == ("failed", "its command was ended by signal 11")
        assert reasons["missing"][0] == "failed" and "no-such-command" in str(reasons["missing"][1])
        assert reasons["nowhere"][0] == "failed" and "nowhere" in str(reasons["nowhere"][1])


def test_who_leaves_a_daemon_behind_holds_its_gpus_until_that_is_gone(tmp_path: Path) -> None:
    with lab(tmp_path) as here:
        here.submit("forks", *PYTHON, DAEMON)
        here.until_finished("forks")
        job = here.job("forks")
        assert job.status == "completed" and "left 1 process behind" in str(job.reason)
        assert not psutil.pid_exists(int((tmp_path / "daemon").read_text()))


def test_who_never_prints_and_who_prints_much(tmp_path: Path) -> None:
    with lab(tmp_path) as here:
        here.submit("silent", *PYTHON, "pass")
        here.submit("loud", *PYTHON, "for _ in range(20000): print('x' * 1000)")
        here.until_finished("silent", "loud")
        assert here.job("silent").status == here.job("loud").status == "completed"
        ended = here.job("loud").attempts[0].ended
        assert (
            ended is not None
            and ended.output is not None
            and Path(ended.output).stat().st_size == 20000 * 1001
        )


def test_who_takes_more_memory_than_it_said(tmp_path: Path) -> None:
    with lab(tmp_path) as here:
        here.submit("greedy", *PYTHON, GREEDY, memory_gib=0.25)
        here.until_finished("greedy")
        job = here.job("greedy")
        assert job.status == "failed" and "memory limit of 0.25 GiB was exceeded" in str(job.reason)


FILLS = "f = open({path!r}, 'wb')\nwhile True: f.write(bytes(65536)); f.flush()"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], check=False
        ).returncode
    ):
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=False)


def test_who_fills_a_disk_of_its_own(small_disk: Path, tmp_path: Path) -> None:
    with lab(tmp_path) as here:
        here.submit("fills", *PYTHON, FILLS.format(path=str(small_disk / "much")))
        here.until_finished("fills")
        assert (here.job("fills").status, here.job("fills").reason) == (
            "failed",
            "its command ended with exit status 1",
        )


def test_who_fills_the_disk_of_the_journal(small_disk: Path) -> None:
    """On a disk too small for any reserve the controller starts nothing that it cannot write down;
    with room again it goes on where it was."""
    with (
        pytest.raises(JournalError, match=r"cannot be written: .*full"),
        lab(small_disk, keep_free_gib=0) as here,
    ):
        here.submit("fills", *PYTHON, FILLS.format(path=str(small_disk / "much")))
        here.until_finished("fills")
        here.submit("next", *PYTHON, "pass")
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    with lab(small_disk, keep_free_gib=0) as here:
        here.until(lambda: not here.controller.state.open)
        assert here.job("fills").status == "failed"
        assert "next" not in here.controller.state.jobs or here.job("next").status == "completed"


def test_an_attempt_whose_record_is_damaged_is_lost_until_it_is_cleared(tmp_path: Path) -> None:
    with lab(tmp_path) as here:
        here.submit(
            "lost", *PYTHON, "open('ready', 'w').close(); import time; time.sleep(2)", gpus=4
        )
        here.until((tmp_path / "ready").exists)
    (tmp_path / "state" / "attempts" / "lost" / "1" / "spec.json").write_text("{")
    with lab(tmp_path) as here:
        here.until(lambda: here.job("lost").status == "lost")
        here.controller.record(Cleared(job="lost", number=1, by="root", left_s=5.0))
        here.until_finished("lost")
        assert here.job("lost").finished == "completed" and len(here.job("lost").attempts) == 2
