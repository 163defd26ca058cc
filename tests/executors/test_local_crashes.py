"""A controller that is killed at any step: what it began can be finished, and runs once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import AttemptState, Order
from optsched.executors.local import LocalExecutor
from optsched.executors.supervision import processes

from .conftest import Host, until

STEPS = (
    "mkdir",
    "chown",
    "open",
    "write",
    "fsync",
    "rename",
    "link",
    "close",
    "posix_spawn",
    "pidfd_open",
)
"""Calls of the operating system through which an executor changes anything."""
SHIM = Path(processes.__file__).with_name("shim.py")


class Killed:
    """Makes this process die right before or right after its n-th step."""

    def __init__(self, step: int, before: bool) -> None:
        self.left, self.before = step, before

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 and self.before:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*given, **named)
            finally:
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        return step


def die_at(step: int, before: bool, host: Host, act: Callable[[LocalExecutor], None]) -> bool:
    """Have a child do it and die at that step; False if there are fewer steps."""
    host.executor.close()
    child = os.fork()
    if child == 0:
        try:
            executor = LocalExecutor(host.folder, host.nodes)
            killed = Killed(step, before)
            for name in STEPS:
                setattr(os, name, killed.wrap(getattr(os, name)))
            act(executor)
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    host.executor = LocalExecutor(host.folder, host.nodes)
    assert status in (0, -signal.SIGKILL)
    return status == -signal.SIGKILL


def crash_starts(folder: Path, nodes: tuple[str, ...], stride: int) -> int:
    """Starts that die at every `stride`-th step, before and after it; how many that were."""
    pending: list[tuple[Order, Host]] = []
    step, more = 1, True
    while more:
        for before in (True, False):
            host = Host(folder / f"{'before' if before else 'after'}-{step}-{len(nodes)}")
            order = host.order("job", "/bin/sh", "-c", "echo $OPTSCHED_NODE >> runs", nodes=nodes)
            more = die_at(step, before, host, lambda executor, order=order: executor.start(order))
            if step % 2:
                time.sleep(
                    0.1
                )  # now and then its shims are there before the second start, now and then not
            host.executor.start(order)
            pending.append((order, host))
        step += stride
    for order, host in pending:
        seen = host.end(order.key)
        assert (seen.exit_status, seen.reason) == (0, None), host.folder
        assert sorted((host.folder / "runs").read_text().split()) == sorted(nodes), host.folder
        host.clear()
    return len(pending) - 1


def test_killed_at_steps_of_a_start(tmp_path: Path) -> None:
    assert crash_starts(tmp_path, ("n0",), stride=7) >= 8
    assert crash_starts(tmp_path, ("n0", "n1"), stride=11) >= 8


@pytest.mark.slow
def test_killed_at_every_step_of_a_start(tmp_path: Path) -> None:
    assert crash_starts(tmp_path, ("n0",), stride=1) >= 60
    assert crash_starts(tmp_path, ("n0", "n1"), stride=1) >= 80


def crash_ends(host: Host, stride: int) -> int:
    """Kills and stops of a running gang that die at every `stride`-th step; how many that were."""
    crashes = 0
    for verb in ("kill", "stop"):
        step, more = 1, True
        while more:
            key = host.shell(
                f"{verb}-{step}",
                "trap 'exit 85' TERM; sleep 600 & wait",
                nodes=("n0", "n1"),
                gpus=0,
            )
            host.reach(key, AttemptState.RUNNING)

            def act(executor: LocalExecutor, key: Any = key, verb: str = verb) -> None:
                executor.kill(key) if verb == "kill" else executor.checkpoint_stop(key, 60)

            more = die_at(step, True, host, act)
            crashes += more
            act(host.executor)
            seen = host.end(key)
            assert seen.exit_status in ((-9,) if verb == "kill" else (85, -15)), seen
            assert not host.processes(key)
            step += stride
    return crashes


def test_killed_at_steps_of_a_stop(host: Host) -> None:
    assert crash_ends(host, stride=8) >= 2


@pytest.mark.slow
def test_killed_at_every_step_of_a_stop(host: Host) -> None:
    assert crash_ends(host, stride=1) >= 10


@pytest.mark.slow
def test_killed_at_random_moments(host: Host) -> None:
    import random

    random_s = random.Random(7)
    for i in range(150):
        order = host.order(
            f"job{i}", "/bin/sh", "-c", f"echo run >> {i}.runs", nodes=("n0", "n1"), gpus=0
        )
        host.executor.close()
        child = os.fork()
        if child == 0:
            try:
                LocalExecutor(host.folder, host.nodes).start(order)
                time.sleep(60)
            finally:
                os._exit(0)
        time.sleep(random_s.uniform(0, 0.12))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        host.executor = LocalExecutor(host.folder, host.nodes)
        host.executor.start(order)
        assert host.end(order.key).exit_status == 0
        assert (host.folder / f"{i}.runs").read_text() == "run\nrun\n"
        host.executor.forget(order.key)


def test_killed_half_way_and_then_given_up(host: Host) -> None:
    """Where a start is not repeated but followed by a kill, nothing runs on."""
    for step in (20, 40, 60, 80):
        order = host.order(f"job-{step}", "/bin/sh", "-c", "sleep 600", nodes=("n0", "n1"), gpus=0)
        die_at(step, True, host, lambda executor, order=order: executor.start(order))
        host.executor.kill(order.key)
        host.end(order.key)
        host.executor.start(order)
        assert host.see(order.key).state is AttemptState.ENDED
        assert not host.processes(order.key)


def test_two_shims_run_one_command(host: Host) -> None:
    key = host.shell("job", "echo run >> runs; until test -e go; do sleep 0.05; done", gpus=0)
    folder = str(host.attempt(key) / "n0")
    assert until(
        (host.folder / "runs").exists
    )  # else one of the four may be the first, and waits for the end
    again = [subprocess.Popen([sys.executable, "-S", "-E", str(SHIM), folder]) for _ in range(4)]
    assert [shim.wait(60) for shim in again] == [0] * 4
    (host.folder / "go").touch()
    assert host.end(key).exit_status == 0
    assert (
        subprocess.run([sys.executable, "-S", "-E", str(SHIM), folder], check=False).returncode == 0
    )
    assert (host.folder / "runs").read_text() == "run\n"


def test_a_shim_survives_whoever_started_it(host: Host) -> None:
    host.executor.close()
    order = host.order("job", "/bin/sh", "-c", "until test -e go; do sleep 0.05; done; exit 5")
    child = os.fork()
    if child == 0:
        os.setsid()
        LocalExecutor(host.folder, host.nodes).start(order)
        os.killpg(0, signal.SIGKILL)
    os.waitpid(child, 0)
    host.executor = LocalExecutor(host.folder, host.nodes)
    host.reach(order.key, AttemptState.RUNNING)
    (host.folder / "go").touch()
    assert host.end(order.key).exit_status == 5


def test_a_record_of_a_start_that_was_cut_short_is_no_attempt(host: Host) -> None:
    order = host.order("job", "true")
    assert die_at(6, True, host, lambda executor: executor.start(order))
    assert not (host.attempt(order.key) / "spec.json").exists()
    assert host.executor.observe() == ()
    host.executor.start(order)
    assert until(lambda: host.see(order.key).exit_status == 0)
