"""Whatever a solver does, the engine answers in time with a verified plan and leaves nothing
behind."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from optsched import Job
from optsched.engine import solve
from optsched.model.plan import Solution
from optsched.objectives import parse
from optsched.verify import verify
from tests.engine import fakes
from tests.engine.processes import gone, pids

LIMIT_S = 1.5
SLACK_S = 3.0
"""How late an answer may be on a busy machine; the fakes would take a minute and more."""

MAKESPAN_OF_LISTS_S, BEST_MAKESPAN_S = 7.0, 6.0


def answer(solver: fakes.Fake, time_limit_s: float = LIMIT_S, **options: str) -> Solution:
    """Solve, check what must hold of every answer, and that no child is left of it."""
    instance, before = fakes.two_gpus(), {*psutil.Process().children()}
    began_s = time.monotonic()
    solution = solve(
        instance, "makespan", solver=solver, time_limit_s=time_limit_s, options=options
    )
    assert time.monotonic() - began_s < 1.1 * time_limit_s + SLACK_S
    assert solution.plan is not None
    report = verify(instance, solution.plan, parse("makespan"))
    assert report.values == (solution.levels[0].value,)
    assert solution.levels[0].bound is not None
    assert solution.levels[0].bound <= BEST_MAKESPAN_S
    assert {*psutil.Process().children()} <= before
    return solution


def assert_heuristic(solution: Solution, *reasons: str) -> None:
    assert (solution.solver, solution.status, solution.value) == (
        "wspt",
        "feasible",
        MAKESPAN_OF_LISTS_S,
    )
    assert solution.fallback is not None
    for reason in reasons:
        assert reason in solution.fallback


@pytest.mark.parametrize(
    ("solver", "reasons"),
    [
        (fakes.Raises(), ["fake crashed: ZeroDivisionError: no such luck"]),
        (fakes.Exits(), ["fake ended with exit status 3 before it was done"]),
        (fakes.Invalid(), ["fake returned a plan that does not pass the verifier", "n0", "at 0 s"]),
        (
            fakes.SaysInfeasible(),
            ["fake claims that no plan exists (the model has no solution)", "wspt"],
        ),
        (fakes.Missing(), ["fake needs no_such_module, which is not installed"]),
        (fakes.Broken(), ["fake crashed: RuntimeError: this library is broken"]),
        (fakes.Unsupporting(), ["fake cannot plan this: it knows no GPUs"]),
        (
            fakes.Junk(),
            ["fake returned a plan that does not pass the verifier: the plan is dict, not Plan"],
        ),
        (fakes.NumberTypes(), ["fake sent an object of numpy", "plain int and float"]),
        (fakes.RunsCode(), ["fake sent an object of posix.system, which has no place in a plan"]),
        (fakes.Overclaims(), ["fake claimed a bound of 8 for makespan, but a verified plan has 7"]),
        (
            fakes.BadBounds(),
            ["a bound of nan, which is not a finite number", "a bound for level 7"],
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, fakes.Fake) else "",
)
def test_misbehaviour_ends_at_once(solver: fakes.Fake, reasons: list[str]) -> None:
    began_s = time.monotonic()
    solution = answer(solver, time_limit_s=30.0)
    assert time.monotonic() - began_s < 20.0
    assert_heuristic(solution, *reasons)
    assert (
        solution.bound == 6.0
        and solution.bound_source is not None
        and "fake" not in solution.bound_source
    )


@pytest.mark.parametrize(
    "solver",
    [fakes.Stubborn(), fakes.Native(), fakes.HangsOnImport(), fakes.Floods(), fakes.FloodsNotes()],
    ids=lambda solver: type(solver).__name__,
)
def test_killed_at_the_deadline(solver: fakes.Fake, capfd: pytest.CaptureFixture[str]) -> None:
    began_s = time.monotonic()
    solution = answer(solver)
    assert time.monotonic() - began_s >= LIMIT_S
    assert_heuristic(solution, "fake did not stop at its time limit and was killed")
    assert len(solution.notes) < 20
    assert capfd.readouterr() == ("", "")


def test_what_is_compiled_once_on_a_machine_takes_none_of_the_limit() -> None:
    solution = answer(fakes.Compiles())
    assert (solution.solver, solution.value) == ("fake", BEST_MAKESPAN_S)


def test_a_request_that_is_never_read_does_not_hold_up() -> None:
    # More text than a pipe holds; 2395 s in all, so that the bound of half of it is not reached.
    jobs = tuple(Job(id=f"{i:0256}", duration_s=1.0 + i % 7) for i in range(600))
    instance = replace(fakes.two_gpus(), jobs=jobs)
    solution = solve(instance, "makespan", solver=fakes.HangsOnImport(), time_limit_s=4.0)
    assert solution.fallback == "fake did not stop at its time limit and was killed"
    assert solution.wall_s is not None and solution.wall_s < 4.4 + SLACK_S


def test_what_was_found_before_a_failure_is_kept() -> None:
    solution = answer(fakes.BetterThenHangs(), time_limit_s=5.0)
    assert (solution.solver, solution.status, solution.value) == ("fake", "feasible", 6.5)
    assert solution.fallback is None
    assert "fake did not stop at its time limit and was killed" in solution.notes


def test_a_plan_before_junk_is_kept() -> None:
    solution = answer(fakes.RawJunk(), time_limit_s=30.0)
    assert (solution.solver, solution.value, solution.fallback) == ("fake", 6.5, None)
    assert any("fake sent bytes that are no message" in note for note in solution.notes)


def test_a_crash_comes_with_its_traceback_and_output() -> None:
    notes = answer(fakes.Raises(), time_limit_s=30.0).notes
    assert any("fakes.py" in note for note in notes)
    notes = answer(fakes.Segfaults(), time_limit_s=30.0).notes
    assert any("about to crash" in note for note in notes)
    assert any("fakes.py" in note for note in notes)  # where it was, by faulthandler


def test_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    answer(fakes.LeavesFiles(), time_limit_s=30.0)
    assert list(tmp_path.iterdir()) == []


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    open_before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr("subprocess.Popen", refused)
    solution = answer(fakes.Best(), time_limit_s=30.0)
    assert_heuristic(solution, "fake cannot have a process of its own: no more processes")
    assert len(os.listdir("/dev/fd")) == open_before


def test_no_descriptor_is_left_open() -> None:
    open_before = len(os.listdir("/dev/fd"))
    answer(fakes.Best(), time_limit_s=30.0)
    answer(fakes.Exits(), time_limit_s=30.0)
    assert len(os.listdir("/dev/fd")) == open_before


def test_many_at_once() -> None:
    found: list[Solution] = []

    def one() -> None:
        found.append(solve(fakes.two_gpus(), "makespan", solver=fakes.Best(), time_limit_s=60.0))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [solution.value for solution in found] == [BEST_MAKESPAN_S] * 4


def test_killed_from_outside(tmp_path: Path) -> None:
    def kill() -> None:
        os.kill(pids(tmp_path / "pids")[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    solution = answer(fakes.Waits(), time_limit_s=30.0, pids=str(tmp_path / "pids"))
    killer.join()
    assert_heuristic(solution, "fake was killed by signal 9 (SIGKILL)")


@pytest.mark.parametrize("then", ["end", "wait"])
def test_its_own_processes_die_with_it(tmp_path: Path, then: str) -> None:
    answer(fakes.Forks(), pids=str(tmp_path / "pids"), then=then)
    for pid in pids(tmp_path / "pids"):
        assert gone(pid)
