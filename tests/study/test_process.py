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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched.api import import_trace, simulate
from optsched.cli import main
from optsched.files import dump_instance, write_text
from optsched.plugins.options import declared_by, read_words
from optsched.study.commands import ONLY_PYTHON
from optsched.study.process import Ended, Warm, WarmProcesses
from optsched.traces.generate.synth import generate

PATIENCE_S = 120.0
FOREVER = "solve --solver cpsat --time-limit 1h --workers 2"


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    path = tmp_path / "instance.json"
    write_text(path, dump_instance(generate(jobs=60, gpus=16, seed=1)))
    return path


@pytest.fixture(scope="module")
def shared() -> Iterator[Warm]:
    """A warm process for runs that leave it as it was."""
    with Warm() as warm:
        yield warm


def run(
    warm: Warm,
    command: str,
    instance: Path,
    *,
    time_limit_s: float = PATIENCE_S,
    memory_gib: float = 4.0,
) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        return warm.run(
            {"command": command, "instance": str(instance), "plans": False},
            Path(folder),
            time_limit_s=time_limit_s,
            memory_gib=memory_gib,
        )


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


@pytest.mark.parametrize(
    "command",
    [
        "simulate --policy srtf --option x=y",
        "simulate --policy srtf --curves --round 2m --estimates history",
        "simulate --policy nobody",
        "solve --solver wspt --workers 1 --objective makespan",
        "solve --solver cpsat --gap 50% --time-limit 5s --workers 1 --option work=1",
        "round --length 120s --fixed --gap 1% --budget=5s",
        "pack --rule best-fit --load 1.1 --seed 3 --bound",
    ],
)
def test_a_run_answers_what_the_command_line_prints(
    shared: Warm, instance: Path, command: str
) -> None:
    ended = run(shared, command, instance)
    verb, *words = command.split()
    fresh = CliRunner().invoke(main, [verb, str(instance), *words, "--json"])
    assert (ended.status, ended.errors) == (
        fresh.exit_code,
        fresh.stderr.removeprefix("optsched: ").rstrip("\n"),
    )
    assert _untimed(ended.answer) == _untimed(fresh.stdout)
    assert ended.cpu_s <= ended.wall_s + 0.1 and ended.memory_gib > 0.01


def test_bounds_are_the_best_of_the_command_line(shared: Warm, instance: Path) -> None:
    ended = run(shared, "bound --objective deadline,wct", instance)
    line = ["bound", str(instance), "--objective", "deadline,wct", "--json"]
    fresh = CliRunner().invoke(main, line)
    best = {
        bound["objective"]: bound["value"] for bound in json.loads(fresh.stdout) if bound["best"]
    }
    assert {level["name"]: level["bound"] for level in json.loads(ended.answer)["levels"]} == best


def test_none_is_a_word_where_it_means_something() -> None:
    imports = declared_by(import_trace, "trace_format", "source", *ONLY_PYTHON)
    given = read_words("import openb", imports, ["--profiles", "none", "--no-overheads"])
    assert given == {"profiles": "none", "overheads": False}
    given = read_words("simulate", declared_by(simulate, *ONLY_PYTHON), ["--estimates", "none"])
    assert given == {"estimates": "none"}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("simulate --polcy fifo", "simulate has no option --polcy (did you mean --policy?)"),
        ("simulate --policy", "--policy needs a value"),
        ("simulate --option nothing", "has no value; write key=value"),
        ("solve --time-limit soon", "is not a duration"),
        ("solve --workers few", "option workers of solve: 'few'; expected a whole number"),
        ("solve --gap much", "is not a share; write 1% or 0.01"),
    ],
)
def test_wrong_options_are_said_in_a_sentence(
    shared: Warm, instance: Path, command: str, says: str
) -> None:
    ended = run(shared, command, instance)
    assert ended.status == 2 and says in ended.errors and "\n" not in ended.errors


def _untimed(answer: str) -> object:
    found = json.loads(answer) if answer else {}
    timed = ("decision_wall_s", "wall_s", "jobs")  # the plan of a solve is kept beside its answer
    if "policy" in found or "rule" in found:
        timed = timed[:2]
    return {name: value for name, value in found.items() if name not in timed}


def test_a_run_that_goes_on_is_ended_with_all_that_it_started(instance: Path) -> None:
    with Warm() as warm:
        ended = run(warm, FOREVER, instance, time_limit_s=4.0)
        assert ended.status is None and ended.wall_s >= 4.0
        assert until(lambda: descendants(warm._process.pid) == [])
        assert run(warm, "simulate --policy fifo", instance).status == 0  # and it goes on


def test_a_run_has_no_more_memory_than_it_may(instance: Path) -> None:
    large = instance.with_name("large.json")
    with Warm() as warm:
        command = "generate --jobs 1000000 --gpus 100 --like mixed"
        ended = run(warm, command, large, memory_gib=0.4)
        assert ended.status not in (0, None) and ("MemoryError" in ended.errors or ended.status < 0)
        assert ended.memory_gib < 0.4 and not large.exists()


def test_a_warm_process_that_is_killed_takes_its_run_along(instance: Path) -> None:
    found: list[Ended] = []
    with WarmProcesses() as processes:
        with processes.lent() as warm:
            thread = threading.Thread(target=lambda: found.append(run(warm, FOREVER, instance)))
            thread.start()
            assert until(lambda: len(descendants(warm._process.pid)) > 0)
            runs = descendants(warm._process.pid)[:1]
            os.kill(warm._process.pid, signal.SIGKILL)
            thread.join(timeout=PATIENCE_S)
            assert [ended.status for ended in found] == [-signal.SIGKILL]
            assert until(lambda: not any(is_there(pid) for pid in runs))
            assert until(lambda: not warm.alive)
        with processes.lent() as other:
            assert other is not warm
            assert run(other, "simulate --policy fifo", instance).status == 0


def test_a_run_whose_parent_ends_before_it_is_watched_ends_too() -> None:
    script = (
        "import os, time; from optsched.study.warm import die_with\n"
        "parent = os.getpid()\n"
        "if os.fork(): os._exit(0)\n"
        "while os.getppid() == parent: time.sleep(0.01)\n"
        "die_with(parent); print('goes on', flush=True)"
    )
    left = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S)
    assert (left.stdout, left.stderr) == (b"", b"")


def test_nothing_is_left_of_a_study_that_is_killed(instance: Path) -> None:
    script = (
        "import sys, pathlib; from optsched.study.process import Warm\n"
        "warm = Warm(); print(warm._process.pid, flush=True)\n"
        "command, path, folder = sys.argv[1:]\n"
        "request = {'command': command, 'instance': path, 'plans': False}\n"
        "warm.run(request, pathlib.Path(folder), time_limit_s=3600, memory_gib=4)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, FOREVER, str(instance), str(instance.parent)],
        stdout=subprocess.PIPE,
        text=True,
    ) as study:
        assert study.stdout is not None
        warm = int(study.stdout.readline())
        assert until(lambda: len(descendants(warm)) > 0)
        there = [warm, *descendants(warm)]
        study.kill()
    assert until(lambda: not any(is_there(pid) for pid in there))


def test_it_runs_nothing_that_lies_where_it_was_started(
    tmp_path: Path, instance: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "there" / "optsched"
    theirs.mkdir(parents=True)
    (theirs / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(theirs.parent)
    with Warm() as warm:
        assert run(warm, "simulate --policy fifo", instance).status == 0
    assert not (tmp_path / "ran").exists()
