"""Supervises one command of an attempt whose nodes are several hosts: their files are on a file
system that all see, but no clock and no process of another host can be relied on.

Runs on nodes without the package (see `program`): standard library only, Python 3.10.
"""

import os
import signal
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import records
    from .supervisor import HEARD, Supervisor, alone
else:
    import records
    from supervisor import HEARD, Supervisor, alone

GATHER_EVERY_S = 0.1


class GangSupervisor(Supervisor):
    """A supervisor with peers on other hosts: all begin together, or none does."""

    late = "its manager did not start it within"
    """What is said of a node that is missing."""
    gpus_in: "tuple[str, ...]" = ("CUDA_VISIBLE_DEVICES",)
    """Variables in which the manager says which GPUs it gave, the surest first."""
    passed: "tuple[str, ...]" = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "TMPDIR")
    """Variables that the manager sets and the command gets."""

    def __init__(self, folder: str, spec: "dict[str, Any]", node: "dict[str, Any]") -> None:
        super().__init__(folder, spec, node)
        self.failed_path = f"{self.above}/progress/failed.json"  # where the job's user may write
        self._until_s: dict[tuple[float, float], float] = {}

    @classmethod
    def given(cls, wanted: int) -> "tuple[list[str], dict[str, str]]":
        """Return the ids of the GPUs that the manager gave to this process, which were to be
        `wanted`, and the variables of the manager's that the command gets."""
        listed = next((os.environ[name] for name in cls.gpus_in if os.environ.get(name)), "")
        passed = {name: os.environ[name] for name in cls.passed if name in os.environ}
        gpu_ids = [gpu for gpu in listed.split(",") if gpu] if wanted else []
        return gpu_ids, {"CUDA_VISIBLE_DEVICES": "", **passed}

    def run(self) -> None:
        """Run from the first process to the last, once all nodes of the gang are ready."""
        if self.gather():
            super().run()
            return
        ending = records.ending(None, self.never_began(), None, self.asked)
        records.write_reserved(f"{self.folder}/exit.json", ending)

    def never_began(self) -> "str | None":
        """Return why the command has not begun, where nobody else says it."""
        return None

    def stop_record(self) -> "dict[str, Any] | None":
        """Return that it is to end: its grace runs from when it is seen here, by the clock of this
        host."""
        stop = self.read_stop()
        if stop is None or stop["grace_s"] is None:
            return None if stop is None else {**stop, "until_monotonic_s": 0.0}
        asked = (stop["asked_s"], stop["grace_s"])
        until_s = self._until_s.setdefault(asked, time.monotonic() + asked[1])
        return {**stop, "until_monotonic_s": until_s}

    def read_stop(self) -> "dict[str, Any] | None":
        """Return that it is to end."""
        return records.read(f"{self.above}/stop.json")

    def wait(self, seconds: float) -> None:
        """Wait as any supervisor does, except that a SIGTERM is not passed on: managers send it to
        all processes of a job."""
        told = signal.sigtimedwait(HEARD, max(0.0, seconds))
        if told is not None and told.si_signo == signal.SIGTERM:
            self.stopping = True

    def fail(self, name: str, reason: str) -> None:
        """Have all of the gang end for want of a node."""
        failed = {"node": name, "status": None, "reason": reason}
        records.write_first(self.failed_path, failed)

    def gather(self) -> bool:
        """Wait for the others of the gang; False if it is not to begin."""
        timeout_s = self.spec["start_timeout_s"]
        until_s = time.monotonic() + timeout_s
        names = [node["name"] for node in self.spec["nodes"]]
        port = free_port() if len(names) > 1 and names[0] == self.node["name"] else None
        ready = {"gpu_ids": self.node.get("gpu_ids"), "port": port, "address": self.address()}
        records.write(f"{self.folder}/ready.json", ready, durable=False)
        told: dict[str, Any] = {}
        while True:
            self.look()
            if self.asked or self.stopping:
                return False
            for name in names:
                told[name] = told.get(name) or records.read(f"{self.above}/{name}/ready.json")
            missing = [name for name in names if told[name] is None]
            if not missing:
                break
            if time.monotonic() > until_s:
                self.fail(missing[0], f"{self.late} {timeout_s:g} s")
            self.wait(GATHER_EVERY_S)
        if len(names) > 1:
            first = told[names[0]]
            self.node["environment"]["MASTER_PORT"] = str(first["port"])
            if "MASTER_ADDR" not in self.spec["environment"]:
                self.node["environment"]["MASTER_ADDR"] = str(first["address"])
        return True

    def address(self) -> str:
        """Return where the others reach this host."""
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return socket.gethostname()


def supervise_here(
    attempt: str, name: str, make: "type[GangSupervisor]", **claim: "Any"
) -> "GangSupervisor | None":
    """Run what the spec of an attempt says for the node `name`, as the user that we are, and return
    its supervisor; None where that was done before. `claim` says who we are.
    """
    alone()
    folder = f"{attempt}/{name}"
    spec = records.read(f"{folder}/spec.json") or records.read(f"{attempt}/spec.json")
    node = None if spec is None else next((n for n in spec["nodes"] if n["name"] == name), None)
    if spec is None or node is None:
        return None  # forgotten
    gpu_ids, passed = make.given(node["gpus"])
    claim.update(gpu_ids=gpu_ids, at_s=time.time())
    if not records.write_first(f"{folder}/claim.json", claim):
        return None  # another job of this key was here, or this one was started again
    spec["user"] = None  # whom the manager has made us
    node["environment"].update(passed)
    supervisor = make(folder, spec, node)
    supervisor.run()
    return supervisor


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
