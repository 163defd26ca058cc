"""What an executor saw of an attempt, as measurements."""

from dataclasses import replace

from optsched.executors.base import AttemptKey, AttemptState, Observation, Progress
from optsched.profiling.attempts import measured_of

SEEN = Observation(
    key=AttemptKey("bert", 2),
    state=AttemptState.ENDED,
    started_s=1000.0,
    ended_s=1200.0,
    exit_status=85,
    progress=Progress(
        step=150, at_s=1190.0, first_step=50, began_s=1040.0, checkpoint_s=2.5, restore_s=15.0
    ),
    peak_memory_gib=12.0,
)
HOW = {"gpus": 2, "cpus": 8, "gpu_type": "a100", "user": "ann", "command": "train"}


def test_by_hand() -> None:
    found = measured_of(SEEN, **HOW, stop_asked_s=1193.0)
    assert (found.step_s, found.steps) == (1.5, 100)
    assert found.startup_s == 25  # 40 s until the first step, 15 of them to restore
    assert (found.restore_s, found.save_s, found.stop_s) == (15, 2.5, 7)
    assert (found.memory_gib, found.preemptible, found.at_s) == (12, True, 1200)
    assert (found.gpu_memory_gib, found.gpu_duty) == (None, None)


def test_what_was_not_seen_is_absent() -> None:
    found = measured_of(replace(SEEN, progress=None, peak_memory_gib=None, exit_status=0), **HOW)
    assert {
        found.step_s,
        found.startup_s,
        found.restore_s,
        found.save_s,
        found.stop_s,
        found.memory_gib,
    } == {None}
    assert found.preemptible is None


def test_a_kill_is_no_stop() -> None:
    found = measured_of(replace(SEEN, exit_status=-9), **HOW, stop_asked_s=1193.0)
    assert (found.stop_s, found.preemptible) == (None, False)


def test_a_job_that_was_done_when_asked_says_nothing_of_saving() -> None:
    assert measured_of(replace(SEEN, exit_status=0), **HOW, stop_asked_s=1193.0).preemptible is None


def test_a_few_steps_are_no_step_time() -> None:
    few = Progress(step=53, at_s=1190.0, first_step=50, began_s=1040.0)
    assert measured_of(replace(SEEN, progress=few), **HOW).step_s is None
