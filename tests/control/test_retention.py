"""What is dropped of the past, and that what is left can be checked and gone on with."""

import math
import sqlite3
from pathlib import Path

import pytest

from optsched.control.controller import Controller
from optsched.control.journal import journal, retention
from optsched.control.journal.events import Changed, Noted, Pruned, RoundDecided
from optsched.control.journal.journal import Journal, JournalError
from optsched.control.journal.retention import KEPT_ALIKE, Retention
from optsched.control.regret.past import past_rounds
from optsched.control.regret.regret import regret
from optsched.control.settings import RetentionSettings, read_settings
from optsched.errors import InputError

from .hostile import Hostile, told

DAY_S = 86400.0
KEPT = RetentionSettings(rounds="10d", jobs="20d", outputs="5d", profiles="30d")


@pytest.fixture
def lab(tmp_path: Path) -> Hostile:
    """Jobs of 40 days, one a day, and one that waits for the first of them."""
    found = Hostile(tmp_path)
    for _ in range(40):
        done = submit(found)
        found.run(30, turn_s=5.0)
        assert found.controller.state.jobs[done].status == "completed"
        found.clock.at_s += DAY_S
    return found


def submit(lab: Hostile, **more: object) -> str:
    demands = {"gpus": 8, "duration_s": 20.0, "command": f"train --seed {len(lab.names)}", **more}
    return lab.submit(demands, 20.0, 1.0, 0, None)


def drop(lab: Hostile, settings: RetentionSettings = KEPT) -> None:
    Retention(settings).drop(lab.controller)


def numbers(journal: Journal) -> list[int]:
    return [entry.number for entry in journal.entries()]


def test_the_past_is_dropped_and_the_rest_is_checked_as_before(lab: Hostile) -> None:
    before, rounds = numbers(lab.controller.journal), lab.controller.journal.rounds()
    drop(lab)
    state, journal = lab.controller.state, lab.controller.journal
    assert 29 <= len(state.jobs) <= 31  # each its own command: as long as profiles
    left = numbers(journal)
    assert set(left) < {*before, left[-1]} and len(left) < 0.8 * len(before)
    now_s = lab.clock.at_s
    assert {one.number for one in journal.rounds()} == {
        one.number for one in rounds if one.at_s >= now_s - 10 * DAY_S
    }
    lab.restart()
    assert told(lab.controller.state) == told(state)
    lab.controller.record(Noted(text="and so on"))
    drop(lab)
    name = submit(lab)
    lab.run(30)
    assert lab.controller.state.jobs[name].status == "completed"
    lab.restart()


def test_a_job_that_was_changed_is_dropped_whole(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    name = submit(lab)
    lab.change(0, {"weight": 0.5})
    (changed,) = (
        entry.event
        for entry in lab.controller.journal.entries()
        if isinstance(entry.event, Changed)
    )
    lab.run(30, turn_s=5.0)
    lab.clock.at_s += 40 * DAY_S
    drop(lab)
    assert name not in lab.controller.state.jobs
    left = [entry.event for entry in lab.controller.journal.entries()]
    assert not any(isinstance(event, Changed) for event in left)
    lab.controller.record(changed)  # as earlier versions left it behind
    lab.restart()
    assert name not in lab.controller.state.jobs


def journal_of(lab: Hostile) -> Journal:
    return Journal(lab.folder / "journal", read_only=True)


def test_again_and_again_little_is_left(lab: Hostile) -> None:
    """In a journal that goes on for ever nothing grows but what is kept."""
    for _ in range(5):
        lab.clock.at_s += 10 * DAY_S
        lab.run(120, turn_s=30.0)
        drop(lab, RetentionSettings(rounds="1d", jobs="1d", outputs="1d", profiles="1d"))
    assert not lab.controller.state.jobs
    assert len(numbers(lab.controller.journal)) < 40
    with sqlite3.connect(lab.folder / "journal") as file:
        assert (
            file.execute("SELECT count(*) FROM pruned").fetchone()[0]
            <= len(numbers(lab.controller.journal)) + 1
        )
    lab.restart()


def test_jobs_that_are_needed_stay(lab: Hostile) -> None:
    waits = submit(lab, after=("j0",), command=None)
    lab.controller.state.jobs[waits].held = "so that it is not done"
    same = [submit(lab, command="the same") for _ in range(KEPT_ALIKE + 5)]
    lab.run(3000, turn_s=5.0)
    lab.clock.at_s += 25 * DAY_S
    drop(lab)
    assert "j0" in lab.controller.state.jobs
    assert len([name for name in same if name in lab.controller.state.jobs]) == KEPT_ALIKE


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM pruned",
        "UPDATE pruned SET last = last + 1",
        "UPDATE pruned SET chain = 'a'",
        "INSERT INTO pruned VALUES (1000000, 1000001, 'a')",
        "DROP TABLE pruned",
    ],
)
def test_what_is_said_of_it_cannot_be_changed(lab: Hostile, statement: str) -> None:
    drop(lab)
    lab.controller.journal.close()
    with sqlite3.connect(lab.folder / "journal") as file:
        file.execute(statement)
    with pytest.raises(JournalError, match="is damaged"):
        Journal(lab.folder / "journal").entries().__next__()
        list(Journal(lab.folder / "journal").entries())


def test_an_event_that_somebody_took_away_is_seen(lab: Hostile) -> None:
    drop(lab)
    left = numbers(lab.controller.journal)
    lab.controller.journal.close()
    with sqlite3.connect(lab.folder / "journal") as file:
        file.execute("DROP TRIGGER events_last")
        file.execute("DELETE FROM events WHERE number = ?", (left[len(left) // 2],))
    with pytest.raises(JournalError, match="is not what was written"):
        list(Journal(lab.folder / "journal").entries())


def test_it_stays_append_only(lab: Hostile) -> None:
    drop(lab)
    with (
        sqlite3.connect(lab.folder / "journal") as file,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        file.execute("DELETE FROM events")


def test_a_reader_sees_all_of_it_while_it_is_dropped(lab: Hostile) -> None:
    reading = journal_of(lab).entries()
    next(reading)
    drop(lab)
    assert len(list(reading)) > len(numbers(lab.controller.journal))


def test_what_looks_back_says_what_was_dropped(lab: Hostile) -> None:
    drop(lab)
    journal = lab.controller.journal
    with pytest.raises(
        InputError, match=r"it has no round 1 any more: those decided before .* were dropped"
    ):
        list(past_rounds(journal, 1))
    with pytest.raises(InputError, match="it has no round 100000; `optsched rounds` lists them"):
        list(past_rounds(journal, 100000))
    assert len(list(past_rounds(journal))) == len(journal.rounds())
    found = regret(journal)
    assert found.kept_s == lab.clock.at_s - 10 * DAY_S == found.from_s
    assert 8 <= found.jobs <= 10
    with pytest.raises(InputError, match="jobs or rounds were dropped"):
        regret(journal, from_s=0.0)


def test_what_is_kept_for_ever_stays(lab: Hostile) -> None:
    for_ever = RetentionSettings(
        rounds="forever", jobs="forever", outputs="forever", profiles="forever"
    )
    before = lab.controller.journal.last
    drop(lab, for_ever)
    assert lab.controller.journal.last == before and lab.controller.journal.last_pruned() is None


def test_a_turn_drops_what_is_due(lab: Hostile) -> None:
    lab.controller.retention = Retention(KEPT, first_s=0.0)
    lab.run(3)
    pruned = [
        entry.event for entry in lab.controller.journal.entries() if isinstance(entry.event, Pruned)
    ]
    assert len(pruned) == 1 and not lab.bugs


def test_outputs_of_finished_jobs_are_removed(lab: Hostile, tmp_path: Path) -> None:
    folder = tmp_path / "attempts"
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("j0", "j39"):
        (folder / name / "1").mkdir(parents=True)
    (folder / "j1").symlink_to(outside)
    settings = lab.controller.settings.model_copy(update={"state": tmp_path})
    lab.controller.settings = settings
    drop(lab)
    assert not (folder / "j0").exists() and (folder / "j39").exists() and outside.exists()


def test_a_journal_of_before_is_gone_on_with(tmp_path: Path) -> None:
    """Without the last event of a round, and where nothing was ever dropped."""
    lab = Hostile(tmp_path)
    lab.run(3)
    lab.clock.at_s += 400 * DAY_S
    drop(lab)
    lab.restart()
    assert isinstance(lab.controller, Controller)
    assert not [
        one for one in lab.controller.journal.entries() if isinstance(one.event, RoundDecided)
    ]


def test_the_table_of_cluster_toml(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('format = "optsched-cluster/1"\n[retention]\nrounds = "2d"\njobs = "forever"\n')
    found = read_settings(path).retention
    assert (found.rounds, found.jobs, found.outputs) == (2 * DAY_S, math.inf, 90 * DAY_S)
    path.write_text('format = "optsched-cluster/1"\n[retention]\nrounds = "never"\n')
    with pytest.raises(InputError, match=r"retention.rounds: .*'never' is not a duration"):
        read_settings(path)


def test_much_is_dropped_bit_by_bit(lab: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_JOBS", 3)
    monkeypatch.setattr(retention, "MOST_ROUNDS", 4)
    turns = 1
    while Retention(KEPT).drop(lab.controller):
        turns += 1
    assert turns >= 4
    state, journal = lab.controller.state, lab.controller.journal
    assert 29 <= len(state.jobs) <= 31
    assert min(entry.at_s for entry in journal.rounds()) >= lab.clock.at_s - 10 * DAY_S
    lab.restart()


def test_the_next_turn_comes_soon_where_there_is_more(
    lab: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_JOBS", 3)
    monkeypatch.setattr(retention, "AGAIN_S", 0.0)
    lab.controller.retention = Retention(KEPT, first_s=0.0)
    lab.run(10)
    assert len(lab.controller.state.jobs) <= 31 and not lab.bugs


def test_rounds_take_no_more_than_they_may(lab: Hostile) -> None:
    before = lab.controller.journal.rounds()
    for_ever = RetentionSettings(rounds="forever", jobs="forever", outputs="forever")
    sizes = [sum(map(len, lab.controller.journal.round_files(one.number))) for one in before]
    drop(lab, for_ever)
    assert lab.controller.journal.rounds() == before
    drop(lab, for_ever.model_copy(update={"rounds_gib": sum(sizes) / 2**30 / 10}))
    left = lab.controller.journal.rounds()
    assert 0 < len(left) < len(before) and left == before[-len(left) :]
    drop(lab, for_ever.model_copy(update={"rounds_gib": 1e-12}))
    assert lab.controller.journal.rounds() == before[-1:]


def size_of(lab: Hostile) -> int:
    lab.controller.journal._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return (lab.folder / "journal").stat().st_size


def fill_and_drop(lab: Hostile) -> None:
    """Notes of 20 MB, dropped again."""
    for _ in range(200):
        lab.controller.record(*(Noted(text="x" * 10_000) for _ in range(10)))
    lab.clock.at_s += 400 * DAY_S
    lab.run(1)


def test_what_is_dropped_is_given_back_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "ROOM_BYTES", 1 << 20)
    monkeypatch.setattr(journal, "MOST_PAGES", 1000)
    lab = Hostile(tmp_path)
    fill_and_drop(lab)
    full = size_of(lab)
    turns = 1
    while Retention(KEPT).drop(lab.controller):
        turns += 1
    assert turns >= 3 and full > 20e6 and size_of(lab) < 4e6
    lab.restart()


def test_a_file_of_an_earlier_version_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "ROOM_BYTES", 1 << 20)
    lab = Hostile(tmp_path)
    lab.controller.journal.close()
    with sqlite3.connect(lab.folder / "journal") as file:
        file.execute("PRAGMA auto_vacuum=NONE")
        file.execute("VACUUM")
    file.close()
    lab.restart()
    fill_and_drop(lab)
    assert not Retention(KEPT).drop(lab.controller) and size_of(lab) > 20e6
    lab.restart()
    assert size_of(lab) < 1e6
    lab.run(5)
    lab.restart()


def test_nothing_is_remembered_of_attempts_that_are_gone(tmp_path: Path) -> None:
    lab = Hostile(tmp_path)
    for _ in range(12):
        submit(lab, gpus=1)
    lab.run(100)
    assert not lab.controller.state.open and not lab.controller._forgotten
