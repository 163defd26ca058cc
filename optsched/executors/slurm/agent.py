"""What a Slurm job runs on each of its nodes: `python -S -E agent.py FOLDER_OF_THE_ATTEMPT`.

It supervises the command as the shim of the local executor does, so that how a command ended, what
it used and what it left behind is known and dealt with in the same way, whether or not Slurm or a
controller still answers. It ends with status 0 whatever its command did: how that ended is in
`exit.json`, and Slurm is to draw no conclusions of its own.
"""

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..supervision import gang, records
else:
    sys.path[0] = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervision"
    )
    import gang
    import records

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


class SlurmSupervisor(gang.GangSupervisor):
    """A supervisor whose attempt may have other nodes, with clocks of their own, and whom Slurm may
    signal."""

    def __init__(self, folder: str, spec: "dict[str, Any]", node: "dict[str, Any]") -> None:
        super().__init__(folder, spec, node)
        self._missing: str | None = None

    @classmethod
    def given(cls, wanted: int) -> "tuple[list[str], dict[str, str]]":
        """Return the GPUs that Slurm gave to this job on this node."""
        gpus = next((os.environ[name] for name in GPUS if os.environ.get(name)), "")
        passed = {name: os.environ[name] for name in FROM_SLURM if name in os.environ}
        return gpus.split(",") if gpus else [], passed

    def gather(self) -> bool:
        """Wait for all nodes of the gang to be there."""
        if (
            len({node.get("part", 0) for node in self.spec["nodes"]}) > 1
        ):  # else Slurm starts all or none
            self._wait_for_all()
        return True

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


if __name__ == "__main__":
    gang.supervise_here(
        sys.argv[1],
        os.environ["SLURMD_NODENAME"],
        SlurmSupervisor,
        slurm_job=os.environ["SLURM_JOB_ID"],
        restarts=os.environ.get("SLURM_RESTART_COUNT", "0"),
    )
    sys.stderr.flush()
    os._exit(0)  # all is written; taking the interpreter down would only take time
