"""A host whose clock jumps by a day: what waits and what saves keeps the time that it was given."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.executors.base import AttemptKey
from optsched.executors.sbatch.attempt import SbatchAttempt
from optsched.executors.sbatch.telling import Teller
from optsched.executors.slurm.attempt import SlurmAttempt
from optsched.executors.slurm.declining import Declining
from optsched.executors.slurm.site import Site

from .test_sbatch_attempt import Slurm, slurm, started

DAY_S = 86400.0
GRACE_S, START_TIMEOUT_S = 60.0, 600.0


class Clocks:
    """The clocks of a host, which a test turns."""

    def __init__(self) -> None:
        self.wall_s, self.steady_s = time.time(), time.monotonic()

    def jump(self, seconds: float) -> None:
        self.wall_s += seconds

    def pass_time(self, seconds: float) -> None:
        self.wall_s += seconds
        self.steady_s += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocks]:
    found = Clocks()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: found.wall_s)
        patch.setattr(time, "monotonic", lambda: found.steady_s)
        yield found


def attempt_of(folder: Path, clocks: Clocks) -> SlurmAttempt:
    attempt = SlurmAttempt(folder, AttemptKey("job", 1))
    attempt.folder.prepare(
        {
            "made_s": clocks.wall_s,
            "user": None,
            "checkpoint_directory": "",
            "start_timeout_s": START_TIMEOUT_S,
            "nodes": [{"name": "n1", "gpus": 1, "memory_gib": 0.0}],
        }
    )
    return attempt


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_what_saves_has_its_grace(tmp_path: Path, clocks: Clocks, jump_s: float) -> None:
    attempt = attempt_of(tmp_path, clocks)
    attempt.write_stop(GRACE_S)
    assert attempt.overdue_s() == -GRACE_S
    clocks.jump(jump_s)
    clocks.pass_time(50.0)
    assert attempt.overdue_s() == pytest.approx(-10.0)
    clocks.pass_time(20.0)
    assert attempt.overdue_s() == pytest.approx(10.0)


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_what_waits_has_its_time_to_start(tmp_path: Path, clocks: Clocks, jump_s: float) -> None:
    attempt = attempt_of(tmp_path, clocks)
    attempt.waiting_at("n1", None, "it waits")
    clocks.jump(jump_s)
    clocks.pass_time(START_TIMEOUT_S - 10.0)
    attempt.waiting_at("n1", None, "it waits")
    assert attempt.stop_record() is None
    clocks.pass_time(20.0)
    attempt.waiting_at("n1", None, "it waits")
    assert attempt.lost() == "it did not begin within 600 s: it waits"


def test_a_controller_that_begins_later_counts_what_has_passed(
    tmp_path: Path, clocks: Clocks
) -> None:
    attempt_of(tmp_path, clocks).write_stop(GRACE_S)
    clocks.pass_time(80.0)
    after = SlurmAttempt(tmp_path, AttemptKey("job", 1))
    assert (after.waited_s(), after.overdue_s()) == (80.0, 20.0)


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_jobs_of_slurms_users(tmp_path: Path, clocks: Clocks, jump_s: float) -> None:
    """One that waits in Slurm is taken back, and one that saves is put back by force, when its
    time is over."""
    client = Slurm()
    teller = Teller(client, Site(start_timeout_s=START_TIMEOUT_S), Declining())
    waits = slurm("PENDING", priority=7, state_reason="Resources")
    made = started(tmp_path, released_s=clocks.wall_s, who=[1000, "", ""])

    def look(attempt: SbatchAttempt, job: object) -> list[tuple[str, ...]]:
        client.told.clear()
        teller.see_to(attempt, job, ())  # type: ignore[arg-type]
        return client.told

    assert look(made, waits) == []
    clocks.jump(jump_s)
    clocks.pass_time(START_TIMEOUT_S - 10.0)
    assert look(made, waits) == [] and made.stop is None
    clocks.pass_time(20.0)
    assert ("scontrol", "hold", "7") in look(made, waits)
    runs = slurm("RUNNING")
    made = started(tmp_path)
    made.write_stop(GRACE_S)
    assert any(words[0] == "scancel" for words in look(made, runs))
    clocks.jump(jump_s)
    clocks.pass_time(GRACE_S - 10.0)
    assert look(made, runs) == []
    clocks.pass_time(20.0)
    assert [words[:2] for words in look(made, runs)] == [("scontrol", "requeuehold")]
