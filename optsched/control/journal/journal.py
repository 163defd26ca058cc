"""Every fact and intention, written before anything is done about it, and every round."""

import gzip
import hashlib
import json
import math
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, fields
from datetime import datetime
from itertools import starmap
from pathlib import Path
from typing import Any

from ...errors import OptschedError
from ...frozen import frozen, record
from ...model import Use
from . import ledger
from .events import Event, Pruned, dump_event, load_event

FORMAT = "optsched-journal/1"
LAST_TRIGGER = """CREATE TRIGGER events_last BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"""
LAYOUT = f"""
CREATE TABLE about (format TEXT NOT NULL);
CREATE TABLE events (
  number INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, chain TEXT NOT NULL
);
CREATE TABLE rounds (
  number INTEGER PRIMARY KEY, at_s REAL NOT NULL, jobs INTEGER NOT NULL, value REAL NOT NULL, bound REAL NOT NULL,
  wall_s REAL NOT NULL, solver TEXT NOT NULL, fallback TEXT, instance BLOB NOT NULL, round BLOB NOT NULL
);
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
{LAST_TRIGGER};
CREATE TRIGGER rounds_stay BEFORE UPDATE ON rounds BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
"""  # noqa: E501
PRUNED = """CREATE TABLE IF NOT EXISTS pruned (
  first INTEGER PRIMARY KEY, last INTEGER NOT NULL, chain TEXT NOT NULL)"""
"""Runs of events that were dropped, with the hash of the last of each, from which the next goes
on."""
DROP_TRIGGER = "DROP TRIGGER events_last"
DROPPED = """
SELECT number, chain FROM events
WHERE number <= max(:jobs_until, :late_until, :rounds_until) AND (
  number <= :jobs_until AND (
    kind IN ('Noted', 'ControllerStarted', 'Pruned') OR kind = 'NodeSeen' AND number NOT IN (
      SELECT max(number) FROM events WHERE kind = 'NodeSeen' AND number <= :jobs_until
      GROUP BY json_extract(body, '$.node')))
  OR number <= :late_until AND CASE
    WHEN kind IN ('Submitted', 'Changed') THEN json_extract(body, '$.submission.job.id')
    ELSE json_extract(body, '$.job') END IN (SELECT value FROM json_each(:jobs))
  OR number <= :rounds_until AND kind = 'RoundDecided'
    AND number < (SELECT max(number) FROM events WHERE kind = 'RoundDecided'))
"""
"""Number and hash of events that are dropped: notes and what was said of nodes, where later events
replace it, all of some jobs, and rounds but for the last one, each up to a number."""
LATE_S = 3600.0
"""So long after a job has finished no event of it is written, and times never fall by so much from
one to the next."""
BUSY_S = 5.0
"""How long to wait for a reader that holds the file."""

ROOM_BYTES = 8 << 20
"""So much is kept for events when the disk is full. The log beside the file has once been as long,
and stays so."""

MOST_LOG_BYTES = 4 * ROOM_BYTES
"""How long the log beside the file may stay."""
MOST_PAGES = 5000
"""So many pages are given back to the disk at once."""
INCREMENTAL = 2
"""What SQLite calls a file whose free pages can be given back one by one."""

Row = tuple[int, float, str, str, str]
"""Number, time, kind, body and hash of an event."""
INSERT_EVENTS = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"


class JournalError(OptschedError):
    """The journal cannot be read or written; whoever meets this starts nothing any more."""


@frozen
class Entry:
    """One event, its number and when it was written (Unix time)."""

    number: int
    at_s: float
    event: Event


@record
class RoundEntry:
    """One round as it is listed; the value is maximised, `bound` is what it could be at most.
    `wall_s` is that of the turn, from looking at nodes to this write."""

    number: int
    at_s: float
    jobs: int
    value: float
    bound: float
    wall_s: float
    solver: str
    fallback: str | None

    @property
    def gap(self) -> float:
        """Return (bound - value) / |value|."""
        if self.bound <= self.value:
            return 0.0
        return (self.bound - self.value) / abs(self.value) if self.value else float("inf")


class Journal:
    """An SQLite file in write-ahead mode with one writer; readers may look at any time.

    Each event carries a hash over itself and the one before it, so that a change anywhere is seen
    when it is read, and none is written that could not be read again (ValueError). Raises
    JournalError from every method where the file is damaged, not writable, deleted or replaced, or
    the disk is full.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self._read_only, self._keeps_room = path, read_only, False
        with self._faults("opened"):
            for own in _files_of(path):
                if own.exists() and not own.is_file():  # opening a pipe would wait for ever
                    raise JournalError(f"journal {own}: is no file; put the journal there again")
            if read_only:
                if not path.exists():
                    raise JournalError(
                        f"journal {path}: there is none; it is made by `optsched run`"
                    )
                if not os.access(path, os.R_OK):
                    raise JournalError(
                        f"journal {path}: only the user whose controller writes it, and root, "
                        "may read it; ask them"
                    )
                self._file = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S
                )
            else:
                _close_to_others(path)
                self._file = sqlite3.connect(
                    path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
                )
                self._file.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file
                self._file.execute("PRAGMA journal_mode=WAL")
                self._file.execute(f"PRAGMA journal_size_limit={MOST_LOG_BYTES}")
                self._file.execute("PRAGMA synchronous=FULL")
            self._check(new=not read_only)
            if not read_only:
                self._shrink()
            last = self._file.execute(
                "SELECT number, chain FROM events ORDER BY number DESC LIMIT 1"
            ).fetchone()
            self._file_ids = {} if read_only else self._identities()
        self.last: int = 0 if last is None else last[0]
        self._chain: str = "" if last is None else last[1]

    def check_there(self) -> None:
        """Raise JournalError where the files that are written to are no longer those of this name:
        what would be written down from now on, nobody would find."""
        seen = self._identities()
        if any(known is not None and seen[name] != known for name, known in self._file_ids.items()):
            raise JournalError(
                f"journal {self.path}: was deleted or replaced while it was written to; put back "
                "what was there, or begin anew once no job of it runs any more"
            )

    def _identities(self) -> dict[str, tuple[int, int] | None]:
        identities: dict[str, tuple[int, int] | None] = {}
        for name in (str(self.path), f"{self.path}-wal"):
            try:
                about = os.stat(name)
                identities[name] = about.st_dev, about.st_ino
            except OSError:
                identities[name] = None
        return identities

    def append(self, at_s: float, events: Sequence[Event]) -> None:
        """Write events, all or none; when this returns they are on the disk."""
        rows = self._rows(at_s, events)
        if not rows:
            return
        self.check_there()
        with self._faults("written"), self._transaction():
            self._file.executemany(INSERT_EVENTS, rows)
        self._written(rows)

    def add_round(
        self, entry: RoundEntry, instance: str, decided: str, events: Sequence[Event]
    ) -> None:
        """Write a round with its instance file and round file, and the events that follow from it,
        all or none."""
        rows = self._rows(entry.at_s, events)
        self.check_there()
        with self._faults("written"), self._transaction():
            self._file.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*astuple(entry), _packed(instance), _packed(decided)),
            )
            self._file.executemany(INSERT_EVENTS, rows)
        self._written(rows)
        if self._keeps_room:
            self.keep_room()  # rounds use it up

    def entries(self) -> Iterator[Entry]:
        """Yield events in order; each is checked against its hash, and what was dropped against
        what is said of it."""
        with self._faults("read"), self._reading():
            pruned, expected, chain = self._pruned(), 0, ""
            dropped = {first: (last, hashed) for first, last, hashed in pruned}
            told: tuple[str | None, str | None] = (None, None)
            rows = self._file.execute("SELECT * FROM events ORDER BY number")
            for number, at_s, kind, body, kept in rows:
                expected += 1
                if number != expected and expected in dropped:
                    last, chain = dropped[expected]
                    expected = last + 1
                chain = _chained(chain, number, at_s, kind, body)
                if chain != kept or number != expected:
                    raise self._damaged(f"event {expected} is not what was written")
                try:
                    event = load_event(kind, body)
                except ValueError as error:
                    raise self._damaged(f"event {number} cannot be read: {error}") from None
                if isinstance(event, Pruned):
                    told = event.digest, event.ledger
                yield Entry(number=number, at_s=at_s, event=event)
            there = _digest(pruned) if pruned else None, ledger.digest(self._file)
            if told != there:
                raise self._damaged("what was dropped of it is not what it says")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """See the file as it is now, whatever a controller writes meanwhile."""
        if not self._read_only:
            yield
            return
        self._file.execute("BEGIN")
        try:
            yield
        finally:
            self._file.execute("COMMIT")

    def prune(
        self,
        at_s: float,
        jobs: Collection[str],
        jobs_before_s: float,
        rounds_before_s: float,
        used: ledger.Bill | None = None,
        decayed: tuple[Use, ...] | None = None,
    ) -> Pruned | None:
        """Drop all events of `jobs`, which finished before `jobs_before_s`, what else is out of
        date from before then, and rounds decided before `rounds_before_s` with their events, the
        last one excepted. Return the event that says so, with `decayed`, written with that, all or
        none; None where there is nothing to drop.

        Of each run of events that were dropped the numbers and the last hash stay, from which the
        next event's follows, and the event has a digest of all of these: so what is left can be
        checked as before, and what was dropped is what was meant to be. What the jobs `used` is
        added to the ledger, which stays.
        """
        self.check_there()
        before = self.last_pruned()
        with self._faults("written"), self._transaction():
            self._file.execute(PRUNED)
            limits = {
                "jobs_until": self._number_at(jobs_before_s),
                "late_until": self._number_at(jobs_before_s + LATE_S) if jobs else 0,
                "rounds_until": self._number_at(rounds_before_s),
            }
            names = json.dumps([*jobs])
            gone = self._file.execute(DROPPED, {"jobs": names, **limits}).fetchall()
            last = self._one("SELECT max(number) FROM rounds")
            rounds = self._file.execute(
                "SELECT number FROM rounds WHERE at_s < ? AND number < ?",
                (rounds_before_s, last or 0),
            ).fetchall()
            if not (gone or rounds):
                return None
            self._file.execute(DROP_TRIGGER)
            numbers = [(number,) for number, _ in gone]
            self._file.executemany("DELETE FROM events WHERE number = ?", numbers)
            self._file.execute(LAST_TRIGGER)
            self._file.executemany("DELETE FROM rounds WHERE number = ?", rounds)
            pruned = _merged(
                [*self._pruned(), *((number, number, chain) for number, chain in gone)]
            )
            ledger.add(self._file, used or {})
            self._file.execute("DELETE FROM pruned")
            self._file.executemany("INSERT INTO pruned VALUES (?, ?, ?)", pruned)
            event = Pruned(
                jobs_before_s=_finite(jobs_before_s),
                rounds_before_s=_finite(rounds_before_s),
                jobs=len(jobs),
                rounds=len(rounds),
                events=len(gone),
                digest=_digest(pruned),
                ledger=ledger.digest(self._file),
                uncounted_before_s=None if before is None else before.uncounted_s,
                decayed=decayed,
            )
            rows = self._rows(at_s, [event])
            self._file.executemany(INSERT_EVENTS, rows)
        self._written(rows)
        return event

    def _number_at(self, at_s: float) -> int:
        """Return the number of about the last event before `at_s`."""
        low, high = 0, self.last
        while low < high:
            middle = (low + high + 1) // 2
            seen_s = self._one(
                "SELECT at_s FROM events WHERE number <= ? ORDER BY number DESC LIMIT 1", middle
            )
            low, high = (middle, high) if seen_s is None or seen_s < at_s else (low, middle - 1)
        return low

    def _one(self, query: str, *values: object) -> Any:
        """Return the first value that a query finds, None where that is nothing."""
        row = self._file.execute(query, values).fetchone()
        return None if row is None else row[0]

    def _pruned(self) -> list[tuple[int, int, str]]:
        there = self._one("SELECT count(*) FROM sqlite_master WHERE name = 'pruned'")
        return self._file.execute("SELECT * FROM pruned ORDER BY first").fetchall() if there else []

    def last_pruned(self) -> Pruned | None:
        """Return what was last dropped of the past, if anything ever was."""
        with self._faults("read"):
            body = self._one(
                "SELECT body FROM events WHERE kind = 'Pruned' ORDER BY number DESC LIMIT 1"
            )
        event = None if body is None else load_event("Pruned", body)
        return event if isinstance(event, Pruned) else None

    def used(
        self, first: int, last: int, user: str | None = None
    ) -> list[tuple[ledger.Key, ledger.Sums]]:
        """Return what dropped jobs used on these days, of one user where one is named."""
        with self._faults("read"):
            return [*ledger.rows(self._file, first, last, user)]

    def no_round(self, number: int) -> str:
        """Return why there is no round of that number."""
        pruned = self.last_pruned()
        said = f"journal {self.path}: it has no round {number}"
        if (
            pruned is not None
            and pruned.rounds_before_s is not None
            and 0 < number <= self.last_round()
        ):
            day = datetime.fromtimestamp(pruned.rounds_before_s).strftime("%Y-%m-%d %H:%M")
            return (
                f"{said} any more: those decided before {day} were dropped, as rounds under "
                "[retention] says"
            )
        return f"{said}; `optsched rounds` lists them"

    def rounds(self, most: int | None = None) -> tuple[RoundEntry, ...]:
        """Return rounds in order, with `most` only the last so many."""
        columns = ", ".join(field.name for field in fields(RoundEntry))
        query = f"SELECT {columns} FROM rounds ORDER BY number DESC LIMIT ?"
        with self._faults("read"):
            rows = self._file.execute(query, (-1 if most is None else most,)).fetchall()
        return tuple(starmap(RoundEntry, reversed(rows)))

    def rounds_beyond(self, most_bytes: float) -> float:
        """Return before when rounds were decided which take more than so many bytes together with
        all after them; minus infinity where all take less."""
        query = """SELECT max(at_s) FROM (SELECT at_s, sum(length(instance) + length(round))
            OVER (ORDER BY number DESC) AS taken FROM rounds) WHERE taken > ?"""
        with self._faults("read"):
            at_s = self._one(query, most_bytes)
        return -math.inf if at_s is None else math.nextafter(at_s, math.inf)

    def round_s(self, after: int) -> float | None:
        """Return when the oldest round but `after` was decided."""
        with self._faults("read"):
            at_s = self._one("SELECT at_s FROM rounds ORDER BY number LIMIT 1 OFFSET ?", after)
        return None if at_s is None else float(at_s)

    def round_files(self, number: int) -> tuple[str, str]:
        """Return the instance file and the round file of a round, as text."""
        with self._faults("read"):
            row = self._file.execute(
                "SELECT instance, round FROM rounds WHERE number = ?", (number,)
            ).fetchone()
        if row is None:
            raise JournalError(self.no_round(number))
        try:
            return gzip.decompress(row[0]).decode(), gzip.decompress(row[1]).decode()
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise self._damaged(f"round {number} cannot be read: {error}") from None

    def last_s(self) -> float:
        """Return when the last event was written (Unix time), 0 where there is none."""
        with self._faults("read"):
            return float(self._one("SELECT max(at_s) FROM events") or 0)

    def last_round(self) -> int:
        """Return the number of the last round, 0 where there is none."""
        with self._faults("read"):
            return int(self._one("SELECT max(number) FROM rounds") or 0)

    def size_bytes(self) -> int:
        """Return what the file and the log beside it take of the disk."""
        size = 0
        for name in (str(self.path), f"{self.path}-wal"):
            with suppress(OSError):
                size += os.stat(name).st_size
        return size

    def keep_room(self) -> None:
        """Have room in the file itself from now on: events can be written where the disk has become
        full.

        Nothing is taken where there is little room now: the log beside the file becomes as long.
        """
        self._keeps_room = True
        with self._faults("read"):
            free_bytes = self._one("PRAGMA freelist_count") * self._one("PRAGMA page_size")
            disk = os.statvfs(self.path.parent)
        if free_bytes >= ROOM_BYTES // 2 or disk.f_bavail * disk.f_frsize < 4 * ROOM_BYTES:
            return
        try:
            with self._transaction():
                self._file.execute("CREATE TABLE IF NOT EXISTS room (taken BLOB NOT NULL)")
                self._file.execute("INSERT INTO room VALUES (zeroblob(?))", (ROOM_BYTES,))
            # only what is in the file has its place on the disk
            self._file.execute("PRAGMA wal_checkpoint(FULL)")
            self._file.execute("DELETE FROM room")
        except sqlite3.OperationalError:  # what cannot be written is told when something has to be
            return

    def _shrink(self) -> None:
        """Rewrite a file of an earlier version, which cannot give back what was dropped of it,
        where most of it is free and there is room for that."""
        size_bytes = self._one("PRAGMA page_size") * self._one("PRAGMA page_count")
        free_bytes = self._one("PRAGMA page_size") * self._one("PRAGMA freelist_count")
        disk = os.statvfs(self.path.parent)
        if (
            self._one("PRAGMA auto_vacuum") == INCREMENTAL
            or 2 * free_bytes < size_bytes
            or size_bytes < 8 * ROOM_BYTES
            or disk.f_bavail * disk.f_frsize < 4 * (size_bytes - free_bytes) + 4 * ROOM_BYTES
        ):
            return
        with suppress(sqlite3.OperationalError):  # it goes on as it is
            self._file.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._file.execute("VACUUM")
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def give_back(self) -> bool:
        """Give the disk back some of the pages that are free, but for the room that is kept for
        events; return whether there is more to give back."""
        with self._faults("read"):
            if self._one("PRAGMA auto_vacuum") != INCREMENTAL:
                return False
            kept = 2 * ROOM_BYTES // self._one("PRAGMA page_size")
            left = self._one("PRAGMA freelist_count") - kept
        if left > 0:
            try:
                # `execute` would end after the first page, as the statement has no columns.
                self._file.executescript(f"PRAGMA incremental_vacuum({min(left, MOST_PAGES)})")
            except sqlite3.OperationalError:  # a disk without room for its log: another time
                return False
        return bool(left > MOST_PAGES)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rows(self, at_s: float, events: Sequence[Event]) -> list[Row]:
        rows: list[Row] = []
        chain = self._chain
        for number, event in enumerate(events, start=self.last + 1):
            kind, body = type(event).__name__, dump_event(event)
            load_event(kind, body)  # what could not be read again would be damage
            chain = _chained(chain, number, at_s, kind, body)
            rows.append((number, at_s, kind, body, chain))
        return rows

    def _written(self, rows: list[Row]) -> None:
        if rows:
            self.last, self._chain = rows[-1][0], rows[-1][4]

    def _check(self, *, new: bool) -> None:
        check = self._one("PRAGMA quick_check(1)")
        if check != "ok":
            raise self._damaged(str(check))
        if new and not self._one("SELECT count(*) FROM sqlite_master"):
            with self._transaction():
                for statement in LAYOUT.split(";\n"):
                    if statement.strip():
                        self._file.execute(statement)
                self._file.execute("INSERT INTO about VALUES (?)", (FORMAT,))
        if self._one("SELECT format FROM about") != FORMAT:
            raise JournalError(f"journal {self.path}: is no {FORMAT}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            raise

    @contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "malformed" in str(error) or "not a database" in str(error):
                raise self._damaged(str(error)) from None
            raise JournalError(f"journal {self.path}: cannot be {what}: {error}") from None
        except UnicodeDecodeError as error:  # in what SQLite says of a damaged layout
            raise self._damaged(str(error)) from None

    def _damaged(self, how: str) -> JournalError:
        return JournalError(
            f"journal {self.path}: is damaged ({how}); nothing is started from it; put a sound "
            "copy in its place, or move it away to begin anew once no job of it runs any more"
        )


def _files_of(path: Path) -> tuple[Path, Path, Path]:
    """Return the file and those that SQLite has beside it."""
    return path, Path(f"{path}-wal"), Path(f"{path}-shm")


def _close_to_others(path: Path) -> None:
    """Have nobody else read the file: SQLite gives those beside it (-wal, -shm) the permissions of
    the file itself."""
    with suppress(OSError):  # what is wrong with the place SQLite says better
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for name in _files_of(path):
        with suppress(OSError):
            if name.stat().st_mode & 0o077:
                name.chmod(0o600)


def _chained(chain: str, number: int, at_s: float, kind: str, body: str) -> str:
    return hashlib.sha256(f"{chain}\n{number}\n{at_s!r}\n{kind}\n{body}".encode()).hexdigest()[:32]


def _merged(runs: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return runs of numbers in order, those that touch as one with the hash of its last."""
    merged: list[tuple[int, int, str]] = []
    for first, last, chain in sorted(set(runs)):
        if merged and merged[-1][1] + 1 == first:
            first = merged.pop()[0]
        merged.append((first, last, chain))
    return merged


def _digest(pruned: list[tuple[int, int, str]]) -> str:
    text = "\n".join(f"{first} {last} {chain}" for first, last, chain in pruned)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _finite(at_s: float) -> float | None:
    return at_s if math.isfinite(at_s) else None


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=3, mtime=0)
