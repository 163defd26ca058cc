"""What a job of a batch system runs on its node: `python3 -S -E agent.py ATTEMPT NODE`.

Runs on nodes without the package (see `program`): standard library only, Python 3.10.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .gang import GangSupervisor, supervise_here
else:
    from gang import GangSupervisor, supervise_here


class JobSupervisor(GangSupervisor):
    """A supervisor that runs as the user of the job, who may write into the folders `progress` and
    of the node only."""

    late = "its job there did not begin within"


if __name__ == "__main__":
    supervise_here(sys.argv[1], sys.argv[2], JobSupervisor, by="job")
    sys.stderr.flush()
    os._exit(0)  # all is written; taking the interpreter down would only take time
