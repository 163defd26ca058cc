"""Ctrl-C, and the end of the engine itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.processes import gone, pids

ROOT = Path(__file__).parents[2]

SCRIPT = """
import time
from optsched.engine import solve
from tests.engine import fakes

# No "if __name__ == '__main__'" here: scripts and notebooks must not need one.
def saw(progress):
    with open({path!r} + ".seen", "a") as file:
        print(progress.value, file=file)

solution = solve(fakes.two_gpus(), "makespan", solver=fakes.{solver}(), time_limit_s=600.0,
                 options={{"pids": {path!r}}}, on_progress=saw)
print(solution.status, solution.value, solution.solver, "|", solution.fallback, "|", *solution.notes)
time.sleep({then_s})
"""  # noqa: E501


def script(solver: str, path: Path, then_s: float = 0.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(solver=solver, path=str(path), then_s=then_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'solvers'}",
            "TMPDIR": str(path.parent),
        },
    )


@pytest.mark.parametrize(
    ("solver", "value", "expected"),
    [
        (
            "Stubborn",
            "7.0",
            "feasible 7.0 wspt | fake was stopped by Ctrl-C before it was done | stopped by Ctrl-C",
        ),
        ("BetterThenHangs", "6.5", "feasible 6.5 fake | None | stopped by Ctrl-C"),
    ],
)
def test_ctrl_c_gives_the_best_plan_so_far(
    solver: str, value: str, expected: str, tmp_path: Path
) -> None:
    process = script(solver, tmp_path / "pids")
    (solver_pid,) = pids(tmp_path / "pids")
    wait_until_seen(tmp_path / "pids.seen", value)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output.startswith(expected)
    assert (process.returncode, errors) == (0, "")
    assert gone(solver_pid)


def wait_until_seen(path: Path, value: str, within_s: float = 60.0) -> None:
    """Wait until the engine has taken up a plan of this value."""
    until_s = time.monotonic() + within_s
    while not (path.exists() and value in path.read_text().split()):
        assert time.monotonic() < until_s, f"the engine never had a plan of value {value}"
        time.sleep(0.02)


def test_a_second_ctrl_c_ends_it(tmp_path: Path) -> None:
    process = script("Stubborn", tmp_path / "pids", then_s=60.0)
    (solver_pid,) = pids(tmp_path / "pids")
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert gone(solver_pid)
    assert list(tmp_path.glob("optsched-*")) == []


@pytest.mark.parametrize(
    ("solver", "number"),
    [("Native", signal.SIGKILL), ("Forks", signal.SIGKILL), ("Stubborn", signal.SIGTERM)],
)
def test_nothing_outlives_a_killed_engine(solver: str, number: int, tmp_path: Path) -> None:
    process = script(solver, tmp_path / "pids")
    started = pids(tmp_path / "pids")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert all(gone(pid) for pid in started)
    until_s = time.monotonic() + 60.0
    while list(tmp_path.glob("optsched-*")) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert list(tmp_path.glob("optsched-*")) == []


def test_ctrl_c_before_there_is_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.engine import solve
    from tests.engine import fakes

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optsched.simulate.run.simulate", interrupted)
    solution = solve(fakes.two_gpus(), solver=fakes.Best())
    assert (solution.status, solution.plan) == ("unknown", None)
    assert "stopped by Ctrl-C" in solution.notes
