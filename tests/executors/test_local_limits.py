"""Memory, users, full disks, and that nothing is left of many attempts."""

import gc
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.executors.base import AttemptKey, AttemptState, Order, RefusedError
from optsched.executors.local import LocalExecutor, LocalNode
from optsched.executors.supervision import cgroups, processes
from optsched.model.cluster import Node
from optsched.model.instance import Slot

from .conftest import Host, until

IS_ROOT = os.geteuid() == 0
HOLD = "import sys, time; held = bytearray(int(sys.argv[1]) << 20); print('held', flush=True); time.sleep(600)"  # noqa: E501


@pytest.fixture(params=["cgroups", "none"])
def limited(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Host]:
    """A host whose kernel keeps limits, and one whose kernel does not."""
    if request.param == "none":
        monkeypatch.setattr(cgroups, "parents", dict)
    elif "memory" not in cgroups.parents():
        pytest.skip("no control group for memory can be made here")
    host = Host(tmp_path)
    yield host
    host.clear()


def test_a_memory_limit(limited: Host) -> None:
    key = limited.start("job", sys.executable, "-c", HOLD, "300", memory_gib=(0.125,))
    seen = limited.end(key)
    assert (seen.exit_status, seen.reason) == (-9, "its memory limit of 0.125 GiB was exceeded")


def test_a_memory_limit_holds_for_all_processes_together(limited: Host) -> None:
    script = f'for i in 1 2 3 4; do {sys.executable} -c "{HOLD}" 60 & done; wait; exit 3'
    seen = limited.end(limited.shell("job", script, memory_gib=(0.125,)))
    assert seen.reason == "its memory limit of 0.125 GiB was exceeded"


def test_below_the_limit_nothing_happens_and_use_is_told(limited: Host) -> None:
    script = HOLD.replace("time.sleep(600)", "sum(range(10 ** 7))")
    seen = limited.end(limited.start("job", sys.executable, "-c", script, "100", memory_gib=(1.0,)))
    assert (seen.exit_status, seen.reason) == (0, None)
    assert seen.peak_memory_gib and 100 / 1024 <= seen.peak_memory_gib <= 200 / 1024
    assert seen.cpu_s and 0.05 <= seen.cpu_s <= 20


def test_memory_that_is_shared_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "parents", dict)
    host = Host(tmp_path)
    script = "import os, time; held = bytearray(100 << 20); [os.fork() for _ in range(2)]; time.sleep(1.5)"  # noqa: E501
    seen = host.end(host.start("job", sys.executable, "-c", script, memory_gib=(0.25,)))
    assert (seen.exit_status, seen.reason) == (0, None)  # four processes that hold the same 100 MiB
    assert seen.peak_memory_gib and seen.peak_memory_gib < 0.25
    host.clear()


def test_groups_are_removed(tmp_path: Path) -> None:
    parents = cgroups.parents()
    if not parents:
        pytest.skip("no control group can be made here")
    host = Host(tmp_path, [LocalNode(node=Node(name="n0", cpus=1), emulate=True)])
    key = host.shell("job", "setsid sleep 600 & sleep 600", gpus=0, memory_gib=(1.0,))
    until(lambda: len(host.processes(key)) >= 2)
    folders = set(host.executor._attempts[key].folder.nodes[0]["cgroups"].values())
    assert folders and all(os.path.isdir(folder) for folder in folders)
    groups = cgroups.Groups(dict(host.executor._attempts[key].folder.nodes[0]["cgroups"]))
    assert set(host.processes(key)) <= set(groups.pids())
    host.executor.kill(key)
    host.end(key)
    assert not any(os.path.isdir(folder) for folder in folders)
    host.clear()


@pytest.mark.skipif(not IS_ROOT, reason="only root starts processes of other users")
def test_another_users_process(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    for folder in (*list(tmp_path.parents)[:-2], tmp_path):  # pytest's folders are closed to others
        folder.chmod(folder.stat().st_mode | 0o011)
    host = Host(tmp_path)
    script = "id -u; id -g; id -G; umask; echo $HOME; "
    script += 'echo \'{"step": 1, "at_s": 2}\' > $OPTSCHED_PROGRESS; touch x.txt'
    key = host.shell("job", script, user=nobody.pw_uid, directory="/")
    seen = host.end(key)
    groups = os.getgrouplist("nobody", nobody.pw_gid)
    lines = host.printed(key).splitlines()
    assert lines[:2] == [str(nobody.pw_uid), str(nobody.pw_gid)]
    assert sorted(map(int, lines[2].split())) == sorted(groups)
    assert lines[4] == nobody.pw_dir
    assert seen.exit_status == 1  # it may not write in /
    assert seen.progress is not None and seen.progress.step == 1
    assert Path(seen.output or "").stat().st_uid == nobody.pw_uid
    for name in ("spec.json", "n0/pid.json", "n0/exit.json"):
        assert (host.attempt(key) / name).stat().st_uid == 0
    host.executor.forget(key)
    host.clear()


@pytest.mark.skipif(IS_ROOT, reason="root may start processes of other users")
def test_another_users_process_is_refused(host: Host) -> None:
    with pytest.raises(RefusedError, match="only a controller that runs as root"):
        host.start("job", "true", user=0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = IS_ROOT and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False  # noqa: E501
    ).returncode == 0  # fmt: skip
    if not mounted:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all room that is left."""
    path = folder / "filler"
    try:
        with open(path, "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
    except OSError:
        return path


def test_a_full_disk_refuses_starts(small_disk: Path) -> None:
    host = Host(small_disk)
    filler = fill(small_disk)
    for _ in range(2):
        with pytest.raises(RefusedError, match="No space left on device"):
            host.shell("job", "exit 0")
    assert host.executor.observe() == ()
    filler.unlink()
    assert host.end(host.shell("job", "exit 0")).exit_status == 0
    host.clear()


def test_a_command_that_fills_the_disk(small_disk: Path) -> None:
    host = Host(small_disk)
    key = host.shell("job", "cat /dev/zero > zeros")
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (1, None)
    host.restart()
    assert host.see(key) == seen
    host.clear()


def test_stop_and_kill_on_a_full_disk(small_disk: Path) -> None:
    host = Host(small_disk)
    polite = host.shell("polite", "trap 'exit 85' TERM; echo ready; while :; do sleep 0.05; done")
    deaf = host.shell("deaf", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: host.printed(polite) and host.printed(deaf))
    fill(small_disk)
    host.executor.checkpoint_stop(polite, 60)
    host.executor.kill(deaf)
    assert host.end(polite).exit_status == 85
    assert host.end(deaf).exit_status == -9
    host.clear()


@pytest.mark.parametrize("attempts", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_attempts_leave_nothing(host: Host, attempts: int) -> None:
    def open_files() -> list[str]:
        listing = os.scandir("/proc/self/fd")  # itself among them, in both lists alike
        return sorted(os.readlink(entry.path) for entry in listing)

    gc.collect()  # what other tests have left open
    before, children = open_files(), processes.descendants(os.getpid())
    at_once = 8
    left = [host.order(f"leak{i}", "true") for i in range(attempts)]
    running: dict[AttemptKey, Order] = {}
    while left or running:
        while left and len(running) < at_once:
            order = left.pop()
            placement = (Slot(node=("n0", "n1")[len(left) % 2], gpus=0),)
            host.executor.start(
                Order(key=order.key, placement=placement, argv=order.argv, directory="/")
            )
            running[order.key] = order
        host.executor.changes(1)
        for seen in host.executor.observe():
            if seen.state is AttemptState.ENDED and seen.key in running:
                assert seen.exit_status == 0
                del running[seen.key]
                host.executor.forget(seen.key)
    host.executor.observe()
    assert until(
        lambda: host.executor.observe() == () and processes.descendants(os.getpid()) == children
    )
    assert open_files() == before
    for parent in host.executor._groups.values():
        assert not [name for name in os.listdir(parent) if name.startswith("optsched-leak")]


def test_looking_at_a_thousand_ended_attempts_is_cheap(host: Host) -> None:
    """In processor time, for the machine may be busy: first from their files, then from memory."""
    key = host.shell("job", "exit 0")
    host.end(key)
    for number in range(2, 1002):
        copy_of_ended(host.attempt(key), host.attempt(AttemptKey("job", number)))
    host.restart()
    first_s, again_s = (cpu_s(host.executor) for _ in range(2))
    assert len(host.executor.observe()) == 1001
    assert first_s < 2
    assert again_s < 0.02


def copy_of_ended(source: Path, target: Path) -> None:
    for folder in (target, target / "n0"):
        folder.mkdir()
    for name in ("spec.json", "n0/exit.json"):
        (target / name).write_bytes((source / name).read_bytes())


def cpu_s(executor: LocalExecutor) -> float:
    began_s = time.process_time()
    executor.observe()
    return time.process_time() - began_s


def test_a_supervisor_is_small(host: Host) -> None:
    key = host.shell("job", "sleep 600")
    host.reach(key, AttemptState.RUNNING)
    pid = host.executor._attempts[key].began("n0")
    assert pid is not None
    assert processes.proportional_bytes([pid["shim"][0]]) < 32 << 20
