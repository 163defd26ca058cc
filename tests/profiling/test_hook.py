"""What the hook reports of Python processes that load PyTorch, and that it disturbs nothing."""

import importlib.util
import os
import signal
import subprocess
import sys

import pytest

from optsched.executors.attempts.folder import Report
from optsched.profiling.facts import HOOKED, REPORTED
from optsched.profiling.probe import probe
from optsched.profiling.reports import HOOK, read_hook, steps_of_hook
from tests.profiling.conftest import patiently

HERE = sys.executable if importlib.util.find_spec("torch") else None
TORCH_PYTHON = os.environ.get("OPTSCHED_TORCH_PYTHON") or HERE
"""An interpreter that has PyTorch: that of another environment may be named, as the library is
large."""

TRAIN = """
import os, signal, sys, time
import torch

torch.set_num_threads(1)
path = os.path.join(os.environ["OPTSCHED_CHECKPOINT_DIR"], "ck.pt")
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
if os.path.exists(path):
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
while True:
    time.sleep(0.02)
    optimizer.zero_grad()
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
    if asked:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        sys.exit(85)
"""

STAND_IN = {
    "__init__.py": "from . import nn, optim\n"
    "def save(obj, f): open(f, 'w').write('x' * 1000)\n"
    "def load(f):\n    save(0, f + '.inner')\n    return open(f).read()\n"
    "class cuda:\n    is_available = staticmethod(lambda: False)\n",
    "nn.py": "class Module:\n    def load_state_dict(self, state): pass\n",
    "optim/__init__.py": "from .optimizer import Optimizer\n",
    "optim/optimizer.py": "hooks = []\nregister_optimizer_step_post_hook = hooks.append\n"
    "class Optimizer:\n"
    "    def step(self):\n        [hook(self, (), {}) for hook in hooks]\n"
    "    def load_state_dict(self, state): pass\n",
}
"""A package with the parts of torch that the hook touches, for hosts without torch."""


@pytest.fixture
def hooked(tmp_path):
    """Run Python code as a profiled command is; what it reported and how it ended."""

    def go(code: str, python: str = sys.executable, path: str = ""):
        folder = tmp_path / "events"
        folder.mkdir()
        done = subprocess.run(
            [python, "-c", code],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
            env={
                **os.environ,
                "OPTSCHED_PROFILE": str(folder),
                "PYTHONPATH": f"{HOOK}{os.pathsep}{path}",
            },
        )
        return done, folder

    return go


@pytest.fixture
def torch_like(tmp_path):
    for name, text in STAND_IN.items():
        file = tmp_path / "lib" / "torch" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return str(tmp_path / "lib")


def test_without_torch_nothing_happens(hooked) -> None:
    done, folder = hooked("print('as ever')")
    assert (done.stdout, done.stderr, done.returncode) == ("as ever\n", "", 0)
    assert list(folder.iterdir()) == [] and read_hook(folder) is None


def test_an_absent_torch_is_still_absent(hooked) -> None:
    code = "import sys; sys.path[:] = []\ntry:\n    import torch\nexcept ImportError:\n    print('none')"  # noqa: E501
    done, _ = hooked(code)
    assert done.stdout == "none\n"


def test_a_hidden_sitecustomize_is_run_once(hooked, tmp_path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('the site')\nSETTING = 3\n")
    done, _ = hooked(
        "import sitecustomize; print(sitecustomize.SETTING)", path=str(tmp_path / "site")
    )
    assert done.stdout == "the site\n3\n"


def test_steps_saves_and_loads_survive_sigkill(hooked, torch_like) -> None:
    code = """
import importlib.util
assert importlib.util.find_spec("torch")
import os, torch
one, other = torch.optim.Optimizer(), torch.optim.Optimizer()
for _ in range(5):
    one.step()
other.step()
torch.save(1, f="a.pt")
assert torch.load("a.pt") == "x" * 1000
torch.nn.Module().load_state_dict({})
if os.fork() == 0:
    one.step()
    os._exit(0)
os.wait()
os.kill(os.getpid(), 9)
"""
    done, folder = hooked(code, path=torch_like)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert len(list(folder.iterdir())) == 2, "the child has a file of its own"
    found = read_hook(folder)
    assert found is not None
    assert [step for _, step in found.marks] == [1, 2, 3, 4, 5]
    assert found.marks == sorted(found.marks)
    assert found.optimizers == 2
    assert [size for _, _, size in found.saves] == [1000]
    assert [size for _, _, size in found.loads] == [1000, None], (
        "the save within the load is not counted"
    )
    assert steps_of_hook(folder) == 5


def test_rank_0_speaks_for_its_gang(tmp_path) -> None:
    for rank in (1, 0):
        lines = [
            f'["process", 1{rank}, "{rank}"]',
            f'["step", {rank}.5, 0]',
            f'["gpu", 0, {100 + rank}, 9]',
        ]
        (tmp_path / f"1{rank}.jsonl").write_text("\n".join([*lines, '["step", 9.0']))
    found = read_hook(tmp_path)
    assert found is not None
    assert (found.rank, found.marks, found.reserved_bytes) == (0, [(0.5, 1)], 101)


def test_a_torch_of_another_kind_is_left_alone(hooked, tmp_path) -> None:
    (tmp_path / "torch.py").write_text("answer = 42\n")
    done, folder = hooked("import torch; print(torch.answer)", path=str(tmp_path))
    assert done.stdout == "42\n" and "torch is not watched" in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(
    TORCH_PYTHON is None,
    reason="PyTorch is not installed, and OPTSCHED_TORCH_PYTHON names no Python",
)
def test_a_real_torch_script(python, setting) -> None:
    argv = (str(TORCH_PYTHON), *python(TRAIN)[1:])

    def measure(for_s):
        return probe(setting(argv, for_s=for_s, grace_s=120))

    found = patiently(measure, lambda found: (found.steps or 0) > 20, (15, 60, 240))
    assert found.step_source == HOOKED
    assert found.step_median_s is not None and found.step_median_s >= 0.02
    assert found.preemptible and found.stop_s is not None and found.save_s is not None
    assert found.restore_s is not None and found.restore_s > 0
    weights_and_both_moments = 3 * (64 * 64 + 64) * 4 / 2**30
    assert found.checkpoint_gib == pytest.approx(weights_and_both_moments, rel=0.5)
    assert found.torch_gpu_memory_gib is None, "this runs on the processor"


def test_reports_of_a_command_are_preferred(python, setting, torch_like) -> None:
    """Two optimizer steps make one step of the command."""
    code = f"""
import sys; sys.path.insert(0, {torch_like!r})
import json, os, time, torch
optimizer = torch.optim.Optimizer()
began = time.time()
for step in range(1, 21):
    time.sleep(0.02)
    optimizer.step()
    optimizer.step()
    to = os.environ["OPTSCHED_PROGRESS"]
    open(to + ".tmp", "w").write(json.dumps({{"step": step, "at_s": time.time(), "began_s": began}}))
    os.replace(to + ".tmp", to)
"""  # noqa: E501
    found = probe(setting(python(code), for_s=60))
    assert found.step_source == REPORTED
    assert found.step_median_s is not None and found.step_median_s >= 0.02


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"step": 1}',
        '{"step": "1", "at_s": 2}',
        '{"step": true, "at_s": 2}',
        '{"step": -1, "at_s": 2}',
        '{"step": 1.5, "at_s": 2}',
        '{"step": 1, "at_s": NaN}',
    ],
)
def test_what_is_no_report_is_ignored(tmp_path, text) -> None:
    (tmp_path / "p.json").write_text(text)
    assert Report(tmp_path / "p.json").progress() is None


@pytest.mark.parametrize(
    "line",
    [
        '["process", 1, "\u00b2"]',
        '["process", 1, "%s"]' % ("9" * 5000),
        "[" * 100_000,
        '["step", NaN, 0]',
        '["step", 1e400, 0]',
        '["save", 1.0, -1e300, 5]',
        '["load", 1.0, 2.0, {"a": 1}]',
        '["gpu", 0, -5, 1]',
        "\x00\xff",
    ],
    ids=lambda line: line[:20],
)
def test_lines_that_are_none_are_left_out(tmp_path, line) -> None:
    """The command may write what it likes among what the hook reports."""
    lines = ['["process", 1, "3"]', line, '["step", 1.0, 0]', '["step", 2.0, 0]']
    (tmp_path / "1.jsonl").write_text("\n".join(lines))
    report = read_hook(tmp_path)
    assert report is not None and report.rank == 3
    assert [at_s for at_s, _ in report.marks] == [1.0, 2.0]
    assert not (report.saves or report.loads or report.reserved_bytes)


def test_what_is_no_file_of_the_hook_holds_up_nobody(tmp_path) -> None:
    os.mkfifo(tmp_path / "1.jsonl")
    (tmp_path / "2.jsonl").symlink_to("/dev/zero")
    (tmp_path / "3.jsonl").mkdir()
    assert steps_of_hook(tmp_path) == 0
    (tmp_path / "4.jsonl").write_text('["step", 1.0, 0]\n')
    assert steps_of_hook(tmp_path) == 1


def test_a_report_with_more_than_is_known(tmp_path) -> None:
    (tmp_path / "p.json").write_text(
        '{"step": 3, "at_s": 7, "loss": 0.1, "saved_step": null, "checkpoint_s": 2}'
    )
    found = Report(tmp_path / "p.json").progress()
    assert found is not None
    assert (found.step, found.at_s, found.saved_step, found.checkpoint_s) == (3, 7.0, None, 2.0)
