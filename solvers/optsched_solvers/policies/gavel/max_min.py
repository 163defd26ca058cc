"""Gavel's max-min fairness, which is also its policy of least attained service."""

from optsched.driver import World

from .active import Floats, weights_of
from .lp_rounds import LpOptions, LpRounds
from .program import Allocation, Program, most, most_alone


class GavelMaxMin(LpRounds):
    """Shares that give the worst-off job the most, each job's throughput counted in units of what
    it would get if its time were spread over the GPU types as the GPUs are, times its GPUs, over
    its weight.

    Where several shares do that, Gavel's simulator uses what an interior-point solver returns, and
    so does this policy: shares near the centre of all optimal ones, which spread whatever is not
    needed for the worst-off. A simplex method's corner instead gives most jobs no share of most
    types.

    Source: Narayanan et al., OSDI'20, sections 4.1 and 4.4.
    """

    name = "gavel-max-min"
    title = "Gavel's max-min fairness over GPU types, in rounds"
    Options = LpOptions

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return the optimal shares."""
        weight = weights_of(world, jobs)
        if program.pairs is None:
            return most_alone(program, normalised(program, weight)).allocation
        return most(
            program, weight * program.equal_rate() / program.pairs.gpus[program.pairs.kind_of_job]
        ).allocation


def normalised(program: Program, weight: Floats) -> Floats:
    """Return rates in units of the proportional share, times GPUs, over weight."""
    return program.rate * program.gpus / (program.equal_rate() * weight)[:, None]
