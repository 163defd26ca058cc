"""Processes of this host: who they are beyond their number, and which belong to an attempt (Linux,
/proc).

The shim imports this file by itself, without the package: standard library only, and little of it.
"""

import os
import signal
from contextlib import suppress

TYPE_CHECKING = False  # importing `typing` would cost each shim milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable

    from .cgroups import Groups

Identity = tuple[int, int]
"""Process id and start time (field 22 of /proc/PID/stat): within one boot no two processes share
both."""

SIGNALLED = 128
"""Shells add to this the number of the signal that ended a command."""


def boot_id() -> str:
    """Return the host's boot id, which changes with each start of it."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _stat(pid: int) -> list[str] | None:
    """Return fields of /proc/PID/stat from the third (state) on; None where there is no such
    process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    return text[text.rindex(b")") + 2 :].decode().split()


def identity(pid: int) -> Identity | None:
    """Return who has this number now; None if nobody."""
    fields = _stat(pid)
    return None if fields is None else (pid, int(fields[19]))


def alive(process: Identity) -> bool:
    """Return whether it still runs; one that has ended and waits for its parent does not."""
    fields = _stat(process[0])
    return fields is not None and int(fields[19]) == process[1] and fields[0] not in "ZX"


def open_pidfd(process: Identity) -> int | None:
    """Return a descriptor that becomes readable when the process ends, None if it has."""
    try:
        descriptor = os.pidfd_open(process[0])
    except OSError:
        return None
    if not alive(process):  # the number may have passed on before it was opened
        os.close(descriptor)
        return None
    return descriptor


def send(process: Identity, number: int) -> None:
    """Send a signal to this very process, unless it is gone."""
    descriptor = open_pidfd(process)
    if descriptor is None:
        return
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def send_all(pids: list[int], number: int) -> None:
    """Send a signal to each that is there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def every() -> list[int]:
    """Return all process ids."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def descendants(root: int) -> list[int]:
    """Return children of `root`, their children and so on, without those that have ended and wait
    to be reaped."""
    children = _children if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _table()
    pids, rest = [], [root]
    while rest:
        for pid in children(rest.pop()):
            rest.append(pid)
            fields = _stat(pid)
            if fields is not None and fields[0] not in "ZX":
                pids.append(pid)
    return pids


def _children(pid: int) -> list[int]:
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += map(int, file.read().split())
    except OSError:  # it or one of its threads has just ended
        pass
    return pids


def _table() -> "Callable[[int], list[int]]":
    """Return what `_children` does, for kernels that do not list them."""
    children: dict[int, list[int]] = {}
    for pid in every():
        fields = _stat(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    return lambda pid: children.get(pid, [])


def marks(attempt: str, node: str) -> tuple[str, str]:
    """Return variables that only what runs of an attempt on this node has; `attempt` is its
    folder."""
    return f"OPTSCHED_PROGRESS={attempt}/progress/progress.json", f"OPTSCHED_NODE={node}"


def marked(*marks: bytes) -> list[int]:
    """Return processes in whose first environment all `marks` ("NAME=value") stand, as far as we
    may look into them."""
    pids = []
    for pid in every():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:
            continue
        if all(mark in environment for mark in marks):
            pids.append(pid)
    return pids


def kill_leftovers(groups: "Groups", shim: "Identity | None", attempt: str, node: str) -> bool:
    """Kill what runs on of an attempt's node although its supervisor `shim` is gone; True once
    nothing does."""
    left = {*groups.pids(), *marked(*(mark.encode() for mark in marks(attempt, node)))}
    if shim is not None:
        left.update(in_session(shim))
    groups.kill()
    send_all(list(left), signal.SIGKILL)
    if not left:
        groups.remove()
    return not left


def shell_status(status: "int | None") -> int:
    """Return the exit status by which a shell tells how a command ended, 1 where nobody knows."""
    return 1 if status is None else SIGNALLED - status if status < 0 else status


def in_session(leader: Identity) -> list[int]:
    """Return processes of the session that `leader` began and has left by ending; none if its
    number has passed on."""
    now = _stat(leader[0])
    if now is not None and int(now[19]) != leader[1]:
        return []
    pids = []
    for pid in every():
        fields = _stat(pid)
        if fields is not None and int(fields[3]) == leader[0] and fields[0] not in "ZX":
            pids.append(pid)
    return pids


def resident_bytes(pids: list[int]) -> int:
    """Return the memory they hold, what several share counted for each: cheap, and never too
    little."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                total += int(file.read().split()[1])
        except (OSError, IndexError):
            continue
    return total * os.sysconf("SC_PAGESIZE")


def proportional_bytes(pids: list[int]) -> int:
    """Return the memory they hold, what n processes share counted for one nth each."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total += next(
                    int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:")
                )
        except (OSError, StopIteration):
            continue
    return total


def become_subreaper() -> None:
    """Have processes whose parent ends become children of this one, whatever their session."""
    import ctypes

    pr_set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become subreaper")
