"""Least attained service."""

import math

from optsched.driver import World

from .parts.preemptive import Preemptive

FIRST_LEVEL_GPU_S = 3600.0
"""Service below which a job is on the lowest level: one GPU-hour."""
LEVEL_TOLERANCE_GPU_S = 1e-3
"""Service this close below a threshold has reached it."""


class Las(Preemptive):
    """Least attained GPU service first, with preemption and without knowing any run time.

    Service is discretised as in Tiresias (Gu et al., NSDI 2019), here in levels that double from
    one GPU-hour; within a level jobs run in order of arrival and do not preempt each other. A stay
    on GPUs thus lasts at least as long as all before it together, so that jobs do not take turns
    for ever.
    """

    name = "las"
    title = "least attained GPU service first, in doubling levels, with preemption"
    reserves = True

    def rank(self, world: World, job_id: str) -> float:
        """Return the level of the service attained."""
        return float(level(world.attained_gpu_s(job_id)))

    def rise_s(self, world: World, job_id: str) -> float:
        """Return when a running job reaches its next level."""
        attained = world.attained_gpu_s(job_id)
        to_go = threshold_gpu_s(level(attained)) - attained
        return world.now_s + to_go / world.held_gpus(job_id)


def level(attained_gpu_s: float) -> int:
    """Return 0 below one GPU-hour, 1 below two, 2 below four, and so on."""
    hours = (attained_gpu_s + LEVEL_TOLERANCE_GPU_S) / FIRST_LEVEL_GPU_S
    return 0 if hours < 1 else math.frexp(hours)[1]


def threshold_gpu_s(level_: int) -> float:
    """Return the service at which a job leaves `level_`."""
    return math.ldexp(FIRST_LEVEL_GPU_S, level_)
