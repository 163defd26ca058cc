"""How long jobs will be, from those that have ended."""

import random

import pytest

from optsched.executors.base import Progress
from optsched.job import Job
from optsched.profiling.durations import Durations, Ended, by_progress, outrun
from optsched.simulate.estimates.history import History


def ended(user, command, work_s, gpus=1) -> Ended:
    return Ended(user=user, command=command, gpus=gpus, work_s=work_s)


def test_by_hand() -> None:
    known = Durations([ended("ann", "train.py", 100), ended("ann", "train.py", 300), ended("bob", "train.py", 900, 8)])
    found = known.predict("ann", "train.py", 1)
    assert (found.work_s, found.jobs) == (200, 2)
    assert found.taken_from == "2 ended jobs: the same command of user ann on 1 GPUs"
    assert known.predict("ann", "train.py", 4).taken_from == "2 ended jobs: the same command of user ann"
    assert known.predict("ann", "train 7.py", 1).taken_from == "2 ended jobs: any command of user ann on 1 GPUs"
    assert known.predict("eve", "train.py", 8).work_s == 900
    assert known.predict("eve", "train.py", 8).taken_from == "one ended job: the same command of any user on 8 GPUs"
    assert known.predict(None, None, 1).work_s == 200
    assert known.predict("eve", "what", 2).work_s == pytest.approx((100 + 300 + 900) / 3)
    assert known.predict("eve", "what", 2).taken_from == "3 ended jobs: any command of any user"


def test_nothing_has_ended() -> None:
    found = Durations().predict("ann", "train.py", 1)
    assert (found.work_s, found.jobs, found.taken_from) == (600, 0, "no job has ended yet: a first guess")


def test_the_same_as_in_simulations() -> None:
    draw = random.Random(3)
    history, known = History(), Durations()
    for i in range(300):
        user, command = draw.choice("abc"), draw.choice(["x 1", "x 2", "y", None])
        gpus, work_s = draw.choice([1, 2, 8]), draw.uniform(1, 1e5)
        job = Job(id=str(i), user=user, command=command, gpus=gpus, duration_s=work_s)
        assert known.predict(user, command, gpus).work_s == history.work_s(job, float(i))
        history.completed(job, work_s, float(i))
        known.add(ended(user, command, work_s, gpus))


def test_by_progress() -> None:
    """20 steps in 60 s are 3 s each: 100 steps are 300 s, at rate one half 150."""
    progress = Progress(step=30, at_s=1060.0, first_step=10, began_s=1000.0, total_steps=100)
    found = by_progress(progress)
    assert found is not None and found.work_s == 300
    assert found.taken_from == "its own report: 30 of 100 steps done"
    halved = by_progress(progress, rate=0.5)
    assert halved is not None and halved.work_s == 150


@pytest.mark.parametrize("progress", [
    Progress(step=3, at_s=10.0, began_s=1.0),
    Progress(step=3, at_s=10.0, total_steps=9),
    Progress(step=3, first_step=3, at_s=10.0, began_s=1.0, total_steps=9),
    Progress(step=3, at_s=1.0, began_s=1.0, total_steps=9),
])
def test_without_enough_said_there_is_no_estimate(progress) -> None:
    assert by_progress(progress) is None


def test_outrun() -> None:
    assert (outrun(10, 9), outrun(10, 10), outrun(10, 45)) == (10, 20, 80)
