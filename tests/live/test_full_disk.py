"""What jobs print, and disks that fill up."""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.control import controller as controller_module
from optsched.control.api import client
from optsched.control.api.client import NoController
from optsched.control.events import Noted
from optsched.control.journal import Journal, JournalFault
from optsched.executors.local.spec import Kept
from tests.executors.conftest import Host, until
from tests.live.lab import lab
from tests.live.running import Run

MIB = 1 << 20
TOML = """
format = "optsched-cluster/1"
keep_free_gib = 0.0078125
[[nodes]]
name = "n0"
gpus = 4
emulate = true
"""
PRINT = "import os, sys; data = b'x' * 65536; [os.write(1, data) for _ in range(int(sys.argv[1]) * 16)]"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """64 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode == 0
    if not mounted:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take every byte that is left."""
    path = folder / "filler"
    for piece in (MIB, 4096, 1):
        try:
            with open(path, "ab", buffering=0) as file:
                while file.write(b"x" * piece) == piece:
                    pass
        except OSError:
            continue
    return path


# ------------------------------------------------------------------------------------------------ what jobs print


@pytest.fixture
def sparing(tmp_path: Path) -> Iterator[Host]:
    """A host that keeps 1 MiB of each stream."""
    host = Host(tmp_path, kept=Kept(limit_bytes=MIB))
    yield host
    host.clear()


def test_what_is_printed_beyond_the_limit_is_dropped_and_the_job_goes_on(sparing: Host) -> None:
    key = sparing.start("job", sys.executable, "-c", f"{PRINT}; os.write(2, b'done'); sys.exit(7)", "5")
    seen = sparing.end(key)
    assert (seen.exit_status, seen.reason) == (7, None)
    text = sparing.printed(key)
    assert text[:MIB] == "x" * MIB
    said = f"{4 * MIB} bytes that were printed are not here: 1 MiB are kept at most"
    assert text[MIB:] == f"\noptsched: {said}\n"
    assert Path(seen.output or "").with_name("stderr").read_text() == "done"


def test_what_is_just_within_the_limit_is_kept_whole(sparing: Host) -> None:
    key = sparing.start("job", sys.executable, "-c", PRINT, "1")
    assert sparing.end(key).exit_status == 0 and sparing.printed(key) == "x" * MIB


def test_output_is_there_while_a_job_runs_and_of_what_it_left_behind(sparing: Host) -> None:
    key = sparing.shell("job", "echo one; (sleep 0.3; echo three) & until test -e go; do sleep 0.02; done; echo two")
    until(lambda: sparing.printed(key).startswith("one\n"))
    (sparing.folder / "go").touch()
    sparing.end(key)
    assert sorted(sparing.printed(key).split()) == ["one", "three", "two"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_other_users_open_their_standard_output(tmp_path: Path) -> None:
    for folder in (*list(tmp_path.parents)[:-2], tmp_path):
        folder.chmod(folder.stat().st_mode | 0o011)
    host = Host(tmp_path)
    script = "echo a > /dev/stdout; echo b >> /dev/stderr; echo c | tee /dev/stderr"
    key = host.shell("job", script, user=pwd.getpwnam("nobody").pw_uid, directory="/")
    seen = host.end(key)
    assert seen.exit_status == 0 and host.printed(key) == "a\nc\n"
    assert Path(seen.output or "").with_name("stderr").read_text() == "b\nc\n"
    host.clear()


def test_outputs_on_a_disk_that_is_full(tmp_path: Path, disk: Path) -> None:
    """The state folder is on another one: nothing but what is printed is lost."""
    host = Host(tmp_path / "state", kept=Kept(folder=disk))
    before = host.start("before", sys.executable, "-c", PRINT, "1")
    assert host.end(before).output == str(disk / "before" / "1" / "n0" / "stdout")
    host.executor.forget(before)
    assert (disk / "before" / "1" / "n0" / "stdout").stat().st_size == MIB  # is there for its user
    key = host.start("job", sys.executable, "-c", f"{PRINT}; sys.exit(7)", "100")
    assert (host.end(key).exit_status, host.see(key).reason) == (7, None)
    assert 56 * MIB < Path(host.see(key).output or "").stat().st_size < 64 * MIB
    host.clear()


# ------------------------------------------------------------------------------------------------ the journal


def test_the_journal_can_be_written_on_a_disk_without_a_free_byte(disk: Path) -> None:
    journal = Journal(disk / "journal")
    journal.keep_room()
    filler = fill(disk)
    with pytest.raises(OSError, match="No space"), open(disk / "other", "w") as file:
        file.write("x" * 10000)
    written = 4 * MIB // 2000
    for i in range(written):
        journal.append(float(i), [Noted(text=f"{i} " + "x" * 1500)])
    journal.close()
    filler.unlink()
    again = Journal(disk / "journal")
    assert [int(entry.event.text.split()[0]) for entry in again.entries() if isinstance(entry.event, Noted)] == [
        *range(written)
    ]
    again.keep_room()  # what was used up is taken anew
    fill(disk)
    for i in range(written):
        again.append(float(i), [Noted(text="x" * 1500)])
    again.close()


def test_without_room_of_its_own_it_cannot(disk: Path) -> None:
    journal = Journal(disk / "journal")
    fill(disk)
    with pytest.raises(JournalFault, match="full"):
        for i in range(2000):
            journal.append(float(i), [Noted(text="x" * 1500)])
    journal.close()


# ------------------------------------------------------------------------------------------------ the controller


def test_a_full_disk_stops_starts_and_not_answers(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", 0.5)
    (disk / "cluster.toml").write_text(TOML)
    run = Run(disk)
    sleep = {"argv": ["sh", "-c", "echo hello; exec sleep 600"], "directory": "/", "gpus": 1}
    run.client.post("/v1/jobs", {**sleep, "name": "runs"})
    ends = ["sh", "-c", f"until test -e {disk}/go; do sleep 0.1; done"]
    run.client.post("/v1/jobs", {**sleep, "name": "ends", "argv": ends})
    run.until(lambda: run.job("runs")["status"] == run.job("ends")["status"] == "running")
    run.client.post("/v1/jobs", {**sleep, "name": "waits", "hold": True})
    (disk / "go").touch()
    filler = fill(disk)
    run.client.post("/v1/jobs/waits/release")
    run.until(lambda: run.job("ends")["status"] == "completed")  # it is in the journal
    run.until(lambda: "nothing is started below" in str(run.job("waits")["reason"]))
    assert run.job("waits")["status"] == "waiting"
    said = " ".join(run.client.get("/v1/jobs/waits/explain")["sentences"])
    assert "No job is started now: the disk of the state folder has" in said
    assert run.client.get("/v1/jobs/runs/output")["text"] == "hello\n"
    with pytest.raises(NoController, match="no job is taken now: the disk of the state folder"):
        run.client.post("/v1/jobs", {**sleep, "name": "more"})
    run.client.post("/v1/jobs/runs/cancel")
    run.until(lambda: run.job("runs")["status"] == "cancelled")
    assert run.job("waits")["status"] == "waiting"
    filler.unlink()
    run.until(lambda: run.job("waits")["status"] == "running")
    log = run.log.read_text()
    assert "nothing is started below" in log and "the disk has room again" in log
    run.close()


def test_below_the_reserve_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, where no file system can be mounted."""
    with lab(tmp_path) as here:
        monkeypatch.setattr(controller_module, "short_of_disk", lambda settings: "there is no room")
        here.submit("job", "/bin/true")
        for _ in range(5):
            here.controller.step()
        assert here.job("job").status == "waiting" and not here.job("job").attempts
        monkeypatch.setattr(controller_module, "short_of_disk", lambda settings: None)
        here.until_finished("job")
        texts = [entry.event.text for entry in here.controller.journal.entries() if isinstance(entry.event, Noted)]
        assert texts == ["there is no room", "the disk has room again; jobs are started again"]
