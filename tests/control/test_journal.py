"""The journal: what is written stays, damage is seen, and a disk that is full or not writable stops
everything."""

import os
import sqlite3
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import Job, Mode, Slot
from optsched.control.journal.events import (
    KINDS,
    AttemptEnded,
    Claim,
    Noted,
    RoundDecided,
    StartIntended,
    StopIntended,
    Submitted,
    Why,
    dump_event,
    load_event,
)
from optsched.control.journal.journal import Journal, JournalError, RoundEntry
from optsched.control.journal.log import sentence
from optsched.control.submission import Submission
from optsched.executors.base import Progress

MODE = Mode(gpus=2, gpu_type="a", cpus_per_gpu=4)
PLACE = (Slot(node="n0", gpus=2, cpus=8),)
SOME = [
    Submitted(
        submission=Submission(
            job=Job(id="a", gpus=2, duration_s=5.0, after=("b",)),
            argv=("x", "y z"),
            directory="/d",
            environment={"A": "b=c"},
            user_id=1000,
            total_steps=7,
            estimate="as others",
            hold=True,
        )
    ),
    RoundDecided(round=3, claims=(Claim(job="a", mode=MODE, placement=PLACE),), stay=("b", "c")),
    StartIntended(job="a", number=1, mode=MODE, placement=PLACE, work_s=5.0, rate=0.5, setup_s=0.0),
    AttemptEnded(
        job="a",
        number=1,
        exit_status=-9,
        left_s=0.0,
        progress=Progress(step=3, at_s=9.5),
        reason="é\n'\"",
    ),
    Noted(text=""),
]
ROUND = RoundEntry(
    number=1, at_s=5.0, jobs=2, value=3.0, bound=4.0, wall_s=0.1, solver="price", fallback=None
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def filled(path: Path, times: int = 1) -> None:
    journal = Journal(path)
    for i in range(times):
        journal.append(float(i), SOME)
    journal.close()


def test_every_kind_of_event_comes_back() -> None:
    for event in SOME:
        assert load_event(type(event).__name__, dump_event(event)) == event
    assert {type(event).__name__ for event in SOME} <= set(KINDS)


@pytest.mark.parametrize("why", get_args(Why))
def test_every_stop_is_told(why: Why) -> None:
    told = sentence(StopIntended(job="a", number=1, why=why, grace_s=90.0))
    assert told is not None and told.startswith("a: ") and told.endswith("save within 1 min 30 s")


@given(st.text(max_size=50), st.floats(0, 1e10), st.integers(1, 2**60))
def test_any_text_and_number_comes_back(text: str, seconds: float, number: int) -> None:
    event = AttemptEnded(job="a", number=number, left_s=seconds, reason=text)
    assert load_event("AttemptEnded", dump_event(event)) == event


def test_what_is_appended_is_read_in_order(path: Path) -> None:
    filled(path, 3)
    journal = Journal(path, read_only=True)
    entries = list(journal.entries())
    assert [entry.number for entry in entries] == list(range(1, 16))
    assert [entry.event for entry in entries] == SOME * 3
    assert journal.last_s() == 2.0


def test_a_round_and_its_events_are_written_together(path: Path) -> None:
    journal = Journal(path)
    entry = ROUND
    journal.add_round(entry, "instance", "round", [SOME[1]])
    with pytest.raises(JournalError, match="cannot be written"):
        journal.add_round(entry, "again", "again", [SOME[4]])
    journal.close()
    again = Journal(path)
    assert again.rounds() == (entry,) and again.last_round() == 1 and again.last == 1
    assert again.round_files(1) == ("instance", "round")
    assert entry.gap == pytest.approx(1 / 3)
    with pytest.raises(JournalError, match="it has no round 2"):
        again.round_files(2)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET at_s = 0 WHERE number = 1",
        "DELETE FROM events WHERE number = 1",
        "UPDATE rounds SET value = 0",
        "DELETE FROM events",
    ],
)
def test_it_is_append_only(path: Path, statement: str) -> None:
    filled(path)
    Journal(path).add_round(ROUND, "", "", [])
    with sqlite3.connect(path) as file, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        file.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = replace(body, 'x', 'z') WHERE number = 1",
        "UPDATE events SET at_s = 7 WHERE number = 2",
        "DELETE FROM events WHERE number = 3",
        "UPDATE events SET kind = 'Held' WHERE number = 5",
    ],
)
def test_a_change_is_seen(path: Path, statement: str) -> None:
    filled(path)
    with sqlite3.connect(path) as file:
        file.execute("DROP TRIGGER events_stay")
        file.execute("DROP TRIGGER events_last")
        file.execute(statement)
    with pytest.raises(JournalError, match="is damaged"):
        list(Journal(path).entries())


def test_a_damaged_page_is_seen(path: Path) -> None:
    filled(path, 400)
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    for at in range(8192, len(data), 4096):
        data[at : at + 200] = bytes(200)
    path.write_bytes(data)
    with pytest.raises(JournalError, match="is damaged"):
        list(Journal(path).entries())


def test_a_damaged_round_is_told(path: Path) -> None:
    journal = Journal(path)
    journal.add_round(ROUND, "instance", "round", [])
    with sqlite3.connect(path) as file:
        file.execute("DROP TRIGGER rounds_stay")
        file.execute("UPDATE rounds SET round = zeroblob(20)")
    with pytest.raises(JournalError, match=r"is damaged \(round \d+ cannot be read"):
        journal.round_files(ROUND.number)


def test_a_damaged_layout_is_told(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes().replace(b"NOT NULL", b"NOT NUL\xcc", 1))
    with pytest.raises(JournalError, match="is damaged"):
        Journal(path)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", ["", "-wal"])
def test_a_pipe_is_not_waited_for(path: Path, name: str, read_only: bool) -> None:
    if name:
        filled(path)
        for beside in path.parent.glob(f"{path.name}-*"):
            beside.unlink()
    os.mkfifo(f"{path}{name}")
    with pytest.raises(JournalError, match="is no file"):
        Journal(path, read_only=read_only)


@pytest.mark.parametrize("content", [b"x" * 5000, b"SQLite format 3\0" + b"\0" * 4080])
def test_what_is_no_journal(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"is damaged|is no optsched-journal"):
        Journal(path)


def test_another_database_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE about (format TEXT)")
        file.execute("INSERT INTO about VALUES ('other')")
    with pytest.raises(JournalError, match="is no optsched-journal/1"):
        Journal(path)


def test_there_is_none(path: Path) -> None:
    with pytest.raises(JournalError, match="there is none"):
        Journal(path, read_only=True)
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root")
def test_a_disk_that_becomes_read_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], check=False
    ).returncode:
        pytest.skip("a disk cannot be mounted here")
    try:
        filled(disk / "journal")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(JournalError, match=r"cannot be (opened|written)"):
            Journal(disk / "journal").append(1.0, SOME)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_and_then_room_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        journal = Journal(disk / "journal")
        event = Noted(text="x" * 1000)
        with pytest.raises(JournalError, match=r"cannot be written: .*full"):
            for _ in range(1000):
                journal.append(1.0, [event])
        last = journal.last
        with pytest.raises(JournalError, match="cannot be written"):
            journal.append(1.0, [Noted(text="y" * 20000)])
        journal.close()
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        again = Journal(disk / "journal")
        assert again.last == last == len(list(again.entries()))
        again.append(2.0, [event])
        assert len(list(again.entries())) == last + 1
        again.close()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
