"""What a Slurm job runs on each of its nodes: `python -S -E agent.py FOLDER_OF_THE_ATTEMPT`.

It supervises the command as the shim of the local executor does, so that how a command ended, what
it used and what it left behind is known and dealt with in the same way, whether or not Slurm or a
controller still answers. It ends with status 0 whatever its command did: how that ended is in
`exit.json`, and Slurm is to draw no conclusions of its own.
"""

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..local import records, supervisor
else:
    sys.path[0] = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "local")
    import records
    import supervisor

FROM_SLURM = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_JOB_ID",
    "TMPDIR",
)
"""Variables that Slurm sets for each node and the command gets; the others would have libraries
believe that there is one process for each task of Slurm's."""
TOGETHER_S = 120.0
"""So long Slurm may take to start the last job of a gang after the first."""
TOGETHER_EVERY_S = 0.1
GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
"""Where Slurm says which GPUs it gave, the surest first."""


class SlurmSupervisor(supervisor.Supervisor):
    """A supervisor whose attempt may have other nodes, with clocks of their own, and whom Slurm may
    signal."""

    def __init__(self, folder: str, spec: "dict[str, Any]", node: "dict[str, Any]") -> None:
        super().__init__(folder, spec, node)
        self.failed_path = (
            f"{self.above}/progress/failed.json"  # where the user of the job may write
        )
        self._until_s: dict[float, float] = {}
        self._missing: str | None = None

    def run(self) -> None:
        """From the first process to the last, once all nodes of the gang are there."""
        if (
            len({node.get("part", 0) for node in self.spec["nodes"]}) > 1
        ):  # else Slurm starts all or none
            self._wait_for_all()
        super().run()

    def _wait_for_all(self) -> None:
        until_s = time.monotonic() + TOGETHER_S
        absent = [node["name"] for node in self.spec["nodes"]]
        while not (self.asked or self.stopping):
            absent = [
                name for name in absent if not os.path.exists(f"{self.above}/{name}/claim.json")
            ]
            if not absent:
                return
            if time.monotonic() > until_s:
                self._missing, self.stopping = absent[0], True
                records.write_first(self.failed_path, {"node": self.node["name"], "status": None})
                return
            self.wait(TOGETHER_EVERY_S)
            self.look()

    def clear(self) -> int:
        """End what the command left behind; how many processes that were."""
        left = super().clear()
        if self._missing is not None:
            self.status, self.reason = (
                None,
                f"Slurm did not start it on {self._missing} within {TOGETHER_S:g} s",
            )
        return left

    def stop_record(self) -> "dict[str, Any] | None":
        """That it is to end: its grace runs from when it is seen here, by the clock of this
        host."""
        stop = super().stop_record()
        if stop is None:
            return None
        grace_s = stop["grace_s"]
        if grace_s is None:
            return stop
        until_s = self._until_s.setdefault(stop["asked_s"], time.monotonic() + grace_s)
        return {**stop, "until_monotonic_s": until_s}

    def wait(self, seconds: float) -> None:
        """As of any supervisor, except that a SIGTERM is not passed on: Slurm sends it to all
        processes of a job."""
        told = signal.sigtimedwait(supervisor.HEARD, max(0.0, seconds))
        if told is not None and told.si_signo == signal.SIGTERM:
            self.stopping = True


def main(attempt: str) -> None:
    """Run what the attempt's spec says for this node, unless that was done before."""
    signal.pthread_sigmask(signal.SIG_BLOCK, supervisor.HEARD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, 1 << 20)
    name = os.environ["SLURMD_NODENAME"]
    spec = records.read(f"{attempt}/{name}/spec.json") or records.read(f"{attempt}/spec.json")
    node = (
        None if spec is None else next((one for one in spec["nodes"] if one["name"] == name), None)
    )
    if spec is None or node is None:
        return  # forgotten
    folder = f"{attempt}/{name}"
    gpus = (
        next((os.environ[one] for one in GPUS if os.environ.get(one)), "") if node["gpus"] else ""
    )
    claim = {
        "slurm_job": os.environ["SLURM_JOB_ID"],
        "restarts": os.environ.get("SLURM_RESTART_COUNT", "0"),
        "gpu_ids": gpus.split(",") if gpus else [],
    }
    if not records.write_first(f"{folder}/claim.json", claim):
        return  # another job of this key was here, or this one was started again
    spec["user"] = None  # whom Slurm has made us
    node["environment"].update(
        {name: os.environ[name] for name in FROM_SLURM if name in os.environ}
    )
    SlurmSupervisor(folder, spec, node).run()


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stderr.flush()
    os._exit(0)  # all is written; taking the interpreter down would only take time
