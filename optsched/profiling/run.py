"""Runs a command for a limited time and watches it from outside."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..executors.attempts.folder import Report
from ..executors.base import SAVED_AND_STOPPED, AttemptKey, Order, Progress
from ..executors.orders import told, told_on_node
from ..executors.supervision.processes import alive, descendants, identity, marked, send
from ..frozen import frozen
from ..model import Slot
from .gpus import Gpus, GpuSample
from .host import HostSample, end_group, sample
from .reports import HOOK, HookReport, read_hook, steps_of_hook

LOOK_EVERY_S = 0.02
SAMPLE_EVERY_S = 0.2
"""How often processes and GPUs are looked at, less often where a look takes more than a twentieth
of that."""
TAIL_BYTES = 2000
GONE_WITHIN_S = 10.0
"""A killed process ends once the kernel runs it; one that waits for a dead disk does not."""


@frozen
class Setting:
    """How a command is run: on these `cores`, its checkpoints in a folder of their own, for at most
    `for_s` until it is asked to stop and `grace_s` more until it is killed."""

    argv: tuple[str, ...]
    for_s: float
    grace_s: float
    cores: tuple[int, ...]
    gpus: int
    nvml: Gpus | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Watched:
    """What was seen of one run; times are of the monotonic clock, `progress` has them beside each
    report.

    `asked_s` is None where the command ended by itself, `killed` says that it was still there after
    the grace, and `left_behind` how many processes outside its process group outlived it and were
    killed.
    """

    started_s: float
    ended_s: float = 0.0
    asked_s: float | None = None
    killed: bool = False
    exit_status: int = 0
    progress: list[tuple[float, Progress]] = field(default_factory=list)
    hook: HookReport | None = None
    host: list[HostSample] = field(default_factory=list)
    peak_bytes: int = 0
    gpus: list[GpuSample] = field(default_factory=list)
    saved_bytes: int | None = None
    left_behind: int = 0
    output: str = ""

    @property
    def saved_and_stopped(self) -> bool:
        """Tell whether it was asked to stop and did so as the contract says."""
        return (
            self.asked_s is not None and not self.killed and self.exit_status == SAVED_AND_STOPPED
        )

    @property
    def until_s(self) -> float:
        """Return the time until which it ran undisturbed."""
        return self.ended_s if self.asked_s is None else self.asked_s

    @property
    def saves(self) -> list[tuple[float, float, int | None]]:
        """Return what the hook saw it save."""
        return [] if self.hook is None else self.hook.saves


def run(
    setting: Setting, scratch: Path, checkpoints: Path, attempt: int, until_steps: int | None = None
) -> Watched:
    """Run the command once; `scratch` is an empty folder for what is reported. Where `until_steps`
    is given it is asked to stop after so many already. Nothing of it is left when this returns or
    raises. Raises InputError where it cannot be started."""
    import psutil  # before it starts, as that takes a while

    reported, output = scratch / "progress.json", scratch / "output"
    hook = scratch / "hook"
    hook.mkdir()
    checkpoints.mkdir(exist_ok=True)
    environment = _environment(setting, reported, hook, checkpoints, attempt)
    with output.open("wb") as out:
        started_s, offset_s = time.monotonic(), time.time() - time.monotonic()
        process = _start(setting, environment, out)
    watched = Watched(started_s=started_s)
    try:
        with _ended(process.pid) as ended:
            root = psutil.Process(process.pid)
            _watch(setting, root, ended, watched, reported, hook, offset_s, until_steps)
    finally:
        end_group(process.pid)
        process.wait()
        watched.left_behind = _end_rest(_mark(hook), process.pid)
    watched.exit_status = process.returncode
    watched.hook = read_hook(hook)
    if watched.asked_s is not None:
        watched.saved_bytes = _written_since(checkpoints, watched.asked_s + offset_s)
    watched.output = _tail(output)
    return watched


def _watch(
    setting: Setting,
    root: Any,
    ended: Any,
    watched: Watched,
    reported: Path,
    hook: Path,
    offset_s: float,
    until_steps: int | None,
) -> None:
    report = Report(reported)
    whose = partial(_whose, root.pid, hook)
    deadline_s, sample_at_s = watched.started_s + setting.for_s, watched.started_s
    latest: Progress | None = None
    steps = 0
    while True:
        gone = bool(ended.poll(LOOK_EVERY_S * 1000))
        now_s = time.monotonic()
        progress = report.progress()
        if progress is not None and progress != latest:
            latest = progress
            watched.progress.append((min(progress.at_s - offset_s, now_s), progress))
        if gone:
            watched.ended_s = now_s
            return
        if now_s >= sample_at_s:
            seen = sample(root, now_s)
            if seen is not None:
                watched.host.append(seen[0])
                watched.peak_bytes = max(watched.peak_bytes, seen[0].memory_bytes, seen[1])
            if setting.nvml is not None:
                watched.gpus.extend(setting.nvml.sample(now_s, whose))
            took_s = time.monotonic() - now_s
            sample_at_s = now_s + max(SAMPLE_EVERY_S, 20 * took_s)
            if until_steps is not None and steps < until_steps:
                steps = max(steps, steps_of_hook(hook))
        if latest is not None:
            steps = max(steps, latest.step - latest.first_step)
        if watched.asked_s is None:
            if now_s >= deadline_s or (until_steps is not None and steps >= until_steps):
                watched.asked_s, deadline_s = now_s, now_s + setting.grace_s
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(root.pid, signal.SIGTERM)
        elif now_s >= deadline_s and not watched.killed:
            watched.killed = True
            end_group(root.pid)


def _whose(root: int, hook: Path, pids: Set[int]) -> tuple[Set[int], Set[int]]:
    """Return which of some processes are of the command, and which of others on this host."""
    own = pids & {root, *descendants(root)}
    left = {pid for pid in pids - own if identity(pid) is not None}
    daemons = left and left.intersection(marked(_mark(hook)))  # they descend from nobody any more
    return own | daemons, left - daemons


def _mark(hook: Path) -> bytes:
    """Return the variable that all processes of the command have."""
    return f"OPTSCHED_PROFILE={hook}".encode()


def _environment(
    setting: Setting, reported: Path, hook: Path, checkpoints: Path, attempt: int
) -> dict[str, str]:
    """Return what an executor would set, and what the hook needs."""
    whole = Order(
        key=AttemptKey("profile", attempt),
        placement=(Slot(node=socket.gethostname(), gpus=setting.gpus, cpus=len(setting.cores)),),
        argv=setting.argv,
        directory=os.getcwd(),
        checkpoint_directory=str(checkpoints),
    )
    variables = {
        **os.environ,
        **setting.environment,
        **told(whole, reported),
        **told_on_node(whole, 0),
        "OPTSCHED_PROFILE": str(hook),
    }
    paths = (str(HOOK), variables.get("PYTHONPATH"))
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if setting.nvml is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(setting.nvml.ids)
    elif setting.gpus == 0:
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables


def _start(setting: Setting, environment: dict[str, str], output: Any) -> "subprocess.Popen[bytes]":
    program = setting.argv[0]
    if os.sep not in program and shutil.which(program, path=environment.get("PATH")) is None:
        raise InputError(
            f"the command {program!r} is not found; give the path of a program, or a name on PATH"
        )
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, setting.cores)  # of this thread only; what it starts inherits it
    try:
        return subprocess.Popen(
            setting.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"the command {program!r} cannot be started: {reason}") from None
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _ended(pid: int) -> Iterator[Any]:
    """Yield a poll object that is ready once the process has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        yield poll
    finally:
        os.close(descriptor)


def _end_rest(mark: bytes, group: int) -> int:
    """Kill what still runs of a command whose process group has been killed, and wait until it is
    gone; return how many processes had left the group."""
    until_s, outside = time.monotonic() + GONE_WITHIN_S, set()
    while left := [who for who in map(identity, marked(mark)) if who and alive(who)]:
        for who in left:
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(who[0]) != group:
                    outside.add(who)
            send(who, signal.SIGKILL)
        if time.monotonic() >= until_s:
            break
        time.sleep(LOOK_EVERY_S)
    return len(outside)


def _written_since(folder: Path, since_s: float) -> int | None:
    """Return bytes of the files written since a Unix time; None where there are none. What was
    written before is an earlier checkpoint."""
    sizes = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            seen = path.lstat()
            if path.is_file() and seen.st_mtime >= since_s - 0.01:
                sizes.append(seen.st_size)
    return sum(sizes) if sizes else None


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
