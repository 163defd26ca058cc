"""Weighted shortest processing time."""

import math

from optsched.driver.world import World

from .parts.list_scheduling import ListScheduling


class Wspt(ListScheduling):
    """Highest weight for each GPU-second first, without preemption; what does not fit is skipped.

    On one GPU this is the optimal rule of Smith (Naval Research Logistics Quarterly 3, 1956).
    """

    name = "wspt"
    title = "highest weight / (GPUs x run time) first, without preemption"

    def rank(self, world: World, job_id: str) -> float:
        """Return the GPU-seconds in the fastest option for each unit of weight."""
        weight = world.job(job_id).weight
        service = world.service_left_gpu_s(job_id)
        return service / weight if weight > 0 else math.inf
