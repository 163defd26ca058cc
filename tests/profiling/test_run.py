"""Commands are run for the time given, and nothing of them is left."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from optsched.errors import InputError
from optsched.profiling import run as run_module
from optsched.profiling.run import run
from tests.profiling.conftest import patiently

MARK = "OPTSCHED_TEST_MARK"


@pytest.fixture
def watch(tmp_path, setting):
    def go(argv, until_steps=None, **how):
        scratch = Path(tempfile.mkdtemp(dir=tmp_path))
        return run(
            setting(argv, environment={MARK: str(tmp_path)}, **how),
            scratch,
            tmp_path / "ck",
            1,
            until_steps,
        )

    return go


def left(mark) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(MARK) == str(mark)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def test_the_time_limit_is_kept(watch, tmp_path) -> None:
    began = time.monotonic()
    seen = watch(["sleep", "600"], for_s=0.4)
    assert seen.asked_s - seen.started_s >= 0.4
    assert (seen.exit_status, seen.killed) == (-signal.SIGTERM, False)
    assert time.monotonic() - began < 60
    assert left(tmp_path) == []


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(watch, python, tmp_path) -> None:
    code = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"])
print("deaf", flush=True)
time.sleep(600)
"""
    seen = patiently(
        lambda for_s: watch(python(code), for_s=for_s, grace_s=0.3), lambda seen: seen.killed
    )
    assert (seen.killed, seen.exit_status, seen.saved_and_stopped) == (True, -signal.SIGKILL, False)
    assert seen.ended_s - seen.asked_s >= 0.3
    assert left(tmp_path) == []


def test_it_is_watched_from_its_start(watch, monkeypatch) -> None:
    """An import meanwhile would take from its cores; SIGTERM in one ended `python -m` by SIGINT."""
    monkeypatch.delitem(sys.modules, "psutil")
    ready = []
    start = run_module._start
    monkeypatch.setattr(
        run_module, "_start", lambda *given: ready.append("psutil" in sys.modules) or start(*given)
    )
    watch(["true"])
    assert ready == [True]


def test_a_command_that_dies_at_once(watch, python) -> None:
    seen = watch(python("import sys; print('no data'); sys.exit(7)"))
    assert (seen.exit_status, seen.asked_s, seen.output) == (7, None, "no data")
    assert not seen.saved_and_stopped


def test_status_85_counts_only_when_asked(watch, python) -> None:
    assert not watch(python("import sys; sys.exit(85)")).saved_and_stopped


def test_a_daemon_does_not_outlive_the_run(watch, python, tmp_path) -> None:
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    os._exit(0)
os.wait()
"""
    seen = watch(python(code))
    assert (seen.exit_status, seen.left_behind) == (0, 1)
    assert left(tmp_path) == []


def test_a_command_that_prints_nothing(watch) -> None:
    seen = watch(["true"])
    assert (seen.exit_status, seen.output, seen.progress, seen.hook) == (0, "", [], None)


def test_much_output_is_kept_short(watch, python) -> None:
    seen = watch(python("print('x' * 300_000); print('the end')"))
    assert seen.output.endswith("the end") and len(seen.output) <= 2000


def test_it_ends_soon_after_enough_steps(watch, python) -> None:
    code = """
import json, os, time
for step in range(1, 10**6):
    open("report.tmp", "w").write(json.dumps({"step": step, "at_s": time.time()}))
    os.replace("report.tmp", os.environ["OPTSCHED_PROGRESS"])
    time.sleep(0.01)
""".replace('"report.tmp"', 'os.environ["OPTSCHED_PROGRESS"] + ".tmp"')
    seen = watch(python(code), until_steps=5, for_s=120)
    assert seen.ended_s - seen.started_s < 100
    assert seen.progress[-1][1].step >= 5


def test_memory_that_processes_share_counts_once(watch, python) -> None:
    code = """
import os, time
held = bytearray(b"x") * 200_000_000
if os.fork() == 0:
    time.sleep(600)
time.sleep(600)
"""
    seen = patiently(
        lambda for_s: watch(python(code), for_s=for_s), lambda seen: seen.peak_bytes > 200e6
    )
    assert 200e6 < seen.peak_bytes < 300e6


def test_it_runs_on_the_cores_given_and_knows_its_place(watch, python) -> None:
    code = """
import os
print(sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"], os.environ["OPTSCHED_ATTEMPT"],
      os.environ["OPTSCHED_KEY"], os.path.isdir(os.environ["OPTSCHED_CHECKPOINT_DIR"]))
"""  # noqa: E501
    before = os.sched_getaffinity(0)
    core = max(before)
    assert watch(python(code), cores=(core,)).output == f"[{core}] 1 1 optsched:profile:1 True"
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-such-program-anywhere", "is not found"),
        ("./no-such-file", "No such file"),
        ("/", "Permission denied"),
    ],
)
def test_what_cannot_be_started(watch, name, said) -> None:
    with pytest.raises(InputError, match=said):
        watch([name])


def test_an_interrupt_leaves_nothing(watch, python, tmp_path) -> None:
    code = f"""
import os, signal, time
os.kill({os.getpid()}, signal.SIGINT)
time.sleep(600)
"""
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # whoever runs this in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            watch(python(code), for_s=120)
    finally:
        signal.signal(signal.SIGINT, before)
    assert left(tmp_path) == []
