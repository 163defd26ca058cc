"""What a user of the host can read of a controller's state folder and of the jobs of others."""

import json
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from optsched.control.api.client import Client
from optsched.control.journal.journal import Journal
from optsched.executors.attempts.folder import AttemptFolder
from optsched.executors.base import AttemptKey
from tests.live.running import Run
from tests.other_user import NOBODY, as_root, as_user

TOML = """
format = "optsched-cluster/1"
[[nodes]]
name = "n0"
gpus = 2
emulate = true
"""
SECRET = "correct-horse-battery-staple"
SCRIPT = """
umask
echo printed-$PASSWORD
echo saved > $OPTSCHED_CHECKPOINT_DIR/state
echo '{"step": 7, "at_s": 2, "total_steps": 9}' > $OPTSCHED_PROGRESS.new && mv $OPTSCHED_PROGRESS.new $OPTSCHED_PROGRESS
exec sleep 600
"""  # noqa: E501
OWNER = pwd.getpwnam("daemon").pw_uid


@pytest.fixture(params=[0o000, 0o077], ids=oct)
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    """A controller with a job of root and one of another user, in a state folder that was open to
    all."""
    for folder in (*list(tmp_path.parents)[:-2], tmp_path):  # pytest's folders are closed to others
        folder.chmod(folder.stat().st_mode | 0o011)
    (tmp_path / "cluster.toml").write_text(TOML)
    state = tmp_path / "state"
    (state / "profiles").mkdir(parents=True)
    (state / "profiles" / "old.json").write_text("{}")
    Journal(state / "journal").close()
    for path in (state, state / "profiles"):
        path.chmod(0o755)
    for path in (state / "profiles" / "old.json", state / "journal"):
        path.chmod(0o644)
    found = Run(tmp_path, request.param)
    body = {
        "argv": ["/bin/sh", "-c", SCRIPT],
        "directory": "/",
        "environment": {"PASSWORD": SECRET},
        "gpus": 1,
    }
    found.client.post("/v1/jobs", {**body, "name": "of-root"})
    as_user(
        OWNER,
        lambda: Client(path=state / "api.sock").post("/v1/jobs", {**body, "name": "of-owner"}),
    )
    for name in ("of-root", "of-owner"):
        found.until(lambda name=name: found.job(name)["step"] == 7)
    yield found
    found.close()


def seen_by_this_user(paths: list[str]) -> dict[str, list[str]]:
    """Of `paths` those whose names can be listed, and those whose bytes can be read, and that can
    be moved away."""

    def works(call: Callable[[str], Any], path: str) -> bool:
        try:
            call(path)
        except OSError:
            return False
        return True

    return {
        "listed": [path for path in paths if works(os.listdir, path)],
        "read": [path for path in paths if works(lambda path: Path(path).read_bytes(), path)],
        "moved": [
            path for path in paths if works(lambda path: os.rename(path, f"{path}.moved"), path)
        ],
    }


@as_root
def test_nobody_else_reads_anything(run: Run) -> None:
    paths = [str(run.state), *(str(path) for path in run.state.rglob("*"))]
    names = {Path(path).name for path in paths}
    assert {
        "journal",
        "journal-wal",
        "journal-shm",
        "token",
        "spec.json",
        "stdout",
        "old.json",
        "state",
    } <= names
    assert as_user(NOBODY, lambda: seen_by_this_user(paths)) == {
        "listed": [],
        "read": [],
        "moved": [],
    }
    theirs = as_user(
        OWNER, lambda: seen_by_this_user(paths[:1] + [one for one in paths if "of-owner" in one])
    )
    place = f"{run.state}/attempts/of-owner/1"
    assert set(theirs["read"]) == {
        f"{place}/n0/stdout",
        f"{place}/n0/stderr",
        f"{place}/progress/progress.json",
        f"{run.state}/checkpoints/of-owner/state",
    }
    assert set(theirs["listed"]) == {f"{place}/progress", f"{run.state}/checkpoints/of-owner"}
    assert SECRET in Path(f"{place}/n0/stdout").read_text()
    for name in ("journal", "journal-wal", "journal-shm", "token", "lock"):
        assert stat.S_IMODE((run.state / name).stat().st_mode) == 0o600


@as_root
def test_what_others_are_told_holds_no_secrets(run: Run) -> None:
    token = (run.state / "token").read_text().strip()
    log = run.log.read_text()
    assert "of-owner" in log and SECRET not in log and token not in log
    arguments = [
        path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()
    ]
    assert not any(SECRET.encode() in one or token.encode() in one for one in arguments)
    said = json.dumps(
        as_user(
            NOBODY,
            lambda: [
                Client(path=run.state / "api.sock").get(f"/v1/{what}")
                for what in ("jobs", "nodes", "state", "rounds")
            ],
        )
    )
    assert SECRET not in said and token not in said and "of-owner" not in said


@as_root
def test_looking_back_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for folder in (*list(tmp_path.parents)[:-2], tmp_path):
        folder.chmod(folder.stat().st_mode | 0o011)
    Journal(tmp_path / "journal").close()

    def opened() -> str:
        try:
            Journal(tmp_path / "journal", read_only=True)
        except Exception as error:
            return str(error)
        return "it was opened"

    assert "only the user whose controller writes it, and root, may read it" in as_user(
        NOBODY, opened
    )


@as_root
def test_members_of_the_users_group_cannot_read_what_is_run(tmp_path: Path) -> None:
    """Where supervisors run as the user of the job: on Slurm and Kubernetes."""
    for folder in (*list(tmp_path.parents)[:-2], tmp_path):
        folder.chmod(folder.stat().st_mode | 0o011)
    attempt = AttemptFolder(tmp_path, AttemptKey("job", 1))
    user = {"uid": NOBODY, "gid": NOBODY, "groups": [NOBODY]}
    spec = {
        "nodes": [{"name": "n0"}],
        "user": user,
        "checkpoint_directory": "",
        "environment": {"PASSWORD": SECRET},
    }
    attempt.prepare(spec)
    attempt.give(user)
    paths = [
        str(attempt.path / "spec.json"),
        str(attempt.path / "n0"),
        str(attempt.path / "n0" / "spec.json"),
    ]
    fellow = 54321  # `as_user` gives it the group of nobody
    assert as_user(fellow, lambda: seen_by_this_user(paths)) == {
        "listed": [],
        "read": [],
        "moved": [],
    }
    assert as_user(NOBODY, lambda: seen_by_this_user(paths))["read"] == paths[2:]
    assert AttemptFolder(tmp_path, AttemptKey("job", 1)).spec == spec
