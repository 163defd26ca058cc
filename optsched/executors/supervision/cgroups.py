"""Control groups for an attempt, of version 2, of version 1 or of both, as the host has them.

Processes of an attempt are put in one group of each of up to three kinds: `memory` (limit),
`cpuset` (cores) and `kill` (all processes at once; version 2 only). In version 2 these are one and
the same folder. The shim imports this file by itself, without the package: standard library only,
and little of it.

Source: Linux kernel documentation, admin-guide/cgroup-v2.rst and admin-guide/cgroup-v1.
"""

import os
import time
from contextlib import suppress

PATIENCE_S = 1.0
"""A group of which all processes have ended may be busy for a moment more."""


def parents() -> dict[str, str]:
    """Return folders below which groups can be made, by kind; a kind that nobody here may use is
    left out."""
    by_kind: dict[str, str] = {}
    own = _own()
    for kind, point, mine in _mounts():
        ours = point + own.get(mine, "")
        folders = [
            folder
            for folder in dict.fromkeys((ours, os.path.dirname(ours), point))
            if folder.startswith(point) and os.access(folder, os.W_OK) and os.path.isdir(folder)
        ]
        if kind != "unified":
            by_kind.update({kind: folders[0]} if folders and kind not in by_kind else {})
            continue
        for folder in folders:
            kinds = _delegated(folder)
            if kinds != ["kill"] or folder == point:  # else one further up may have more
                by_kind.update(dict.fromkeys(kinds, folder))
                break
    return by_kind


def below(parents: "dict[str, str]", job: str, folder: str) -> "dict[str, str]":
    """Return the groups of a job's command on the node whose files are in `folder`, by kind."""
    import hashlib  # which shims do without

    tag = hashlib.sha256(folder.encode()).hexdigest()[:10]
    return {kind: f"{parent}/optsched-{job}-{tag}" for kind, parent in parents.items()}


def _mounts() -> list[tuple[str, str, str]]:
    """Return the kind, where it is mounted, and the key of our own group in it; version 2 first."""
    mounts = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, right = line.split(" - ")
            kind, _, options = right.split()[:3]
            point = left.split()[4]
            if kind == "cgroup2":
                mounts.append(("unified", point, ""))
            elif kind == "cgroup":
                mounts += [
                    (name, point, name)
                    for name in options.split(",")
                    if name in ("memory", "cpuset")
                ]
    return sorted(mounts, key=lambda entry: entry[0] != "unified")


def _own() -> dict[str, str]:
    """Return the group of this process by controller, "" for version 2, as a path below the mount
    ("" for its top)."""
    groups = {}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for name in controllers.split(","):
                groups[name] = path.rstrip("/")
    return groups


def _delegated(folder: str) -> list[str]:
    """Return what groups below a folder of version 2 can do; controllers that are there are
    switched on."""
    kinds = ["kill"]
    try:
        offered = _read(f"{folder}/cgroup.controllers").split()
        for name in ("memory", "cpuset"):
            if name in offered:
                _write(f"{folder}/cgroup.subtree_control", f"+{name}")
                kinds.append(name)
    except OSError:  # it holds processes itself, or is not ours to change
        pass
    return kinds


class Groups:
    """The groups of one attempt on one node."""

    def __init__(self, folders: dict[str, str]) -> None:
        """Take `folders`: where the group of each kind is (to be made)."""
        self.folders = folders

    def make(self, memory_bytes: int, cores: "list[int] | None") -> None:
        """Make them; one that cannot be made is left out. `memory_bytes` 0 is no limit."""
        wanted = {"kill": True, "memory": memory_bytes > 0, "cpuset": cores is not None}
        for kind in list(self.folders):
            try:
                if not wanted[kind]:
                    del self.folders[kind]
                    continue
                folder = self.folders[kind]
                os.makedirs(folder, exist_ok=True)
                if kind == "memory":
                    _limit_memory(folder, memory_bytes)
                elif kind == "cpuset" and cores is not None:
                    if not os.path.exists(f"{folder}/cgroup.controllers"):  # version 1 begins empty
                        _write(
                            f"{folder}/cpuset.mems", _read(f"{os.path.dirname(folder)}/cpuset.mems")
                        )
                    _write(f"{folder}/cpuset.cpus", ",".join(map(str, cores)))
            except OSError:
                lost = self.folders.pop(kind)
                if lost not in self.folders.values():
                    _remove(lost)

    def limits_memory(self) -> bool:
        """Return whether the kernel holds the memory limit."""
        return "memory" in self.folders

    def add(self, pid: int) -> None:
        """Put a process, and with it what it will start, into all groups."""
        for kind, folder in list(self.folders.items()):
            try:
                _write(f"{folder}/cgroup.procs", str(pid))
            except OSError:
                del self.folders[kind]
                if folder not in self.folders.values():
                    _remove(folder)

    def memory_exceeded(self) -> bool:
        """Return whether the kernel killed a process for the memory limit."""
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = _read(f"{self.folders['memory']}/{name}").splitlines()
            except (OSError, KeyError):
                continue
            return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)
        return False

    def pids(self) -> list[int]:
        """Return processes in any of the groups."""
        pids: dict[int, None] = {}
        for folder in self.folders.values():
            try:
                pids.update(dict.fromkeys(map(int, _read(f"{folder}/cgroup.procs").split())))
            except OSError:
                continue
        return list(pids)

    def kill(self) -> None:
        """Send SIGKILL to all processes of the group at once, where the kernel can."""
        if "kill" in self.folders:
            with suppress(OSError):  # before Linux 5.14, or the group is gone
                _write(f"{self.folders['kill']}/cgroup.kill", "1")

    def remove(self) -> None:
        """Remove the groups, whose processes have ended."""
        for folder in dict.fromkeys(self.folders.values()):
            _remove(folder)


def _limit_memory(folder: str, limit_bytes: int) -> None:
    if os.path.exists(f"{folder}/memory.max"):
        _write(f"{folder}/memory.max", str(limit_bytes))
        settings = {"memory.swap.max": "0", "memory.oom.group": "1"}
    else:
        _write(f"{folder}/memory.limit_in_bytes", str(limit_bytes))
        settings = {"memory.memsw.limit_in_bytes": str(limit_bytes)}
    for name, value in settings.items():
        with suppress(OSError):  # kernels without accounting of swap
            _write(f"{folder}/{name}", value)


def _remove(folder: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while os.path.isdir(folder) and time.monotonic() < until_s:
        try:
            os.rmdir(folder)
        except OSError:
            time.sleep(0.005)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
