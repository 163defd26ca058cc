"""Jobs that users give to Slurm themselves, where nodes fail, Slurm crashes, and jobs do not do as
they are told."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.executors.base import AttemptState
from optsched.executors.sbatch.attempt import ROLLED_BACK
from optsched.executors.slurm.attempt import FORGOTTEN
from optsched.executors.supervision import processes
from optsched.testing.executors import until
from tests.live.slurm_cluster import SlurmCluster

from .holding_place import NOBODY, SAVES, WAITS, HoldingPlace


@pytest.fixture
def place(holding: SlurmCluster) -> Iterator[HoldingPlace]:
    with tempfile.TemporaryDirectory(prefix="optsched-place-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        made = HoldingPlace(Path(name), holding)
        yield made
        made.clear()


def test_a_node_that_is_lost(place: HoldingPlace) -> None:
    """Slurm requeues its job, which waits for us."""
    job = place.submit(SAVES)
    key = place.start(job, "n4")
    until(place.log)
    place.reach(key, AttemptState.RUNNING)
    place.cluster.set_node(4, "down")
    try:
        assert place.end(key) == (None, "a node failed: n4")
        assert place.says(job, "%T %r") == "PENDING JobHeldAdmin"
        second = place.start(job, "n2", number=2)
        until(lambda: "begin n2" in place.log())
        place.executor.kill(second)
        assert place.end(second) == (-9, None)
    finally:
        place.cluster.set_node(4, "resume")


@pytest.mark.slow
def test_a_node_that_is_lost_with_a_job_that_may_not_be_requeued(place: HoldingPlace) -> None:
    job = place.submit(SAVES, "--no-requeue")
    key = place.start(job, "n3")
    until(place.log)
    place.cluster.set_node(3, "down")
    try:
        assert place.end(key) == (None, "a node failed")
        assert place.arrival(job).gone == "a node failed, and Slurm does not requeue it"
    finally:
        place.cluster.set_node(3, "resume")


@pytest.mark.slow
def test_a_manager_that_is_restarted(place: HoldingPlace) -> None:
    later = place.start(place.submit(WAITS))
    soon = place.start(place.submit("until test -e went; do sleep 0.05; done; exit 6"))
    for key in (later, soon):
        place.reach(key, AttemptState.RUNNING)
    waits = place.submit(WAITS)
    before = place.arrival(waits)
    place.cluster.until_saved()
    (place.folder / "went").touch()
    place.cluster.kill_controller()
    place.cluster.start_controller()
    assert place.end(soon) == (6, None)
    place.reach(later, AttemptState.RUNNING)
    assert place.arrival(waits) == before
    (place.folder / "go").touch()
    assert place.end(later) == (0, None)
    until(lambda: all(status.usable for status in place.executor.inventory()))


@pytest.mark.slow
def test_one_that_does_not_stop(place: HoldingPlace) -> None:
    """Slurm kills it, KillWait after its grace; it may go on."""
    job = place.submit("trap '' TERM; echo begin >> log; while :; do sleep 0.05; done")
    key = place.start(job)
    until(place.log)
    place.executor.checkpoint_stop(key, 1)
    place.reopen()
    assert place.end(key) == (-9, "did not stop within the 1 s it was given, and was killed")
    assert place.says(job, "%T") == "PENDING"


@pytest.mark.slow
def test_a_start_that_slurm_forgets(place: HoldingPlace) -> None:
    """A slurmctld that crashes within seconds of a release has the job wait again, and kills what
    ran."""
    job = place.submit(WAITS)
    place.cluster.until_saved()
    key = place.start(job)
    until(place.log)
    place.cluster.kill_controller()
    place.cluster.start_controller()
    seen = place.end(key)
    assert seen == (None, ROLLED_BACK) and place.says(job) == "PENDING"
    assert not processes.marked(
        f"SLURM_CONF={place.cluster.conf}".encode(), f"SLURM_JOB_ID={job}".encode()
    )
    second = place.start(job, "n2", number=2)
    until(lambda: place.log() == ["begin n1", "begin n2"])
    (place.folder / "go").touch()
    assert place.end(second) == (0, None)


@pytest.mark.slow
def test_a_job_that_slurm_forgets(place: HoldingPlace) -> None:
    """One that was submitted within seconds of a crash is gone, and its number another job's."""
    place.cluster.until_saved()
    job = place.submit(WAITS)
    key = place.start(job)
    origin = place.arrival(job).origin
    until(place.log)
    place.cluster.kill_controller()
    place.cluster.start_controller()
    other = place.submit("echo other >> log")
    assert place.end(key) == (None, FORGOTTEN)
    assert place.arrival(other).origin != origin
    assert origin not in {one.origin for one in place.executor.arrivals()}
    assert place.end(place.start(other, "n2", number=7)) == (0, None)
    assert place.log() == ["begin n1", "other"]


@pytest.mark.slow
def test_an_end_that_slurm_forgets(place: HoldingPlace) -> None:
    """A slurmctld that crashes within seconds of a job's end has it wait again; one that a user
    requeues does so, too, and is another matter."""
    job = place.submit(WAITS)
    key = place.start(job)
    until(place.log)
    place.cluster.until_saved()
    (place.folder / "go").touch()
    assert place.end(key) == (0, None)
    ended_s = place.see(key).ended_s
    assert ended_s is not None
    origin = place.arrival(job).origin
    assert not place.executor.forgot_end(origin, ended_s)
    place.cluster.kill_controller()
    place.cluster.start_controller()
    until(lambda: place.arrival(job).ready)
    assert place.executor.forgot_end(origin, ended_s)
    place.executor.withdraw(origin)
    until(lambda: place.arrival(job).cancelled)
    assert place.log() == ["begin n1"]
    again = place.submit("true")
    key = place.start(again, number=3)
    assert place.end(key) == (0, None)
    assert place.arrival(again).gone
    place.cluster.as_user(NOBODY, "scontrol", "requeue", again)
    until(lambda: place.arrival(again).ready)
    assert not place.executor.forgot_end(place.arrival(again).origin, place.see(key).ended_s or 0.0)


@pytest.mark.slow
def test_a_time_limit(place: HoldingPlace) -> None:
    """Slurm signals it, and what saves then goes on; what does not has failed."""
    saves = place.submit(SAVES, "--time=1")
    fails = place.submit("exec sleep 600", "--time=1")
    keys = [place.start(job, node) for job, node in ((saves, "n1"), (fails, "n2"))]
    until(lambda: all(place.see(key).state is AttemptState.ENDED for key in keys), 200)
    assert place.end(keys[0]) == (85, None)
    assert place.end(keys[1]) == (-15, "its job's time limit in Slurm was reached")
    assert place.arrival(saves).gone is None
    assert place.arrival(fails).gone == "its time limit in Slurm was reached"
