"""A container of a pod as processes of this host: its command in namespaces of its own, with
exactly its environment.

It has the host's files, and its volumes must be at the same paths there; it sees neither the host's
processes nor its control groups, and ends as a whole when its first process does. Devices are names
only.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optsched.executors.supervision import processes

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CAPABILITIES = (
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "net_bind_service",
    "net_raw",
    "sys_chroot",
    "mknod",
    "audit_write",
    "setfcap",
)
"""What containers get unless their pod says otherwise."""
REFERENCE = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
LOOK_S = 0.2
"""How often memory is looked at."""


class CannotStartError(Exception):
    """The container is never run: reason and message as in its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` by its value where there is one, `$$` by `$`."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] == "$" else variables.get(found[2], found[0])

    return REFERENCE.sub(value, text)


def variables(
    pod: Mapping[str, Any], container: Mapping[str, Any], devices: Mapping[str, str]
) -> dict[str, str]:
    """Its environment, as a node makes it. Raises CannotStartError."""
    made = {"PATH": PATH, "HOME": "/root", "HOSTNAME": pod["metadata"]["name"], **devices}
    for entry in container.get("env") or []:
        source = entry.get("valueFrom")
        made[entry["name"]] = (
            expand(entry.get("value") or "", made) if source is None else _field(pod, source)
        )
    return made


def _field(pod: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    path = (source.get("fieldRef") or {}).get("fieldPath", "")
    named = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if named is not None:
        return str((pod["metadata"].get(named[1]) or {}).get(named[2], ""))
    found: Any = {**pod, "status": {"podIP": "127.0.0.1", "hostIP": "127.0.0.1"}}
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        raise CannotStartError(
            "CreateContainerConfigError", f"this node cannot give a container {source}"
        )
    return str(found)


def check_volumes(pod: Mapping[str, Any], container: Mapping[str, Any]) -> None:
    """Have the folders of its volumes, which are where they are mounted. Raises
    CannotStartError."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or []}
    for mount in container.get("volumeMounts") or []:
        volume, at = volumes[mount["name"]], Path(mount["mountPath"])
        host = volume.get("hostPath")
        if mount.get("subPath") or (host is not None and Path(host["path"]) != at):
            raise CannotStartError(
                "CreateContainerError", f"{at}: this node mounts folders under their own names only"
            )
        if host is not None and host.get("type") == "DirectoryOrCreate":
            at.mkdir(parents=True, exist_ok=True)
        if host is None and not {"persistentVolumeClaim", "nfs", "emptyDir"} & set(volume):
            raise CannotStartError(
                "CreateContainerError", f"{at}: this node has no volumes such as {volume}"
            )
        if not at.is_dir():
            raise CannotStartError("CreateContainerError", f"{at} is not a directory")


class Container:
    """One that runs. `ended` is its exit status as a runtime tells it (128 + signal), None until
    then."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        container: Mapping[str, Any],
        devices: Mapping[str, str],
        log: Path,
    ) -> None:
        """Start it; what it prints goes to `log`. Raises CannotStartError."""
        check_volumes(pod, container)
        environment = variables(pod, container, devices)
        command = [
            expand(word, environment)
            for word in [*(container.get("command") or []), *(container.get("args") or [])]
        ]
        directory = container.get("workingDir") or "/"
        Path(directory).mkdir(parents=True, exist_ok=True)
        if not command or shutil.which(command[0], path=environment["PATH"]) is None:
            what = repr(command[0]) if command else "no command"
            raise CannotStartError(
                "StartError", f"exec: {what}: executable file not found in $PATH"
            )
        limits = (container.get("resources") or {}).get("limits") or {}
        self._limit = quantity(limits["memory"]) if "memory" in limits else None
        self.out_of_memory = self._killed = False
        self.ended: int | None = None
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*_inside(_security(pod, container)), *command],
                env=environment,
                cwd=directory,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=ends_with_its_parent,
            )
        self.started_s = time.time()

    def wait(self) -> int:
        """Until it ends; from the thread that started it."""
        while self.ended is None:
            try:
                status = self._process.wait(None if self._limit is None else LOOK_S)
                if (
                    self._killed
                ):  # unshare does not pass a SIGKILL on, which can only have come from here
                    status = -signal.SIGKILL
                self.ended = 128 - status if status < 0 else status
            except subprocess.TimeoutExpired:
                if processes.resident_bytes(self._pids()) > (self._limit or 0):
                    self.out_of_memory = True
                    self.kill()
        return self.ended

    def _pids(self) -> list[int]:
        return processes.descendants(self._process.pid)

    def _first(self) -> int | None:
        return next(iter(self._pids()), None)

    def stop(self) -> None:
        """SIGTERM to its first process."""
        end_s = time.monotonic() + 5
        while self.ended is None and (first := self._first()) is None and time.monotonic() < end_s:
            time.sleep(0.01)
        if self.ended is None and first is not None:
            processes.send_all([first], signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self._killed = True
        processes.send_all(self._pids(), signal.SIGKILL)


def _security(pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, Any]:
    of_pod = {
        name: value
        for name, value in (pod["spec"].get("securityContext") or {}).items()
        if value is not None
    }
    return {**of_pod, **(container.get("securityContext") or {})}


def _inside(security: Mapping[str, Any]) -> list[str]:
    """Words before a command that put it into a container."""
    changed = security.get("capabilities") or {}
    dropped = {name.lower() for name in changed.get("drop") or []}
    kept = [name for name in CAPABILITIES if "all" not in dropped and name not in dropped]
    kept += [name.lower() for name in changed.get("add") or []]
    bounding = ",".join(["-all", *(f"+{name}" for name in kept)])
    user, group = security.get("runAsUser"), security.get("runAsGroup")
    words = ["setpriv", f"--bounding-set={bounding}", f"--inh-caps={bounding}", "--pdeathsig=KILL"]
    if user is not None or group is not None:
        groups = [
            *(security.get("supplementalGroups") or []),
            *filter(None, [security.get("fsGroup")]),
        ]
        words += [f"--reuid={user or 0}", f"--regid={group or 0}"]
        words += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    if security.get("allowPrivilegeEscalation") is False:
        words.append("--no-new-privs")
    hide = 'mount -t tmpfs -o ro none /sys/fs/cgroup && exec "$@"'
    namespaces = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    return [*namespaces, "--", "/bin/sh", "-c", hide, "sh", *words, "--"]


SUFFIXES = {
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def quantity(text: str | int) -> float:
    """A Kubernetes quantity, as `500m` or `4Gi`."""
    found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)([a-zA-Z]*)", str(text))
    assert found is not None, text
    return float(found[1]) * (SUFFIXES[found[2]] if found[2] else 1)


def crash(pid: int) -> None:
    """SIGKILL to a process and all below it."""
    processes.send_all([pid], signal.SIGSTOP)
    below = processes.descendants(pid)
    processes.send_all([*below, pid], signal.SIGKILL)


def ends_with_its_parent() -> None:
    """For a process that is being started: it is killed when the thread that started it ends."""
    import ctypes

    pr_set_pdeathsig = 1
    if ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0) != 0:
        os._exit(1)
