"""Supervises one command of an attempt on a node of Ray, where the local executor's supervisor does
so on this host.

What differs: the files are on a file system that several hosts share, so that no clock but a host's
own and no process of another host can be relied on; all nodes of a gang begin together or not at
all; and it ends when Ray ends the process that holds its GPUs (the *tether*).

Runs on nodes without the package (see `program`): standard library only.
"""

import hashlib
import os
import pwd
import select
import signal
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..local import cgroups, records
    from ..local.supervisor import GANG_GRACE_S, SAVED_AND_STOPPED, Supervisor
else:
    import cgroups
    import records
    from supervisor import GANG_GRACE_S, SAVED_AND_STOPPED, Supervisor

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Where Ray says which GPUs a job has."""
ENDED_BY_RAY = "Ray ended it: the node's raylet or the job's own supervisor is gone"
GATHER_EVERY_S = 0.1


class RaySupervisor(Supervisor):
    """One command on one node of Ray; `tether` is a pipe that closes when Ray's process ends."""

    def __init__(
        self, folder: str, spec: "dict[str, Any]", node: "dict[str, Any]", tether: int
    ) -> None:
        super().__init__(folder, _here(spec), _node_here(folder, spec, node))
        self.abandoned = False
        self._tether = select.poll()
        self._tether.register(tether, 0)  # a hang-up is always told
        self._stop: dict[str, Any] | None = None

    def run(self) -> None:
        """From the first process to the last, once all nodes of the gang are ready."""
        wanted, got = self.node["gpus"], len(self.node["gpu_ids"])
        if got != wanted:
            self._fail(self.node["name"], f"Ray gave it {got} of its {wanted} GPUs")
        if self._gather():
            super().run()
        else:
            reason = ENDED_BY_RAY if self.abandoned else None
            ending = {
                "status": None,
                "reason": reason,
                "asked": self.asked,
                "started_s": None,
                "ended_s": time.time(),
            }
            records.write_reserved(f"{self.folder}/exit.json", ending)

    def look(self) -> None:
        """Whether Ray or somebody else wants it to end. A grace counts from when it is seen here,
        by this clock."""
        now_s = time.monotonic()
        if not self.abandoned and self.kill_at_s > 0 and self._tether.poll(0):
            self.abandoned = self.stopping = True
            self.kill_at_s = 0.0
        stop = records.read(f"{self.above}/stop.json")
        if stop is not None and stop != self._stop:
            self._stop = stop
            until_s = 0.0 if stop["grace_s"] is None else now_s + stop["grace_s"]
            if until_s < self.kill_at_s:
                self.asked, self.kill_at_s, self.overdue = True, until_s, stop["overdue"]
        failed = None if self.asked or self.stopping else records.read(f"{self.above}/failed.json")
        if failed is not None:
            self.kill_at_s = min(self.kill_at_s, now_s + GANG_GRACE_S)
        if (self.asked or failed is not None) and not self.stopping:
            self.stopping = True
            if self.running and self.kill_at_s > 0:
                self.command.signal(signal.SIGTERM)

    def fail_gang(self) -> None:
        """Have the rest of the gang stop if this command failed."""
        if self.abandoned and self.status == -signal.SIGKILL:
            self._fail(self.node["name"], ENDED_BY_RAY)
            return
        ended_well = (0, SAVED_AND_STOPPED, -signal.SIGTERM) if self.asked else (0,)
        if (
            len(self.spec["nodes"]) == 1
            or self.status in ended_well
            or (self.stopping and not self.asked)
        ):
            return
        if (
            not self.asked or time.monotonic() < self.kill_at_s
        ):  # else all of the gang are killed alike
            records.write_first(
                f"{self.above}/failed.json", {"node": self.node["name"], "status": self.status}
            )

    def clear(self) -> int:
        """End what the command left behind; how many processes that were."""
        left = super().clear()
        if self.abandoned and self.status == -signal.SIGKILL:
            self.status, self.reason = None, ENDED_BY_RAY
        return left

    def _fail(self, name: str, reason: str) -> None:
        records.write_first(
            f"{self.above}/failed.json", {"node": name, "status": None, "reason": reason}
        )

    def _gather(self) -> bool:
        """Wait for the others of the gang; False if it is not to begin."""
        until_s = time.monotonic() + self.spec["start_timeout_s"]
        names = [node["name"] for node in self.spec["nodes"]]
        port = _free_port() if len(names) > 1 and names[0] == self.node["name"] else None
        ready = {"gpu_ids": self.node["gpu_ids"], "port": port, "host": socket.gethostname()}
        records.write(f"{self.folder}/ready.json", ready, durable=False)
        told: dict[str, Any] = {}
        while True:
            self.look()
            if self.asked or self.stopping:
                return False
            for name in names:
                found = None if name in told else records.read(f"{self.above}/{name}/ready.json")
                if found is not None:
                    told[name] = found
            missing = [name for name in names if name not in told]
            if not missing:
                break
            if time.monotonic() > until_s:
                self._fail(
                    missing[0], f"Ray did not start it within {self.spec['start_timeout_s']:g} s"
                )
            self.wait(GATHER_EVERY_S)
        if len(names) > 1:
            self.node["environment"]["MASTER_PORT"] = str(told[names[0]]["port"])
        return True


def _here(spec: "dict[str, Any]") -> "dict[str, Any]":
    """The spec with the environment that Ray gives to its jobs below its own."""
    environment = {
        name: value for name, value in os.environ.items() if name != "RAY_JOB_STOP_WAIT_TIME_S"
    }
    if spec["user"] is not None:
        account = pwd.getpwuid(spec["user"]["uid"])
        name = account.pw_name
        environment.update(
            HOME=account.pw_dir, USER=name, LOGNAME=name, SHELL=account.pw_shell or "/bin/sh"
        )
    return {**spec, "environment": {**environment, **spec["environment"]}}


def _node_here(folder: str, spec: "dict[str, Any]", node: "dict[str, Any]") -> "dict[str, Any]":
    visible = next((os.environ[name] for name in VISIBLE if os.environ.get(name)), "")
    gpu_ids = [each for each in visible.split(",") if each] if node["gpus"] else []
    environment = dict(node["environment"])
    if not node["gpus"]:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return {
        **node,
        "gpu_ids": gpu_ids,
        "environment": environment,
        "cgroups": groups_of(folder, spec),
    }


def groups_of(folder: str, spec: "dict[str, Any]") -> "dict[str, str]":
    """The control groups of the command, by kind."""
    tag = hashlib.sha256(folder.encode()).hexdigest()[:10]
    return {
        kind: f"{parent}/optsched-{spec['job']}-{tag}" for kind, parent in cgroups.parents().items()
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
