"""The first process of a pod's container: `python3 -S -E entry.py FOLDER_OF_THE_NODE`.

It supervises the command as the shim of the local executor does, so that how a command ended, what
it used and what it left behind is known and dealt with in the same way, whether or not an API
server or a controller still answers. When Kubernetes deletes or evicts the pod for reasons of its
own, that is a request to save, to all nodes of the attempt.

Runs in images without the package (see `program`): standard library only, Python 3.10.
"""

import os
import re
import signal
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..supervision import gang, memory, processes, records, supervisor
else:
    import gang
    import memory
    import processes
    import records
    import supervisor

VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Where device plugins say which GPUs a container has."""
LISTED = re.compile(r"UUID: ((?:GPU|MIG)-[^)\s]+)\)")
LIST_S = 10.0
ADDRESS, NODE = "OPTSCHED_POD_ADDRESS", "OPTSCHED_POD_NODE"
WRONG_NODE = 64
TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""With one of these, which is the image's choice, Kubernetes says that it will end the
container."""
DELETED = "its pod was deleted or evicted by somebody else"
OUT_OF_MEMORY = "its container ran out of memory"
OOM_KILLS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


class PodSupervisor(gang.GangSupervisor):
    """A supervisor whose attempt may have other nodes, with clocks of their own, in a container
    that may be deleted.

    It may run as the user of the job, who can write into the folders `progress` and of the node
    only.
    """

    late = "its pod did not start within"

    def __init__(self, folder: str, spec: "dict[str, Any]", node: "dict[str, Any]") -> None:
        inherited = {
            name: value for name, value in os.environ.items() if name not in (ADDRESS, NODE)
        }
        super().__init__(
            folder, {**spec, "environment": {**inherited, **spec["environment"]}}, node
        )
        print(
            f"optsched: what {spec['key']} prints is in {folder}/stdout and {folder}/stderr",
            flush=True,
        )
        self.told_path = f"{self.above}/progress/told.json"
        self._oom_kills = _oom_kills()

    @classmethod
    def given(cls, wanted: int) -> "tuple[list[str], dict[str, str]]":
        """Return the GPUs of the container."""
        gpu_ids, visible = _gpus(wanted)
        return gpu_ids, {"CUDA_VISIBLE_DEVICES": visible}

    def read_stop(self) -> "dict[str, Any] | None":
        """Return that it is to end, by whoever may say so."""
        if not os.path.lexists(f"{self.above}/spec.json"):  # forgotten: it was given up for lost
            return {"asked_s": 0.0, "grace_s": None, "overdue": None}
        for path in (f"{self.above}/stop.json", self.told_path):
            try:
                stop = records.read(path)
            except PermissionError:  # it is being replaced
                stop = None
            if stop is not None:
                return stop
        return None

    def address(self) -> str:
        """Return where the others reach this pod."""
        return os.environ.get(ADDRESS) or super().address()

    def wait(self, seconds: float) -> None:
        """Wait as any supervisor does, except for what Kubernetes says: a request to save, unless
        there was one."""
        told = signal.sigtimedwait(supervisor.HEARD, max(0.0, seconds))
        if told is not None and told.si_signo in TOLD and self.stop_record() is None:
            stop = {**records.stop(self.spec["grace_s"]), "lost": DELETED}
            records.write_first(self.told_path, stop)

    def fail_gang(self) -> None:
        """Have the rest of the gang stop if this command failed."""
        if (
            self.status == -signal.SIGKILL
            and self.reason is None
            and _oom_kills() > self._oom_kills
        ):
            self.reason = (
                memory.Watch.exceeded(self.limit_bytes) if self.limit_bytes else OUT_OF_MEMORY
            )
        super().fail_gang()


def main(folder: str) -> int:
    """Run what the attempt's spec says for this node, unless that was done before; the command's
    exit status."""
    above, name = os.path.split(folder)
    if os.environ.get(NODE, name) != name:
        print(
            f"optsched: this pod is for node {name}, and somebody bound it to {os.environ[NODE]}",
            flush=True,
        )
        return WRONG_NODE
    supervised = gang.supervise_here(above, name, PodSupervisor, by="pod")
    return 0 if supervised is None else processes.shell_status(supervised.status)


def _gpus(wanted: int) -> "tuple[list[str], str]":
    """Return ids of the container's GPUs as its node knows them, none where nobody says; and what
    the command is to see."""
    if not wanted:
        return [], ""
    numbered = ",".join(map(str, range(wanted)))
    for variable in VISIBLE:
        gpu_ids = [each for each in os.environ.get(variable, "").split(",") if each]
        if len(gpu_ids) == wanted and gpu_ids[0] not in ("all", "none", "void"):
            # numbers of the node's begin anew in a container
            by_number = variable != VISIBLE[0] and all(map(str.isdecimal, gpu_ids))
            return gpu_ids, numbered if by_number else ",".join(gpu_ids)
    gpu_ids = _listed_gpus()
    return (gpu_ids, ",".join(gpu_ids)) if len(gpu_ids) == wanted else ([], numbered)


def _listed_gpus() -> "list[str]":
    """Return what NVIDIA's own program lists, instances of divided GPUs (MIG) before the whole ones
    they are of."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=LIST_S
        ).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return []
    listed = LISTED.findall(said)
    return [each for each in listed if each.startswith("MIG-")] or listed


def _oom_kills() -> int:
    """Return how often the kernel has ended a process of this container for want of memory; control
    groups of version 2 or 1."""
    for path in OOM_KILLS:
        try:
            with open(path) as file:
                counts = dict(line.split() for line in file)
        except (OSError, ValueError):
            continue
        return int(counts.get("oom_kill", 0))
    return 0


if __name__ == "__main__":
    ended = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(ended)  # all is written; taking the interpreter down would only take time
