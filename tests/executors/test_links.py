"""Root and the folders that it gives to users: links which they put there lead nowhere."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.attempts import folder as module
from optsched.executors.attempts.folder import AttemptFolder
from optsched.executors.base import AttemptKey
from optsched.executors.slurm.attempt import SlurmAttempt
from optsched.executors.supervision import records
from tests.other_user import NOBODY, as_root

PRECIOUS = "of root"
USER = {"uid": NOBODY, "gid": NOBODY, "groups": []}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "precious"
    path.parent.mkdir()
    path.write_text(PRECIOUS)
    return path


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptFolder:
    made = AttemptFolder(tmp_path / "attempts", AttemptKey("job", 1))
    made.path.parent.parent.mkdir()
    node = {"name": "n1", "gpus": 1, "memory_gib": 0.0}
    made.prepare({"user": None, "checkpoint_directory": "", "nodes": [node]})
    return made


def unharmed(victim: Path) -> bool:
    about = victim.stat()
    return victim.read_text() == PRECIOUS and about.st_uid == os.geteuid()


def after(call: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    """What does `then` as well, the first time."""
    done: list[int] = []

    def both(*given: Any, **named: Any) -> Any:
        result = call(*given, **named)
        if not done:
            done.append(1)
            then()
        return result

    return both


@pytest.mark.parametrize("outputs", [True, False])
def test_a_folder_that_becomes_a_link_while_it_is_removed(
    attempt: AttemptFolder, victim: Path, monkeypatch: pytest.MonkeyPatch, outputs: bool
) -> None:
    own = attempt.path / "n1" / "own"
    (own / "below").mkdir(parents=True)
    (own / "below" / "first").touch()
    (own / victim.name).touch()

    def swap() -> None:
        own.rename(own.with_name("moved"))
        own.symlink_to(victim.parent)

    # what lies deepest is removed first
    monkeypatch.setattr(module.os, "unlink", after(os.unlink, swap))
    attempt.remove(outputs)
    monkeypatch.undo()
    assert own.is_symlink() or not own.exists()
    assert unharmed(victim)


@as_root
def test_what_is_given_to_a_user_is_what_was_made_for_him(
    attempt: AttemptFolder, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = attempt.path / "n1"

    def chown(path: Any, *given: Any, **named: Any) -> None:
        os_chown(path, *given, **named)
        if Path(path) == node:  # from now on it is his
            for name in ("spec.json", "exit.json.reserve", "pid.json.reserve"):
                (node / name).unlink()
                (node / name).symlink_to(victim)

    os_chown = os.chown
    monkeypatch.setattr(module.os, "chown", chown)
    attempt.give(USER)
    monkeypatch.undo()
    assert unharmed(victim)
    assert node.stat().st_uid == NOBODY and node.stat().st_mode & 0o777 == 0o700


@as_root
def test_what_was_left_of_another_job_of_this_name(tmp_path: Path, victim: Path) -> None:
    made = AttemptFolder(tmp_path / "attempts", AttemptKey("job", 1))
    left = made.path / "n1"
    left.mkdir(parents=True)
    os.link(victim, left / "stdout")
    (left / "stderr").symlink_to(victim)
    os.chown(left, NOBODY, NOBODY)
    node = {"name": "n1", "gpus": 1, "memory_gib": 0.0}
    made.prepare({"user": None, "checkpoint_directory": "", "nodes": [node]})
    made.give(USER)
    assert unharmed(victim) and left.stat().st_uid == NOBODY
    assert not (left / "stdout").exists() and (left / "spec.json").stat().st_uid == NOBODY


def test_looking_anew_makes_nothing_elsewhere(attempt: AttemptFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "nologin"
    link = attempt.path / "n1" / f".look.{os.getpid()}"
    link.symlink_to(elsewhere)
    SlurmAttempt(attempt.path.parent.parent, attempt.key).look_anew(["n1"])
    assert not elsewhere.exists() and not link.is_symlink()


@pytest.mark.parametrize("link", [os.link, os.symlink])
@pytest.mark.parametrize("write", [records.write, records.write_first])
def test_records_are_new_files(
    tmp_path: Path,
    victim: Path,
    link: Callable[..., None],
    write: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "claim.json"
    monkeypatch.setattr(records.os, "urandom", bytes)  # somebody has guessed it
    link(victim, f"{path}.{bytes(6).hex()}.tmp")
    write(path, {"by": "executor"})
    assert records.read(path) == {"by": "executor"} and unharmed(victim)


def test_room_that_is_another_file_by_now(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "exit.json"
    os.link(victim, f"{path}.reserve")
    records.write_reserved(path, {"status": 0})
    assert records.read(path) == {"status": 0} and unharmed(victim)
    os.unlink(f"{path}.reserve")
    os.link(victim, f"{path}.reserve")
    records.reserve(path)
    assert unharmed(victim)
