"""Training loops that are stopped and go on, inside optsched and without it."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import AttemptKey, AttemptState, Order, Progress
from optsched.model.instance import Slot
from optsched.training import Training

from .conftest import PATIENCE_S, Host, until

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = str(EXAMPLES / "train_plain.py")
PYTORCH = str(EXAMPLES / "train_pytorch.py")
TORCH_PYTHON = os.environ.get("OPTSCHED_TORCH_PYTHON") or (
    sys.executable if find_spec("torch") else ""
)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No variables of a controller; signals as before at the end."""
    for name in [name for name in os.environ if name.startswith("OPTSCHED_") or name == "RANK"]:
        monkeypatch.delenv(name)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


class Counter:
    """Something to train: it counts."""

    def __init__(self) -> None:
        self.value = 0
        self.saves = 0

    def save(self, path: Path) -> None:
        self.saves += 1
        path.write_text(str(self.value))

    def load(self, path: Path) -> None:
        self.value = int(path.read_text())


def counting(folder: Path, total: int | None, **more: Any) -> tuple[Counter, Training]:
    counter = Counter()
    more.setdefault("checkpoint_directory", folder)
    return counter, Training(total_steps=total, save=counter.save, load=counter.load, **more)


def test_all_steps_and_then_none(tmp_path: Path) -> None:
    counter, training = counting(tmp_path, 5)
    steps = []
    for step in training.steps():
        steps.append(step)
        counter.value += 1
    assert steps == [0, 1, 2, 3, 4]
    assert os.listdir(tmp_path) == ["checkpoint-5"]
    counter, training = counting(tmp_path, 5)
    assert (list(training.steps()), counter.value, counter.saves) == ([], 5, 0)
    counter, training = counting(tmp_path, 7)
    assert list(training.steps()) == [5, 6]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_after_the_step(tmp_path: Path, number: signal.Signals) -> None:
    counter, training = counting(tmp_path, 10)
    done = []
    with pytest.raises(SystemExit) as ended:
        for step in training.steps():
            if step == 3:
                os.kill(os.getpid(), number)
                assert training.asked
            counter.value += 1
            done.append(step)
    assert ended.value.code == 85
    assert done == [0, 1, 2, 3]
    counter, training = counting(tmp_path, 10)
    assert (counter.value, training.step, list(training.steps())) == (4, 4, [4, 5, 6, 7, 8, 9])


def test_a_signal_before_the_first_step_keeps_what_was_saved(tmp_path: Path) -> None:
    counter, training = counting(tmp_path, 3)
    list(training.steps())
    counter, training = counting(tmp_path, 10)
    training.asked = True
    with pytest.raises(SystemExit):
        list(training.steps())
    assert counter.saves == 0 and os.listdir(tmp_path) == ["checkpoint-3"]


def test_a_save_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    counter, training = counting(tmp_path, 3)
    list(training.steps())

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("the disk is full")

    training = Training(total_steps=6, save=fail, load=counter.load, checkpoint_directory=tmp_path)
    with pytest.raises(OSError, match="the disk is full"):
        list(training.steps())
    assert os.listdir(tmp_path) == ["checkpoint-3"]


def test_what_a_killed_save_left_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-9.part").write_text("half")
    (tmp_path / "checkpoint-x").write_text("someone else's")
    _, training = counting(tmp_path, 2)
    assert list(training.steps()) == [0, 1]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-2", "checkpoint-x"]


def test_a_checkpoint_may_be_a_folder(tmp_path: Path) -> None:
    def save(path: Path) -> None:
        (path / "layers").mkdir(parents=True)
        (path / "layers" / "0").write_text("weights")

    read = []
    for total in (2, 4):
        training = Training(
            total_steps=total, save=save, load=lambda path: read.append((path / "layers" / "0").read_text()),  # noqa: E501
            checkpoint_directory=tmp_path,
        )  # fmt: skip
        list(training.steps())
    assert read == ["weights"] and os.listdir(tmp_path) == ["checkpoint-4"]


def test_periodic_checkpoints(tmp_path: Path) -> None:
    counter, training = counting(tmp_path, 3, every_s=0.0)
    list(training.steps())
    assert counter.saves == 3


def test_the_environment_says_where_and_reports_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTSCHED_CHECKPOINT_DIR", str(tmp_path / "saved"))
    monkeypatch.setenv("OPTSCHED_PROGRESS", str(tmp_path / "progress.json"))
    before_s = time.time()
    for total, first in ((4, 0), (6, 4)):
        _, training = counting(tmp_path, total, checkpoint_directory=None)
        list(training.steps())
        progress = Progress(**json.loads((tmp_path / "progress.json").read_text()))
        assert (progress.step, progress.first_step, progress.total_steps, progress.saved_step) == (
            total, first, total, total,
        )  # fmt: skip
        assert progress.began_s and progress.saved_at_s and progress.checkpoint_s is not None
        assert before_s <= progress.began_s <= progress.saved_at_s <= progress.at_s <= time.time()
        assert 0 <= progress.checkpoint_s < PATIENCE_S
        assert (progress.restore_s is None) == (first == 0)
    assert sorted(os.listdir(tmp_path)) == ["progress.json", "saved"]


def test_a_report_that_cannot_be_written_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTSCHED_PROGRESS", str(tmp_path / "no" / "such" / "folder"))
    assert list(Training(total_steps=3).steps()) == [0, 1, 2]


def test_only_rank_0_saves_and_all_stop_before_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTSCHED_NODE_RANK", "1")
    monkeypatch.setenv("OPTSCHED_PROGRESS", str(tmp_path / "progress.json"))
    answers = iter([False, False, True])
    asked = []
    counter, training = counting(
        tmp_path, 9, agree=lambda mine: (asked.append(mine), next(answers))[1]
    )
    with pytest.raises(SystemExit) as ended:
        list(training.steps())
    assert (ended.value.code, training.step, counter.saves, asked) == (85, 2, 0, [False] * 3)
    assert os.listdir(tmp_path) == []


def test_misuse_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belong together"):
        Training(save=lambda path: None)
    with pytest.raises(ValueError, match="nothing says where to save"):
        Training(save=lambda path: None, load=lambda path: None)


def test_a_step_costs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 20 microseconds of processor time, reports included."""
    monkeypatch.setenv("OPTSCHED_PROGRESS", str(tmp_path / "progress.json"))
    _, training = counting(tmp_path, 200_000)
    began_s = time.process_time()
    for _step in training.steps():
        pass
    assert (time.process_time() - began_s) / 200_000 < 20e-6


def test_it_needs_nothing_heavy() -> None:
    script = "import sys, optsched.training; print(*sorted({name.split('.')[0] for name in sys.modules}))"  # noqa: E501
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "pydantic", "ortools", "pulp", "networkx", "click", "rich", "torch"} & set(
        found
    )


def preempted_and_not(
    host: Host, python: str, script: str, *arguments: str, steps: int
) -> tuple[str, str]:
    """What a training prints last, once stopped and resumed by an executor, once in one piece."""
    printed = {}
    environment = {
        "PYTHONPATH": os.pathsep.join(
            [str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    }
    for job in ("whole", "halves"):
        for number in (1, 2):
            key = AttemptKey(job, number)
            order = Order(
                key=key, placement=(Slot(node="n0", gpus=1, cpus=1),), directory="/", environment=environment,  # noqa: E501
                argv=(python, script, "--steps", str(steps), *arguments), checkpoint_directory=str(host.folder / job),  # noqa: E501
            )  # fmt: skip
            host.executor.start(order)
            if job == "halves" and number == 1:
                until(lambda key=key: (seen := host.see(key)).state is AttemptState.ENDED or
                      seen.progress is not None)  # fmt: skip
                host.executor.checkpoint_stop(key, 60)
            seen = host.end(key)
            text = host.printed(key) + (host.attempt(key) / "n0" / "stderr").read_text()
            if job == "halves" and number == 1:
                assert seen.exit_status == 85, text
                assert seen.progress and 0 < (seen.progress.saved_step or 0) < steps
            else:
                assert seen.exit_status == 0, text
                printed[job] = text
                break
    return printed["whole"], printed["halves"]


def test_the_plain_example(host: Host) -> None:
    whole, halves = preempted_and_not(host, sys.executable, PLAIN, "--step-s", "0.002", steps=500)
    assert whole.startswith("weights [") and whole == halves


@pytest.mark.skipif(
    not TORCH_PYTHON,
    reason="torch is not installed; OPTSCHED_TORCH_PYTHON may name an interpreter that has it",
)
def test_the_pytorch_example(host: Host) -> None:
    whole, halves = preempted_and_not(host, TORCH_PYTHON, PYTORCH, steps=300)
    assert whole.startswith("loss 0.") and whole == halves
