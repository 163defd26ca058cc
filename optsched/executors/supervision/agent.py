"""What a job of a batch system runs on its node: `python3 -S -E agent.py ATTEMPT NODE`.

Runs on nodes without the package (see `program`): standard library only, Python 3.10.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .gang import GangSupervisor, supervise_here
else:
    from gang import GangSupervisor, supervise_here

PASSED = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "TMPDIR")
"""Variables that the batch system sets for its job, and the command gets."""


class JobSupervisor(GangSupervisor):
    """A supervisor that runs as the user of the job, who may write into the folders `progress` and
    of the node only."""

    late = "its job there did not begin within"

    def __init__(self, folder: str, spec: "dict[str, Any]", node: "dict[str, Any]") -> None:
        super().__init__(folder, spec, node)
        self.failed_path = f"{self.above}/progress/failed.json"


def main(attempt: str, name: str) -> None:
    """Run what the attempt's spec says for this node, unless that was done before."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    claim = {"by": "job", "gpu_ids": [one for one in visible.split(",") if one]}
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    supervise_here(attempt, name, claim, {"CUDA_VISIBLE_DEVICES": "", **passed}, JobSupervisor)


if __name__ == "__main__":
    main(*sys.argv[1:3])
    sys.stderr.flush()
    os._exit(0)  # all is written; taking the interpreter down would only take time
