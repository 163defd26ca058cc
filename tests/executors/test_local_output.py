"""What jobs print: kept up to a limit, wherever it is to be kept, and never at the cost of the
job."""

import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_disk import MIB, small_disk

from .conftest import Host, until

PRINT = (
    "import os, sys; data = b'x' * 65536; [os.write(1, data) for _ in range(int(sys.argv[1]) * 16)]"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as folder:
        yield folder


def test_what_is_printed_beyond_the_limit_is_dropped_and_the_job_goes_on(host: Host) -> None:
    key = host.start(
        "job",
        sys.executable,
        "-c",
        f"{PRINT}; os.write(2, b'done'); sys.exit(7)",
        "5",
        output_bytes=MIB,
    )
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (7, None)
    text = host.printed(key)
    assert text[:MIB] == "x" * MIB
    said = f"{4 * MIB} bytes that were printed are not here: 1 MiB are kept at most"
    assert text[MIB:] == f"\noptsched: {said}\n"
    assert Path(seen.output or "").with_name("stderr").read_text() == "done"


def test_what_is_just_within_the_limit_is_kept_whole(host: Host) -> None:
    key = host.start("job", sys.executable, "-c", PRINT, "1", output_bytes=MIB)
    assert host.end(key).exit_status == 0 and host.printed(key) == "x" * MIB


def test_output_is_there_while_a_job_runs_and_of_what_it_left_behind(host: Host) -> None:
    key = host.shell(
        "job", "echo one; (sleep 0.3; echo three) & until test -e go; do sleep 0.02; done; echo two"
    )
    until(lambda: host.printed(key).startswith("one\n"))
    (host.folder / "go").touch()
    host.end(key)
    assert sorted(host.printed(key).split()) == ["one", "three", "two"]


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
    host = Host(tmp_path / "state", outputs=disk)
    before = host.start("before", sys.executable, "-c", PRINT, "1")
    assert host.end(before).output == str(disk / "before" / "1" / "n0" / "stdout")
    host.executor.forget(before)
    assert (disk / "before" / "1" / "n0" / "stdout").stat().st_size == MIB  # is there for its user
    key = host.start("job", sys.executable, "-c", f"{PRINT}; sys.exit(7)", "100")
    assert (host.end(key).exit_status, host.see(key).reason) == (7, None)
    printed = Path(host.see(key).output or "").read_bytes()
    assert 56 * MIB < len(printed) < 64 * MIB
    kept, said = printed.split(b"\n", 1)
    missing = f"{100 * MIB - len(kept)} bytes that were printed are not here: the disk was full\n"
    assert said.decode() == f"optsched: {missing}"
    host.clear()
