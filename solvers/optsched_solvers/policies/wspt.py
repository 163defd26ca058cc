"""Weighted shortest processing time."""

import math

from optsched.driver.world import World
from optsched.plugins.policy import Source

from .parts.list_scheduling import ListScheduling


class Wspt(ListScheduling):
    """Highest weight for each GPU-second first, without preemption; what does not fit is skipped.

    On one GPU this is the optimal rule of Smith (Naval Research Logistics Quarterly 3, 1956).
    """

    name = "wspt"
    title = "highest weight / (GPUs x run time) first, without preemption"
    source = Source(
        authors="W. E. Smith",
        title="Various optimizers for single-stage production",
        venue="Naval Research Logistics Quarterly 3",
        year=1956,
        link="doi:10.1002/nav.3800030106",
        sureness="derived",
        derived="Run time counts times GPUs, and what does not fit is skipped; optimal on one "
        "GPU as published",
    )

    def rank(self, world: World, job_id: str) -> float:
        """GPU-seconds in the fastest option for each unit of weight."""
        weight = world.job(job_id).weight
        service = world.service_gpus(job_id) * world.fastest_finish_s(job_id)
        return service / weight if weight > 0 else math.inf
