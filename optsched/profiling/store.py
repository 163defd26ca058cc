"""Profiles kept over time: one JSON file a name, with its versions; beside it runs that are not in
it yet."""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError
from ..files import Line, adapter, listed_rows, parse_file, plain, read_bytes, write_text
from ..frozen import frozen
from ..model import Profile
from ..model.quantity import PositiveCount
from .learn import learned
from .measured import Measured
from .result import Result, six_digits

STORE_FORMAT = "optsched-profile/1"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
SUFFIX = ".json"
FIELDS = tuple(field.name for field in fields(Profile))
KEPT_RUNS, KEPT_VERSIONS = 200, 100
"""The measurements of so many runs are kept, and so many versions: the last ones."""
SMALL_BYTES, WRITTEN_EVERY_S, MOST_NOTED = 16 * 1024, 60.0, 100
"""A file that is larger is written again only after so long, or after so many runs: until then runs
are noted beside it, one a line."""
PROBE, BY_HAND, LEARNED = "measured by probe", "edited by hand", "learned from attempt "


@frozen
class Version:
    """A profile as it was from a time on, where it came from, and what that changed, as a person
    reads it."""

    version: PositiveCount
    at: str
    source: str
    notes: tuple[str, ...] = ()
    profile: Profile


@frozen
class Run:
    """What was measured of one run; `source` says which run it was."""

    source: str
    measured: Measured


@frozen
class Stored:
    """A profile with its past. `profile` is the present one and may be edited in the file; fields
    edited by hand are listed in `by_hand` and no run changes them until they are taken out of that
    list. `user` and `command` are those of the first run and say which jobs are like it."""

    format: Literal["optsched-profile/1"] = "optsched-profile/1"
    name: str
    user: str | None = None
    command: str | None = None
    profile: Profile
    by_hand: tuple[str, ...] = ()
    versions: tuple[Version, ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def version(self) -> int:
        """Return the number of the present version."""
        return self.versions[-1].version


class Store:
    """A folder of profiles. Files are written whole, under a lock that other processes keep to as
    well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise InputError(
                f"the profile store {folder} is not a directory; name one, it is made where "
                "there is none"
            )

    def names(self) -> list[str]:
        """Return the names of the profiles, sorted; none where there is no folder yet."""
        if not self.folder.is_dir():
            return []
        files = (path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}"))
        return sorted(name for name in files if NAME.fullmatch(name))

    def read(self, name: str) -> Stored:
        """Return the profile of a name; one whose `profile` was edited in the file gets a version
        that says so, which the next change writes. Raises InputError where there is none, or naming
        every fault of the file."""
        check_name(name)
        path = self._path(name)
        if not path.is_file():
            raise InputError(f"no profile {name!r} in {self.folder}; there {_those(self.names())}")
        stored: Stored = parse_file(Stored, read_bytes(path), str(path), STORE_FORMAT)
        _check(stored, name, path)
        return _with_runs(_with_edit(stored, path), self._noted_runs(name), None)

    def add(self, name: str, result: Result) -> Stored:
        """Keep what a probe measured: its profile is the present one, but for what was edited by
        hand. Raises InputError."""
        return self._change(name, PROBE, result.measured, result.profile)

    def learn(self, name: str, measured: Measured, attempt: str) -> Stored:
        """Merge what was measured of a real run, `attempt` being its key, as `optsched:job:1`; the
        same attempt twice counts once. Raises InputError."""
        return self._change(name, LEARNED + attempt, measured, None)

    def note(self, name: str, measured: Measured, attempt: str) -> None:
        """Learn as `learn` does, for a run of many: what is read is the same, but a large file is
        not written for each of them. Raises InputError."""
        check_name(name)
        path, run = self._path(name), Run(source=LEARNED + attempt, measured=measured)
        try:
            with self._locked():
                seen = path.stat()
                recent = abs(time.time() - seen.st_mtime) < WRITTEN_EVERY_S
                if recent and seen.st_size > SMALL_BYTES and len(self._noted(name)) <= MOST_NOTED:
                    with self._notes(name).open("a") as notes:
                        notes.write("\n" + dump_run(run))  # a line that was cut off ends here
                    return
        except FileNotFoundError:
            pass  # there is no profile yet
        except OSError as error:
            raise InputError(f"{self._notes(name)}: cannot be written: {error.strerror}") from None
        self.learn(name, measured, attempt)

    def _notes(self, name: str) -> Path:
        return self.folder / f".{name}.runs"

    def _noted(self, name: str) -> list[str]:
        """Return the lines that were noted since the file was written."""
        with suppress(OSError):
            return self._notes(name).read_text(errors="replace").splitlines()
        return []

    def _noted_runs(self, name: str) -> list[Run]:
        """Return runs that were noted; a line that is none was cut off."""
        runs: dict[str, Run] = {}
        for line in self._noted(name):
            with suppress(ValueError):
                run: Run = adapter(Run).validate_json(line)
                runs.setdefault(run.source, run)
        return list(runs.values())

    def drop(self, older_s: float) -> None:
        """Remove profiles that nothing has changed for so long, but for those that were edited by
        hand."""
        for name in self.names():
            with suppress(InputError, OSError), self._locked():
                path = self._path(name)
                if time.time() - path.stat().st_mtime > older_s and not self.read(name).by_hand:
                    path.unlink()
                    self._notes(name).unlink(missing_ok=True)

    def _change(self, name: str, source: str, measured: Measured, probed: Profile | None) -> Stored:
        check_name(name)
        with self._locked():
            if self._path(name).is_file():
                before = self.read(name)
            else:
                before = Stored(
                    name=name,
                    user=measured.user,
                    command=measured.command,
                    profile=Profile(name=name),
                )
            after = _with_runs(before, [Run(source=source, measured=measured)], probed)
            if after is not before:
                write_text(self._path(name), dump_stored(after))
                self._notes(name).unlink(missing_ok=True)
        return after

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(
                f"the profile store {self.folder} cannot be written: {error.strerror}"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def check_name(name: str) -> None:
    """Raise InputError for what cannot be the name of a profile."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a profile; use up to 100 letters, digits, dots, dashes and "
            "underscores, a letter or "
            "digit first and last"
        )


def dump_stored(stored: Stored) -> str:
    """Return the file's text: the present profile over several lines, to be edited; each version
    and run on one."""
    shown: dict[str, Any] = {"format": STORE_FORMAT, **plain(stored)}
    shown["versions"] = shown.get("versions", [])
    shown["runs"] = [Line(dump_run(run)) for run in stored.runs]
    rows = []
    for key, value in shown.items():
        if key in ("versions", "runs"):
            text = listed_rows(value, "    ")
        else:
            text = json.dumps(value, indent=2).replace("\n", "\n  ")
        rows.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def dump_run(run: Run) -> str:
    """Return a run as one line."""
    shown = plain(run)
    return json.dumps({**shown, "measured": six_digits(shown["measured"])})


def _with_runs(before: Stored, more: Sequence[Run], probed: Profile | None) -> Stored:
    """Return a profile with more runs merged into it, which make one version; `probed` is what a
    probe proposes."""
    told = {run.source for run in before.runs}
    new = [run for run in more if probed is not None or run.source not in told]
    if not new:
        return before
    runs = (*before.runs, *new)[-KEPT_RUNS:]
    base = (
        before.profile
        if probed is None
        else replace(before.profile, **{**_changes(probed, Profile()), "name": before.name})
    )
    profile, notes = learned(base, [run.measured for run in runs])
    profile = replace(
        profile, **{field: getattr(before.profile, field) for field in before.by_hand}
    )
    after = replace(before, profile=profile, runs=runs)
    if before.versions and profile == before.profile:
        return after
    what = tuple(note for field, note in notes.items() if field not in before.by_hand)
    return _with_version(after, new[-1].source, time.time(), what)


def _with_version(stored: Stored, source: str, at_s: float, notes: tuple[str, ...]) -> Stored:
    """Return a profile with its present state as the latest version."""
    version = Version(
        version=stored.version + 1 if stored.versions else 1,
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s)),
        source=source,
        notes=notes,
        profile=stored.profile,
    )
    return replace(stored, versions=(*stored.versions, version)[-KEPT_VERSIONS:])


def _changes(profile: Profile, base: Profile) -> dict[str, Any]:
    """Return the fields of a profile that are not as in another one."""
    return {
        name: value for name in FIELDS if (value := getattr(profile, name)) != getattr(base, name)
    }


def _with_edit(stored: Stored, path: Path) -> Stored:
    """Return the same where the present profile is the last version, else with one more that says
    who changed it."""
    changed = _changes(stored.profile, stored.versions[-1].profile)
    if not changed:
        return stored
    by_hand = tuple(dict.fromkeys((*stored.by_hand, *changed)))
    notes = (f"changed: {', '.join(changed)}",)
    return _with_version(replace(stored, by_hand=by_hand), BY_HAND, path.stat().st_mtime, notes)


def _check(stored: Stored, name: str, path: Path) -> None:
    """Raise InputError for what the shape of the file does not show."""
    if stored.name != name:
        raise InputError(f"{path}: name is {stored.name!r}; write {name!r}, as the file is called")
    if not stored.versions:
        raise InputError(f"{path}: versions is empty; take back the edit that removed them")
    first = stored.versions[0].version if len(stored.versions) >= KEPT_VERSIONS else 1
    for i, version in enumerate(stored.versions):
        if version.version != first + i:
            raise InputError(
                f"{path}: versions[{i}].version is {version.version}; write {first + i}"
            )
    for i, field_name in enumerate(stored.by_hand):
        if field_name not in FIELDS:
            raise InputError(
                f"{path}: by_hand[{i}] is {field_name!r}, not a field of a profile; choose from "
                f"{', '.join(sorted(FIELDS))}"
            )


def _those(names: list[str]) -> str:
    if not names:
        return "are none yet"
    return f"are {', '.join(names[:8])}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")
