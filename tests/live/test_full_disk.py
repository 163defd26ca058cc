"""A disk that fills up under the journal and the controller."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.control import looking as looking_module
from optsched.control.api import client
from optsched.control.api.client import NoControllerError
from optsched.control.journal.events import Noted
from optsched.control.journal.journal import Journal, JournalError
from tests.live.lab import lab
from tests.live.running import Run
from tests.small_disk import MIB, fill, small_disk

TOML = """
format = "optsched-cluster/1"
keep_free_gib = 0.0078125
[[nodes]]
name = "n0"
gpus = 4
emulate = true
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as folder:
        yield folder


# ------------------------------------------------------------------------------------------------
# the journal


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
    assert [
        int(entry.event.text.split()[0])
        for entry in again.entries()
        if isinstance(entry.event, Noted)
    ] == [*range(written)]
    again.keep_room()  # what was used up is taken anew
    fill(disk)
    for i in range(written):
        again.append(float(i), [Noted(text="x" * 1500)])
    again.close()


def test_without_room_of_its_own_it_cannot(disk: Path) -> None:
    journal = Journal(disk / "journal")
    fill(disk)
    with pytest.raises(JournalError, match="full"):
        for i in range(2000):
            journal.append(float(i), [Noted(text="x" * 1500)])
    journal.close()


# ------------------------------------------------------------------------------------------------
# the controller


def test_a_full_disk_stops_starts_and_not_answers(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(
        NoControllerError, match="no job is taken now: the disk of the state folder"
    ):
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
        monkeypatch.setattr(looking_module, "short_of_disk", lambda settings: "there is no room")
        here.submit("job", "/bin/true")
        for _ in range(5):
            here.controller.step()
        assert here.job("job").status == "waiting" and not here.job("job").attempts
        monkeypatch.setattr(looking_module, "short_of_disk", lambda settings: None)
        here.until_finished("job")
        texts = [
            entry.event.text
            for entry in here.controller.journal.entries()
            if isinstance(entry.event, Noted)
        ]
        assert texts == ["there is no room", "the disk has room again; jobs are started again"]
