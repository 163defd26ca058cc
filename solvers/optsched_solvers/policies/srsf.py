"""Shortest remaining service first."""

from optsched.driver import World

from .parts.preemptive import Preemptive


class Srsf(Preemptive):
    """Shortest remaining service (GPUs x remaining time) first, with preemption; what does not fit
    is skipped.

    The rule that Tiresias uses when run times are known (Gu et al., NSDI 2019).
    """

    name = "srsf"
    title = "shortest remaining GPU service first, with preemption"
    reserves = True

    def rank(self, world: World, job_id: str) -> float:
        """Return the GPU-seconds to completion in the fastest option, start-up and restore
        included."""
        return world.service_left_gpu_s(job_id)

    def rise_s(self, world: World, job_id: str) -> float:
        """Return when the job outruns what it is believed to be."""
        return world.belief_rises_s(job_id)
