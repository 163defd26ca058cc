"""Shortest remaining service first."""

from optsched.driver.world import World
from optsched.plugins.policy import Source

from .parts.preemptive import Preemptive


class Srsf(Preemptive):
    """Shortest remaining service (GPUs x remaining time) first, with preemption; what does not fit
    is skipped.

    The rule that Tiresias uses when run times are known (Gu et al., NSDI 2019).
    """

    name = "srsf"
    title = "shortest remaining GPU service first, with preemption"
    reserves = True
    source = Source(
        authors="J. Gu, M. Chowdhury, K. G. Shin, Y. Zhu, M. Jeon, J. Qian, H. Liu, C. Guo",
        title="Tiresias: A GPU cluster manager for distributed deep learning",
        venue="NSDI",
        year=2019,
        link="https://www.usenix.org/conference/nsdi19/presentation/gu",
        sureness="derived",
        derived="The rule that the paper compares with where run times are known: remaining time "
        "x GPUs; a place is "
        "kept for a gang that waits too long",
    )

    def rank(self, world: World, job_id: str) -> float:
        """GPU-seconds to completion in the fastest option, start-up and restore included."""
        return world.service_gpus(job_id) * world.fastest_finish_s(job_id)

    def rise_s(self, world: World, job_id: str) -> float:
        """When the job outruns what it is believed to be."""
        return world.belief_rises_s(job_id)
