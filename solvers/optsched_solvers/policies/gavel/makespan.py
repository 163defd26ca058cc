"""Gavel's minimum makespan."""

from optsched.driver import World

from .lp_rounds import LpOptions, LpRounds, remaining_s
from .program import Allocation, Program, most


class GavelMakespan(LpRounds):
    """Shares with which the last of the present jobs would be done soonest if they were kept.

    The smallest T with throughput >= remaining work / T for every job: 1 / T is the most that every
    job's throughput can be of its remaining work, so one program finds it without a search over T.

    Source: Narayanan et al., OSDI'20, section 4.2, and the public code's later form for the single
    program.
    """

    name = "gavel-makespan"
    title = "Gavel's minimum makespan over GPU types, in rounds"
    Options = LpOptions

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return the optimal shares."""
        return most(program, remaining_s(world, jobs)).allocation
