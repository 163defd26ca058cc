"""What attempts teach: costs of starting and saving, and how much is left to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import Job, Mode, Profile
from optsched.control.journal.state import Attempt
from optsched.control.learned import NEVER_S, learned
from optsched.control.submission import Submission
from optsched.control.work_left import OVERRUN, work_left_s
from optsched.executors.base import AttemptKey, Progress

STATED = Profile(checkpoint_s=10.0, restore_s=20.0, startup_s=5.0)


def attempt(
    *, work_s: float = 100.0, rate: float = 1.0, setup_s: float = 0.0, started_s: float | None = 0.0
) -> Attempt:
    return Attempt(
        AttemptKey("j", 1), Mode(gpus=1), (), 0.0, work_s, rate, setup_s, started_s=started_s
    )


def submission(**profile: float) -> Submission:
    return Submission(
        job=Job(id="j", duration_s=100.0, profile=Profile(**profile)), argv=("x",), directory="/"
    )


def test_measured_costs_replace_stated_ones() -> None:
    progress = Progress(
        step=9, first_step=4, at_s=60.0, began_s=8.0, checkpoint_s=2.5, restore_s=3.0
    )
    assert learned(STATED, progress, 1.0) == Profile(checkpoint_s=2.5, restore_s=3.0, startup_s=4.0)


def test_what_was_not_measured_stays() -> None:
    assert learned(STATED, None, 1.0) is STATED
    assert learned(STATED, Progress(step=0, at_s=1.0), 1.0) is STATED
    assert (
        learned(STATED, Progress(step=3, at_s=9.0, began_s=6.004, checkpoint_s=10.001), 1.0)
        is STATED
    )


def test_who_saves_is_found_out() -> None:
    unknown = Profile(checkpoint_every_s=NEVER_S)
    assert learned(unknown, Progress(step=3, at_s=9.0), 1.0) is unknown
    assert learned(unknown, Progress(step=3, at_s=9.0, saves=True), 1.0) == Profile()
    found = learned(unknown, Progress(step=3, at_s=9.0, saved_step=2, checkpoint_s=0.5), 1.0)
    assert found == Profile(checkpoint_s=0.5)
    periodic = Profile(checkpoint_every_s=600.0)
    assert learned(periodic, Progress(step=3, at_s=9.0, saves=True), 1.0) is periodic


def test_without_reports_time_counts_at_the_rate_of_the_mode() -> None:
    assert work_left_s(submission(), attempt(rate=2.0, setup_s=5.0), None, 25.0) == 60.0
    assert work_left_s(submission(), attempt(started_s=None), None, 25.0) == 100.0
    assert work_left_s(submission(), attempt(), None, 200.0) == pytest.approx(200.0 * OVERRUN)


def test_without_a_checkpoint_all_of_the_attempt_is_lost() -> None:
    assert work_left_s(submission(), attempt(work_s=70.0), None, 25.0, saved=False) == 70.0
    assert (
        work_left_s(submission(checkpoint_every_s=10.0), attempt(), None, 25.0, saved=False) == 80.0
    )
    assert work_left_s(submission(), attempt(), None, 25.0, saved=True) == 75.0


def test_steps_at_the_pace_that_was_measured() -> None:
    # 10 steps in 40 s, 70 to do at 4 s each, on GPUs twice as fast as the reference
    progress = Progress(
        step=30, first_step=20, at_s=50.0, began_s=10.0, total_steps=100, saved_step=25
    )
    assert work_left_s(submission(), attempt(rate=2.0), progress, 50.0) == 70 * 4.0 * 2.0
    assert (
        work_left_s(submission(), attempt(rate=2.0), progress, 50.0, saved=False) == 75 * 4.0 * 2.0
    )
    assert (
        work_left_s(submission(), attempt(rate=2.0), progress, 50.0, saved=True) == 75 * 4.0 * 2.0
    )


def test_too_few_steps_for_a_pace_count_as_a_share() -> None:
    progress = Progress(step=2, at_s=50.0, began_s=10.0, total_steps=10)
    assert work_left_s(submission(), attempt(), progress, 50.0) == 80.0
    assert work_left_s(submission(), attempt(work_s=70.0), progress, 50.0, saved=False) == 70.0


@given(
    step=st.integers(0, 50),
    first=st.integers(0, 50),
    saved=st.none() | st.integers(0, 50),
    total=st.none() | st.integers(1, 60),
    at_s=st.floats(0, 100),
    now_s=st.floats(0, 1e6),
    how=st.sampled_from([None, True, False]),
    rate=st.floats(0.1, 10),
)
def test_never_less_than_nothing(
    step: int,
    first: int,
    saved: int | None,
    total: int | None,
    at_s: float,
    now_s: float,
    how: bool | None,
    rate: float,
) -> None:
    progress = Progress(
        step=max(step, first),
        first_step=first,
        saved_step=saved,
        at_s=at_s,
        began_s=0.0,
        total_steps=total,
    )
    going_on = work_left_s(submission(), attempt(rate=rate), progress, now_s)
    after = work_left_s(submission(), attempt(rate=rate), progress, now_s, saved=how)
    assert going_on >= 0 and after >= 0
