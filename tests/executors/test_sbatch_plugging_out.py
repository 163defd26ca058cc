"""What a cluster does whose controller has died, and how its jobs are given back to Slurm."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched.cli import main
from optsched.control.opening import alone
from optsched.errors import InputError
from optsched.executors.base import AttemptState
from optsched.executors.sbatch.heartbeat import Heartbeat
from optsched.testing.executors import until
from tests.live.slurm_cluster import SlurmCluster

from .holding_place import NOBODY, SAVES, WAITS, HoldingPlace

TOML = """
format = "optsched-cluster/1"
executor = "slurm"
shared = "{cluster.shared}"
[slurm]
conf = "{cluster.conf}"
partition = "optsched"
sbatch = true
heartbeat = "{cluster.heartbeat}"
"""


@pytest.fixture
def place(holding: SlurmCluster) -> Iterator[HoldingPlace]:
    with tempfile.TemporaryDirectory(prefix="optsched-place-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        made = HoldingPlace(Path(name), holding)
        yield made
        made.clear()


def silent(cluster: SlurmCluster) -> None:
    """As long after the controller has died."""
    cluster.heartbeat.write_text(f"{int(time.time()) - 500}\n")


def test_without_a_sign_of_life_slurm_starts_jobs(place: HoldingPlace) -> None:
    silent(place.cluster)
    stale = place.submit("true")
    place.cluster.heartbeat.unlink()
    absent = place.submit("true")
    place.cluster.heartbeat.write_text("nonsense\n")
    damaged = place.submit("true")
    for job in (stale, absent, damaged):
        until(lambda job=job: place.says(job, "%T") == "COMPLETED")
    place.reopen()
    held = place.submit("true")
    assert place.arrival(held).ready and not {stale, absent, damaged} & {
        one.name for one in place.arrivals()
    }


def test_roots_release_always_works(place: HoldingPlace) -> None:
    """Also of a job that has run, and while a controller looks on."""
    fresh, again = place.submit(WAITS), place.submit(SAVES)
    key = place.start(again, "n2")
    place.reach(key, AttemptState.RUNNING)
    until(place.log)
    place.executor.checkpoint_stop(key, 30.0)
    assert place.end(key) == (85, None)
    for job in (fresh, again):
        assert place.arrival(job).ready
        place.cluster.slurm("scontrol", "release", job)
        until(lambda job=job: place.executor.observe() and place.says(job, "%T") == "RUNNING")
        gone = {one.name: one.gone for one in place.arrivals()}
        assert gone[job] == "it is left to Slurm"


def test_a_controllers_own_release_is_none_of_roots(place: HoldingPlace) -> None:
    """Saved, resumed, and resumed again; never in the second in which the last run ended, for which
    Slurm would fail the job."""
    job = place.submit(SAVES)
    stopped_s = 0
    for number in range(1, 6):
        key = place.start(job, "n1", number=number)
        seen = place.reach(key, AttemptState.RUNNING)
        assert seen.started_s is not None and seen.started_s > stopped_s
        until(
            lambda number=number: len([line for line in place.log() if "begin" in line]) == number
        )
        stopped_s = int(time.time())
        place.executor.checkpoint_stop(key, 30.0)
        assert place.end(key) == (85, None)
    assert place.arrival(job).ready


def test_all_are_given_back(place: HoldingPlace) -> None:
    file = place.folder / "cluster.toml"
    file.write_text(TOML.format(cluster=place.cluster))
    running, waiting, kept = (place.submit(WAITS) for _ in range(3))
    key = place.start(running, "n3")
    place.reach(key, AttemptState.RUNNING)
    place.cluster.as_user(NOBODY, "scontrol", "hold", kept)
    until(lambda: place.arrival(kept).held)
    words = ["release-all", "--config", str(file)]
    with alone(file.parent / "state"):
        refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    place.executor.close()
    silent(place.cluster)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} == {running, waiting, kept}
    until(lambda: place.says(waiting, "%T") == "RUNNING")
    assert place.says(kept, "%T %r") == "PENDING JobHeldUser"
    place.cluster.as_user(NOBODY, "scontrol", "release", kept)
    (place.folder / "go").touch()
    for job in (running, waiting, kept):
        until(lambda job=job: place.says(job, "%T") == "COMPLETED")
    assert "no job is held" in CliRunner().invoke(main, words).stdout
    place.executor = place.open()
    assert place.end(key) == (0, None)
    assert not [one for one in place.arrivals() if one.gone is None]


def test_a_heartbeat_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"slurm\.heartbeat: .* cannot be written"):
        Heartbeat(tmp_path / "file" / "beat")
    beat = Heartbeat(tmp_path / "new" / "beat")
    assert abs(int(beat.path.read_text()) - time.time()) < 5
    assert (
        beat.path.stat().st_mode & 0o444 == 0o444
        and beat.path.parent.stat().st_mode & 0o055 == 0o055
    )
    assert [path.name for path in beat.path.parent.iterdir()] == ["beat"]
    (tmp_path / "private").mkdir(mode=0o700)
    Heartbeat(tmp_path / "private" / "beat")
    assert (
        tmp_path / "private"
    ).stat().st_mode & 0o777 == 0o700  # a folder that was there is not opened


def test_release_all_is_for_slurm(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('format = "optsched-cluster/1"\n')
    done = CliRunner().invoke(main, ["release-all", "--config", str(file)])
    assert done.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.toml"]
