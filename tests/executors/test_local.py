"""Attempts on one node: what they are given, how they end, and what is said about it."""

import errno
import fcntl
import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

from optsched.errors import InputError
from optsched.executors.attempts.executor import take
from optsched.executors.base import AttemptKey, AttemptState, NoAnswerError, RefusedError
from optsched.executors.local import LocalExecutor, LocalNode
from optsched.executors.supervision import cgroups, processes
from optsched.model.cluster import Node

from .conftest import Host, until


def test_a_command_is_given_its_place(host: Host) -> None:
    key = host.start(
        "env",
        "env",
        gpus=2,
        checkpoint_directory=str(host.folder / "saved"),
        environment={"MINE": "a=b"},
    )
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (0, None)
    assert seen.started_s and seen.ended_s and 0 <= seen.ended_s - seen.started_s < 60
    assert abs(time.time() - seen.ended_s) < 60
    variables = dict(line.split("=", 1) for line in host.printed(key).splitlines())
    expected = {
        "OPTSCHED_JOB": "env",
        "OPTSCHED_ATTEMPT": "1",
        "OPTSCHED_KEY": "optsched:env:1",
        "OPTSCHED_CHECKPOINT_DIR": str(host.folder / "saved"),
        "OPTSCHED_NODES": "n0",
        "OPTSCHED_NODE_COUNT": "1",
        "OPTSCHED_NODE": "n0",
        "OPTSCHED_NODE_RANK": "0",
        "OPTSCHED_GPUS_PER_NODE": "2",
        "CUDA_VISIBLE_DEVICES": "EMULATED-n0-0,EMULATED-n0-1",
        "OMP_NUM_THREADS": "1",
        "MINE": "a=b",
    }
    assert expected.items() <= variables.items()
    assert "MASTER_ADDR" not in variables
    assert (host.folder / "saved").is_dir()


def test_the_executors_own_variables_are_not_passed_on(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "secret")
    key = host.start("env", "env")
    host.end(key)
    assert "secret" not in host.printed(key)


@pytest.mark.parametrize(
    ("argv", "status", "reason"),
    [
        (("sh", "-c", "exit 3"), 3, None),
        (("sh", "-c", "kill -9 $$"), -9, None),
        (("no-such-command",), 127, "its command no-such-command is not found"),
        (("/etc/hostname-that-is-not",), 127, "its command /etc/hostname-that-is-not is not found"),
        (("/etc/passwd",), 126, "its command /etc/passwd cannot be run: Permission denied"),
    ],
)
def test_how_it_ended_is_told(
    host: Host, argv: tuple[str, ...], status: int, reason: str | None
) -> None:
    seen = host.end(host.start("job", *argv))
    assert (seen.exit_status, seen.reason) == (status, reason)


def test_a_directory_that_is_not_there(host: Host) -> None:
    seen = host.end(host.start("job", "true", directory="/no/such/directory"))
    assert seen.exit_status == 126
    assert (
        seen.reason
        == "its directory /no/such/directory cannot be entered: No such file or directory"
    )


def test_starting_again_does_nothing(host: Host) -> None:
    order = host.order("once", "sh", "-c", "echo run >> runs; sleep 0.3")
    for _ in range(3):
        host.executor.start(order)
    host.end(order.key)
    host.executor.start(order)
    host.restart()
    host.executor.start(order)
    assert host.see(order.key).state is AttemptState.ENDED
    assert (host.folder / "runs").read_text() == "run\n"


def test_gpus_are_handed_out_once(host: Host) -> None:
    first, second = (
        host.shell("first", "sleep 600", gpus=3),
        host.shell("second", "sleep 600", gpus=1),
    )
    assert host.see(first).gpu_ids == {"n0": ("EMULATED-n0-0", "EMULATED-n0-1", "EMULATED-n0-2")}
    assert host.see(second).gpu_ids == {"n0": ("EMULATED-n0-3",)}
    with pytest.raises(RefusedError, match="node n0 has 0 of its 4 GPUs free, not 1"):
        host.shell("third", "true")
    host.restart()
    with pytest.raises(RefusedError):
        host.shell("third", "true")
    host.executor.kill(first)
    host.end(first)
    assert host.end(host.shell("third", "true", gpus=3)).exit_status == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes": ("elsewhere",)}, "node elsewhere is not one of this executor"),
        ({"nodes": ()}, "names no node"),
        ({"nodes": ("n0", "n0")}, "names a node twice"),
        ({"gpus": 5}, "has 4 of its 4 GPUs free, not 5"),
        ({"directory": "here"}, "'here' is not an absolute path"),
        ({"memory_gib": (1.0, 1.0)}, "its memory is given for 2 nodes, its placement has 1"),
        ({"environment": {"A=B": "c"}}, "NUL"),
        ({"environment": {"A": "c\0d"}}, "NUL"),
        ({"user": 987654}, "user 987654"),
    ],
)
def test_what_cannot_be_is_refused(host: Host, change: dict[str, object], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        host.start("job", "true", **change)
    assert host.executor.observe() == ()
    assert not list(host.folder.glob("attempts/*"))


@pytest.mark.parametrize(
    "job", ["..", ".", "a/b", "/etc", "a\n", "", "x" * 64, "a/../../b", "-a", "a-"]
)
def test_names_that_lead_elsewhere_are_refused(host: Host, job: str) -> None:
    with pytest.raises(RefusedError, match="not the name of an attempt"):
        host.start(job, "true")
    with pytest.raises(InputError, match="not the name of an attempt"):
        host.executor.kill(AttemptKey(job, 1))
    assert host.executor.observe() == ()


@pytest.mark.parametrize("name", ["..", "a/b", "spec.json", "", "a\0b"])
def test_nodes_that_cannot_be_folders_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be a folder"):
        LocalExecutor(tmp_path, [LocalNode(node=Node(name=name), emulate=True)])


def test_real_gpus_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^1000 GPUs are declared .*emulate = true under \[\[nodes\]\]$"
    ):
        LocalExecutor(tmp_path, [LocalNode(node=Node(name="n0", gpus=1000))])


def test_a_folder_has_one_controller(host: Host) -> None:
    with pytest.raises(InputError, match="in use by another controller"):
        LocalExecutor(host.folder, host.nodes)


def test_a_folder_on_nfs_has_one_controller_of_all_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS locks files that are open for writing; a folder it locks for this host alone."""
    locked: list[int] = []

    def flock(descriptor: int, _: int) -> None:
        if locked:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR
        locked.append(descriptor)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert take(tmp_path) == (tmp_path / "attempts", locked[0])
    with pytest.raises(InputError, match="cannot be used: No locks available"):
        take(tmp_path)
    os.close(locked[0])


def test_asked_to_save_and_stop(host: Host) -> None:
    key = host.shell("job", "trap 'exit 85' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: host.printed(key))
    host.executor.checkpoint_stop(key, 60)
    host.executor.checkpoint_stop(key, 0)  # it was asked before
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (85, None)


def test_the_deadline_holds_without_a_controller(host: Host) -> None:
    key = host.shell("deaf", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: host.printed(key))
    host.executor.checkpoint_stop(key, 0.5)
    host.executor.close()
    until(lambda: (host.attempt(key) / "n0" / "exit.json").exists())
    host.executor = LocalExecutor(host.folder, host.nodes)
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (
        -9,
        "did not stop within the 0.5 s it was given, and was killed",
    )


def test_a_stopped_process_hears_too(host: Host) -> None:
    key = host.shell(
        "job", "trap 'exit 85' TERM; echo ready; kill -STOP $$; while :; do sleep 0.05; done"
    )
    until(lambda: host.printed(key))
    host.executor.checkpoint_stop(key, 60)
    assert host.end(key).exit_status == 85


def test_kill(host: Host) -> None:
    key = host.shell("job", "trap '' TERM; setsid sleep 600 & echo ready; sleep 600")
    until(lambda: host.printed(key))
    host.executor.kill(key)
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (-9, None)
    assert not host.processes(key)


def test_kill_right_after_start(host: Host) -> None:
    for i in range(8):
        host.executor.kill(host.shell(f"job{i}", "echo ran >> runs; sleep 600", gpus=0))
    for i in range(8):
        host.end(AttemptKey(f"job{i}", 1))


def test_kill_before_start(host: Host) -> None:
    order = host.order("never", "touch", "ran")
    host.executor.kill(order.key)
    for _ in range(2):
        host.executor.start(order)
        seen = host.see(order.key)
        assert (seen.state, seen.exit_status, seen.reason) == (
            AttemptState.ENDED,
            None,
            "was never started",
        )
        host.restart()
    assert not (host.folder / "ran").exists()


def test_what_is_left_behind_is_ended(host: Host) -> None:
    script = "(setsid sh -c 'trap \"\" TERM; sleep 600' &); (sleep 600 &); exit 0"
    key = host.shell("daemons", script)
    seen = host.end(key)
    assert seen.exit_status == 0
    assert (
        seen.reason == "left 3 processes behind, which were killed"
    )  # setsid's shell, its sleep, the other sleep
    assert not host.processes(key)


def test_a_supervisor_outlives_a_crash_and_is_adopted(host: Host) -> None:
    key = host.shell("job", "until test -e go; do sleep 0.05; done; exit 7")
    before = host.reach(key, AttemptState.RUNNING)
    host.restart()
    assert host.see(key) == before
    (host.folder / "go").touch()
    assert host.end(key).exit_status == 7


def test_a_supervisor_that_is_killed(host: Host) -> None:
    key = host.shell("job", "setsid env -i sleep 987 & setsid sleep 600 & env -i sleep 600")
    host.reach(key, AttemptState.RUNNING)
    until(lambda: len(host.processes(key)) >= 2)
    shim = _shim(host, key)
    session = [pid for pid in processes.descendants(shim)]
    os.kill(shim, signal.SIGKILL)
    assert host.end(key).reason == "its supervisor was killed"
    assert not host.processes(key)
    if (
        not host.executor._groups
    ):  # one that left session and environment can only be found by its group
        session = [
            pid for pid in session if b"987" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in session))


def test_another_boot(host: Host) -> None:
    key = host.start("job", "sleep", "600")
    (pid,) = until(lambda: host.processes(key))
    os.kill(_shim(host, key), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    host.executor.close()
    for file in (host.attempt(key) / "spec.json", host.attempt(key) / "n0" / "pid.json"):
        file.write_text(
            file.read_text().replace(processes.boot_id(), "00000000-0000-0000-0000-000000000000")
        )
    host.executor = LocalExecutor(host.folder, host.nodes)
    host.executor.start(host.order("job", "touch", "ran"))
    until(
        lambda: host.see(key).state == AttemptState.ENDED
    )  # the supervisor's lock may outlive it for a moment
    seen = host.see(key)
    assert (seen.exit_status, seen.reason) == (None, "the host was restarted")
    assert seen.started_s is not None
    assert not (host.folder / "ran").exists()
    for node in host.executor._attempts[key].folder.nodes:  # which a real restart would have done
        cgroups.Groups(node["cgroups"]).remove()


def test_a_number_that_was_passed_on(host: Host) -> None:
    """A process that has the supervisor's number but began at another time is not the
    supervisor."""
    key = host.shell("job", "exit 0")
    host.end(key)
    host.executor.close()
    (host.attempt(key) / "n0" / "exit.json").unlink()
    record = (host.attempt(key) / "n0" / "pid.json").read_text()
    pid, start = record.split('"shim": [')[1].split("]")[0].split(",")
    own = processes.identity(os.getpid())
    assert own is not None
    (host.attempt(key) / "n0" / "pid.json").write_text(
        record.replace(pid, str(own[0]), 1).replace(start, str(own[1] + 1), 1)
    )
    host.executor = LocalExecutor(host.folder, host.nodes)
    assert host.end(key).reason == "its supervisor was killed"


def test_changes_returns_when_one_ends(host: Host) -> None:
    key = host.shell("job", "until test -e go; do sleep 0.02; done")
    host.reach(key, AttemptState.RUNNING)
    host.executor.wake()
    host.executor.changes(600)
    began_s = time.monotonic()
    host.executor.changes(0.1)
    assert time.monotonic() - began_s >= 0.1
    (host.folder / "go").touch()
    host.executor.changes(600)
    assert host.see(key).state is AttemptState.ENDED


def test_forget_leaves_only_what_was_printed(host: Host) -> None:
    key = host.shell("job", "echo out; echo err >&2; sleep 600")
    host.reach(key, AttemptState.RUNNING)
    until(lambda: host.printed(key))
    with pytest.raises(NoAnswerError, match="has not ended"):
        host.executor.forget(key)
    host.executor.kill(key)
    host.end(key)
    host.executor.forget(key)
    host.executor.forget(key)
    assert host.executor.observe() == ()
    left = sorted(path.name for path in host.folder.rglob("*") if path.is_file())
    assert left == ["attempts.lock", "stderr", "stdout"]
    host.restart()
    assert host.executor.observe() == ()


def test_progress_is_passed_on(host: Host) -> None:
    key = host.shell(
        "job",
        'echo "$REPORT" > $OPTSCHED_PROGRESS',
        environment={"REPORT": '{"step": 3, "at_s": 9.5}'},
    )
    seen = host.end(key).progress
    assert seen is not None and (seen.step, seen.at_s, seen.first_step, seen.total_steps) == (
        3,
        9.5,
        0,
        None,
    )


@pytest.mark.parametrize(
    "report",
    ["", "[", "[]", '{"step": "3", "at_s": 1}', '{"step": 1}', '{"step": true, "at_s": 1}', '{"step": -1, "at_s": 1}',  # noqa: E501
     '{"step": 1, "at_s": NaN}', "[" * 9999],
)  # fmt: skip
def test_progress_that_makes_no_sense_is_none(host: Host, report: str) -> None:
    key = host.shell("job", 'echo "$REPORT" > $OPTSCHED_PROGRESS', environment={"REPORT": report})
    assert host.end(key).progress is None


def test_progress_that_is_no_file_does_not_block(host: Host) -> None:
    key = host.shell("job", "mkfifo $OPTSCHED_PROGRESS")
    other = host.shell("other", "ln -s /etc/passwd $OPTSCHED_PROGRESS")
    assert host.end(key).progress is None
    assert host.end(other).progress is None


def test_others_cannot_read_records(host: Host) -> None:
    key = host.shell("job", "exit 0")
    host.end(key)
    for path in host.attempt(key).rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0 if path.is_file() else mode in (0o700, 0o711), path


def test_a_record_that_could_not_be_read_again_is_refused(host: Host) -> None:
    with pytest.raises(
        RefusedError, match=r"its record cannot be written .* longer than 1048576 bytes"
    ):
        host.shell("job", "exit 0", environment={f"A{i}": "\u00e9" * 30_000 for i in range(10)})
    assert not host.executor.observe()
    key = host.shell("job", "exit 0")
    assert host.end(key).exit_status == 0


def test_a_damaged_record_is_said(host: Host) -> None:
    key = host.shell("job", "exit 0")
    host.end(key)
    text = (host.attempt(key) / "spec.json").read_text()
    (host.attempt(key) / "spec.json").write_text(text[:50])
    host.restart()
    seen = host.see(key)
    assert (
        seen.state is AttemptState.UNREACHABLE
        and seen.reason
        and "spec.json is damaged" in seen.reason
    )
    (host.attempt(key) / "spec.json").write_text(text)
    host.restart()
    assert host.end(key).exit_status == 0


def _shim(host: Host, key: AttemptKey) -> int:
    pid = host.executor._attempts[key].began("n0")
    assert pid is not None
    return int(pid["shim"][0])


def test_cores(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    host = Host(tmp_path, [LocalNode(node=Node(name="n0", cpus=len(allowed)), emulate=True)])
    script = "import os, time; print(sorted(os.sched_getaffinity(0)), flush=True); time.sleep(600)"
    keys = [host.start(f"job{core}", sys.executable, "-c", script, gpus=0) for core in allowed]
    with pytest.raises(RefusedError, match="node n0 has fewer than 1 cores free"):
        host.shell("extra", "true", gpus=0)
    for key, core in zip(keys, allowed, strict=False):
        assert until(lambda key=key: host.printed(key)) == f"[{core}]\n"
    host.clear()
