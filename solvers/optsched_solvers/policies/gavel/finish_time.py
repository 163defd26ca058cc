"""Gavel's finish-time fairness (Themis' objective over GPU types)."""

import math
from typing import NamedTuple

import numpy as np

from optsched.driver import World

from .active import Floats
from .lp_rounds import LpOptions, LpRounds, remaining_s
from .program import Allocation, Program, most

GAP = 3e-5
MOST_ROUNDS = 60
HALVED = 0.7
"""Power of the distance of ratio and bound to which a step should bring it."""


class Fairest(NamedTuple):
    """`rho` is the largest ratio under the allocation; none has a smaller one than `bound`."""

    allocation: Allocation
    rho: float
    bound: float


def fairest(program: Program, age_s: Floats, alone_s: Floats, work_s: Floats) -> Fairest:
    """Minimise the largest (age + work / throughput) / alone, the time alone being > 0.

    The program is not linear, but whether a ratio rho can be had is: every throughput must reach
    work / (rho * alone - age). Let F(rho) be the largest part of that which all can have. It grows
    at least as fast as rho, so that no ratio is below rho / max(1, F), and the shares found have
    one of their own. The search for F = 1 goes along the line through the last point on either side
    in logarithms, or halves where that is slow.
    """
    allocation = most(program, work_s / alone_s).allocation
    rho = at = _rho(program, allocation, age_s, alone_s, work_s)
    bound = float((age_s / alone_s).max())
    sides: dict[bool, tuple[float, float]] = {}
    for _ in range(MOST_ROUNDS):
        if rho <= bound * (1 + GAP):
            break
        tried = most(program, work_s / (at * alone_s - age_s))
        wide = rho / max(bound, 1e-300)
        bound = max(bound, at / max(1.0, tried.bound))
        reached = _rho(program, tried.allocation, age_s, alone_s, work_s)
        if reached < rho:
            allocation, rho = tried.allocation, reached
        sides[tried.value >= 1] = math.log(at), math.log(max(tried.value, 1e-300))
        at = math.sqrt(bound * rho)
        if len(sides) == 2 and rho / bound < wide**HALVED:
            (x, y), (other_x, other_y) = sides[False], sides[True]
            at = min(
                max(math.exp(x - y * (other_x - x) / (other_y - y)), bound**0.99 * rho**0.01), rho
            )
    return Fairest(allocation, rho, bound)


def _rho(
    program: Program, allocation: Allocation, age_s: Floats, alone_s: Floats, work_s: Floats
) -> float:
    throughput = np.maximum(allocation.throughput(program), 1e-300)
    return float(((age_s + work_s / throughput) / alone_s).max())


class GavelFinishTimeFairness(LpRounds):
    """Shares that make the largest rho as small as possible, where rho is a job's time from
    submission to completion under them over what it would be on an equal part of the cluster.

    That part is 1 / number of jobs of each GPU type, divided by the job's GPUs and used at most all
    the time. What the job has done so far counts at the throughput of the part it would have had
    then, computation by computation. Weights do not count.

    Source: Narayanan et al., OSDI'20, section 4.2; the public code solves the convex program
    itself.
    """

    name = "gavel-finish-time-fairness"
    title = "Gavel's finish-time fairness over GPU types, in rounds"
    Options = LpOptions

    def __init__(self, options: LpOptions) -> None:
        super().__init__(options)
        self._before: dict[str, tuple[float, float, float]] = {}
        """Seconds on its equal parts so far, remaining work and rate there at the last
        computation."""

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return the optimal shares."""
        work_s, part = remaining_s(world, jobs), program.isolated_rate()
        past_s = np.zeros(len(jobs))
        for i, job_id in enumerate(jobs):
            if job_id in self._before:
                past, left, rate = self._before[job_id]
                past_s[i] = past + max(0.0, left - float(work_s[i])) / rate
        noted = zip(jobs, past_s.tolist(), work_s.tolist(), part.tolist(), strict=True)
        self._before = {job_id: (past, left, rate) for job_id, past, left, rate in noted}
        age_s = np.array([max(0.0, world.now_s - world.job(job_id).submit_s) for job_id in jobs])
        return fairest(program, age_s, past_s + work_s / part, work_s).allocation
