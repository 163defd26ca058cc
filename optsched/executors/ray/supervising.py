"""Supervises one command of an attempt on a node of Ray, where the local executor's supervisor does
so on this host.

What differs: the files are on a file system that several hosts share, so that no clock but a host's
own and no process of another host can be relied on; all nodes of a gang begin together or not at
all; and it ends when Ray ends the process that holds its GPUs (the *tether*).

Runs on nodes without the package (see `program`): standard library only.
"""

import os
import pwd
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..supervision import cgroups
    from ..supervision.gang import GangSupervisor
    from ..supervision.supervisor import Supervisor
else:
    import cgroups
    from gang import GangSupervisor
    from supervisor import Supervisor

ENDED_BY_RAY = "Ray ended it: the node's raylet or the job's own supervisor is gone"


class RaySupervisor(GangSupervisor):
    """One command on one node of Ray; `tether` is a pipe that closes when Ray's process ends."""

    late = "Ray did not start it within"
    gpus_in = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

    def __init__(
        self, folder: str, spec: "dict[str, Any]", node: "dict[str, Any]", tether: int
    ) -> None:
        super().__init__(folder, _here(spec), _node_here(folder, spec, node))
        self.failed_path = f"{self.above}/failed.json"
        self.abandoned = False
        self._tether = select.poll()
        self._tether.register(tether, 0)  # a hang-up is always told

    def run(self) -> None:
        """Run from the first process to the last, once all nodes of the gang are ready."""
        wanted, got = self.node["gpus"], len(self.node["gpu_ids"])
        if got != wanted:
            self.fail(self.node["name"], f"Ray gave it {got} of its {wanted} GPUs")
        super().run()

    def never_began(self) -> "str | None":
        """Return why the command has not begun."""
        return ENDED_BY_RAY if self.abandoned else None

    def wait(self, seconds: float) -> None:
        """Wait until a signal comes, which is dealt with, or time is up."""
        Supervisor.wait(self, seconds)

    def look(self) -> None:
        """See whether Ray or somebody else wants it to end."""
        if not self.abandoned and self.kill_at_s > 0 and self._tether.poll(0):
            self.abandoned = self.stopping = True
            self.kill_at_s = 0.0
        super().look()

    def fail_gang(self) -> None:
        """Have the rest of the gang stop if this command failed."""
        if self.abandoned and self.status == -signal.SIGKILL:
            self.fail(self.node["name"], ENDED_BY_RAY)
            return
        super().fail_gang()

    def clear(self) -> int:
        """End what the command left behind; return how many processes that were."""
        left = super().clear()
        if self.abandoned and self.status == -signal.SIGKILL:
            self.status, self.reason = None, ENDED_BY_RAY
        return left


def _here(spec: "dict[str, Any]") -> "dict[str, Any]":
    """Return the spec with the environment that Ray gives to its jobs below its own."""
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
    gpu_ids, _ = RaySupervisor.given(node["gpus"])
    hidden = {} if node["gpus"] else {"CUDA_VISIBLE_DEVICES": ""}
    return {
        **node,
        "gpu_ids": gpu_ids,
        "environment": {**node["environment"], **hidden},
        "cgroups": cgroups.below(cgroups.parents(), spec["job"], folder),
    }
