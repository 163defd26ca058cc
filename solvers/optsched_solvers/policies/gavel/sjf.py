"""Gavel's shortest job first."""

import numpy as np

from optsched.driver import World

from .active import Floats
from .lp_rounds import HeterogeneityOption, LpRounds, remaining_s
from .program import Allocation, Program, alone


class GavelSjf(LpRounds):
    """All time on one GPU type each, in order of the time that is left on it: the smallest
    remaining work / throughput first, with the fastest type that has enough GPUs left; a job that
    finds none is passed over.

    The published objective, the smallest of these times over all jobs, fixes the first job only;
    here the same objective then goes for the others and the GPUs that are left.

    Source: Narayanan et al., OSDI'20, section 4.2.
    """

    name = "gavel-sjf"
    title = "Gavel's shortest remaining time first on one GPU type each, in rounds"
    Options = HeterogeneityOption

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return 1 on the type of each job that has one."""
        return alone(shortest_first(program, remaining_s(world, jobs)))


def shortest_first(program: Program, work_s: Floats) -> Floats:
    """Return the shares, for so much work of each job: again and again the job and type with the
    least time left."""
    left_s = np.where(
        program.rate > 0, work_s[:, None] / np.where(program.rate > 0, program.rate, 1.0), np.inf
    )
    free = program.workers.copy()
    share = np.zeros_like(program.rate)
    while True:
        left_s[program.gpus > free] = np.inf  # what is taken stays so
        i, k = divmod(int(left_s.argmin()), len(free))
        if not np.isfinite(left_s[i, k]):
            return share
        share[i, k] = 1.0
        free[k] -= program.gpus[i, k]
        left_s[i] = np.inf
