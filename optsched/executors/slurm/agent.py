"""What a Slurm job runs on each of its nodes: `python -S -E agent.py FOLDER_OF_THE_ATTEMPT`.

It supervises the command as the shim of the local executor does, so that how a command ended, what
it used and what it left behind is known and dealt with in the same way, whether or not Slurm or a
controller still answers. It ends with status 0 whatever its command did: how that ended is in
`exit.json`, and Slurm is to draw no conclusions of its own.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..supervision import gang
else:
    sys.path[0] = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervision"
    )
    import gang


class SlurmSupervisor(gang.GangSupervisor):
    """A supervisor whose attempt may have other nodes, with clocks of their own, and whom Slurm may
    signal."""

    late = "Slurm did not start it within"
    gpus_in = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
    passed = (*gang.GangSupervisor.passed, "GPU_DEVICE_ORDINAL", "SLURM_JOB_ID")
    """The others would have libraries believe that there is one process for each Slurm task."""


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
