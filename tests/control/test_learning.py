"""What ended jobs teach of those to come: in virtual time, with the journal that a controller would
have."""

from pathlib import Path

import pytest

from optsched import Job, Profile
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import Submitted
from optsched.control.learned import NEVER_S
from optsched.control.learning import Learning, believed
from optsched.control.regret.spent import useful_work_s
from optsched.control.submission import Submission
from optsched.control.what_if.snapshot import snapshot
from optsched.profiling.measured import Measured
from optsched.profiling.store import Store

from .test_controller import Lab

RUNS_S = 3600.0


class Learned(Lab):
    """A lab whose controller learns; jobs are as long as they are believed to be."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.controller.learning = self.fresh()
        self.controller.listeners.append(self.controller.learning.heard)

    def fresh(self) -> Learning:
        """What a controller that starts now has learned."""
        return Learning(self.folder / "profiles", self.controller.state, pytest.fail, RUNS_S)

    def believed(
        self, user: str, command: str, stated_s: float | None = None, limit_s: float | None = None
    ) -> float:
        job = Job(id="new", user=user, command=command, gpus=8, duration_s=stated_s)
        work_s, _ = believed(self.controller.learning, RUNS_S, job, limit_s)
        assert believed(self.fresh(), RUNS_S, job, limit_s)[0] == work_s
        return work_s

    def add(self, name: str, user: str, command: str, seconds: float, status: int = 0) -> None:
        """A job of which nobody says how long it runs, nor whether it saves; it runs for
        `seconds`."""
        job = Job(
            id=name,
            gpus=8,
            user=user,
            command=command,
            duration_s=self.believed(user, command),
            profile=Profile(checkpoint_every_s=NEVER_S),
        )
        argv = ("work", str(seconds), "1", str(status))
        self.controller.record(
            Submitted(submission=Submission(job=job, argv=argv, directory="/", estimate="a guess"))
        )


@pytest.fixture
def lab(tmp_path: Path) -> Learned:
    return Learned(tmp_path)


def test_a_job_of_milliseconds_makes_nobody_elses_jobs_seem_short(lab: Learned) -> None:
    """Nor does it make what runs give way: unknown jobs are taken to be as long as before."""
    lab.add("quick", "eve", "true", 0.007)
    lab.run(3)
    assert lab.status() == {"quick": "completed"}
    assert (
        lab.believed("ann", "python train.py") == lab.believed("eve", "python train.py") == RUNS_S
    )
    assert RUNS_S / 2 < lab.believed("eve", "true") < RUNS_S
    lab.add("train", "ann", "python train.py", 1200.0)
    lab.run(600)
    lab.add("again", "eve", "false", 0.007, status=1)
    lab.run(590)
    assert (
        lab.status()["train"] == "running" and lab.controller.state.jobs["train"].preemptions == 0
    )
    lab.run(30)
    assert (lab.status()["train"], lab.status()["again"]) == ("completed", "failed")
    assert lab.believed("eve", "false") == RUNS_S


def test_runs_that_failed_are_no_run_times(lab: Learned) -> None:
    """A node is lost half way and with it what was done: the job takes 100 s, not 150."""
    lab.executor.nodes = lab.executor.nodes[:1]
    lab.submit(
        "a",
        4,
        100.0,
        profile=Profile(checkpoint_every_s=NEVER_S),
        job={"user": "ann", "command": "x"},
    )
    lab.run(50)
    lab.executor.down.add("n0")
    lab.run(5)
    lab.executor.down.clear()
    lab.run(150)
    job = lab.controller.state.jobs["a"]
    assert job.finished == "completed" and len(job.attempts) == 2
    assert useful_work_s(job) == pytest.approx(100.0, abs=0.1)


def test_a_limit_is_outweighed_by_no_job_of_others_and_slowly_by_own_ones(lab: Learned) -> None:
    limit_s = 4 * 3600.0
    for i in range(4):
        lab.submit(f"j{i}", 8, 11.0, job={"user": "bob", "command": f"run {i}"}, limit_s=limit_s)
    lab.run(60)
    assert lab.believed("ann", "run 1", limit_s=limit_s) == limit_s
    assert lab.believed("bob", "walk", limit_s=limit_s) == limit_s
    found = lab.believed("bob", "run 9", limit_s=2 * limit_s)
    assert found == pytest.approx(2 * (0.8**4 * limit_s + (1 - 0.8**4) * 11), rel=0.01)
    assert lab.believed("bob", "run 9", stated_s=60.0) == 60.0


def test_nothing_is_believed_to_outlast_its_limit(lab: Learned) -> None:
    for i in range(9):
        lab.submit(f"j{i}", 8, 50.0, job={"user": "bob", "command": "x"}, limit_s=10.0)
    lab.run(600)
    assert lab.believed("bob", "x", limit_s=600.0) == 600.0
    assert lab.believed("bob", "y", stated_s=900.0, limit_s=600.0) == 600.0


def test_that_a_job_saves_is_not_told_from_others(lab: Learned) -> None:
    run = Measured(
        gpus=1,
        user="ann",
        command="train 1",
        startup_s=5.0,
        stop_s=3.0,
        save_s=3.0,
        preemptible=True,
    )
    Store(lab.folder / "profiles").learn("one", run, "one:1")
    found = lab.fresh()
    assert found.costs("ann", "train 2").checkpoint_s == 3.0
    for user, command in (("ann", "test 1"), ("bob", "train 1")):
        costs = found.costs(user, command)
        assert (costs.checkpoint_s, costs.checkpoint_every_s, costs.startup_s) == (0.0, None, 5.0)


def test_who_does_not_save_is_told_so(lab: Learned) -> None:
    lab.submit(
        "a", 8, 100.0, profile=Profile(checkpoint_every_s=NEVER_S), grace_s=30.0, saves_s=-1.0
    )
    lab.run(20)
    said = " ".join(explain_job(snapshot(lab.controller), "a").sentences)
    assert "It is not preempted, because it is not known to save" in said
