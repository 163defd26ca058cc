"""A clock that does not follow the host's when that jumps."""

import time

import pytest

from optsched import Job, Profile
from optsched.control.clock import SteadyClock
from optsched.control.journal.state import Attempt
from optsched.control.learned import learned
from optsched.control.seen import SteadyReports
from optsched.control.submission import Submission
from optsched.control.work_left import work_left_s
from optsched.executors.base import AttemptKey, AttemptState, Observation, Progress
from optsched.model.job import Mode


def test_it_is_never_behind_the_journal() -> None:
    ahead_s = time.time() + 5000.0
    clock = SteadyClock(ahead_s)
    assert clock.now_s() >= ahead_s and clock.jump_s() is None
    assert SteadyClock(0.0).now_s() == pytest.approx(time.time(), abs=1.0)


def test_a_jump_is_told_once_and_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock(0.0)
    before_s, wall_s = clock.now_s(), time.time()
    monkeypatch.setattr(time, "time", lambda: wall_s + 3600.0)
    assert clock.jump_s() == pytest.approx(3600.0, abs=1.0) and clock.jump_s() is None
    assert clock.now_s() == pytest.approx(before_s, abs=5.0)
    assert clock.steady_s(wall_s + 3590.0) == pytest.approx(before_s - 10.0, abs=5.0)
    assert clock.steady_s(wall_s + 9999.0) <= clock.now_s()
    monkeypatch.setattr(time, "time", lambda: wall_s - 3600.0)
    assert clock.jump_s() == pytest.approx(-7200.0, abs=1.0)


class Host:
    """A host whose clock jumps, with an attempt that began 100 s ago on it and reports each
    step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steady_s, self.off_s = 5000.0, 1.7e9
        monkeypatch.setattr(time, "monotonic", lambda: self.steady_s)
        monkeypatch.setattr(time, "time", self.wall_s)
        self.clock = SteadyClock(0.0)
        self.reports = SteadyReports()
        self.started_s, self.began_s = self.clock.now_s(), self.wall_s() + 20.0
        self.steady_s += 100.0
        self.step, self.said = 8, Progress(step=0, at_s=0.0)

    def wall_s(self) -> float:
        return self.steady_s + self.off_s

    def works(self) -> Progress:
        """A step of 10 s is done, saved, and reported."""
        self.steady_s += 10.0
        self.step += 1
        now_s = self.wall_s()
        self.said = Progress(
            step=self.step,
            at_s=now_s,
            began_s=self.began_s,
            saved_at_s=now_s,
            saved_step=self.step,
            total_steps=1000,
        )
        return self.seen()

    def seen(self) -> Progress:
        return self.seen_by(self.reports)

    def seen_by(self, reports: SteadyReports) -> Progress:
        key = AttemptKey("job", 1)
        one = Observation(key=key, state=AttemptState.RUNNING, progress=self.said)
        seen = reports.take([one], self.clock.steady_s)[key].progress
        assert seen is not None
        return seen


@pytest.mark.parametrize("jump_s", [86400.0, -86400.0])
def test_reports_from_before_and_after_a_jump_are_in_one_time(
    monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """What a job has left, what its start took and when it saved stay what they are."""
    host = Host(monkeypatch)
    before = host.works()
    began_s = host.started_s + 20.0
    assert before.began_s == pytest.approx(began_s)
    host.off_s += jump_s
    host.steady_s += 5.0
    assert host.seen() == before  # nothing new is said
    host.steady_s -= 5.0
    after = host.works()
    now_s = host.clock.now_s()
    assert after.began_s == before.began_s
    assert (after.at_s, after.saved_at_s) == (pytest.approx(now_s), pytest.approx(now_s))
    learned_now = learned(Profile(), after, host.started_s)
    assert learned_now.startup_s == pytest.approx(20.0)
    job = Submission(job=Job(id="job", duration_s=1.0), argv=("x",), directory="/")
    attempt = Attempt(
        key=AttemptKey("job", 1),
        mode=Mode(gpus=1),
        placement=(),
        work_s=1.0,
        rate=1.0,
        setup_s=0.0,
        intended_s=host.started_s,
        started_s=host.started_s,
    )
    assert work_left_s(job, attempt, after, now_s) == pytest.approx(990 * 10.0)
    # the next controller has not seen the first report, and takes the attempt's time instead
    again = host.seen_by(SteadyReports())
    assert work_left_s(job, attempt, again, now_s) <= 990 * 120.0 / 10
