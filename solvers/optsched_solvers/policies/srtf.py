"""Shortest remaining time first."""

from optsched.driver.world import World
from optsched.plugins.policy import Source

from .parts.preemptive import Preemptive


class Srtf(Preemptive):
    """Shortest remaining time first, with preemption; what does not fit is skipped.

    On one GPU without overheads this is the optimal rule for total completion time (Schrage,
    Operations Research 16, 1968).
    """

    name = "srtf"
    title = "shortest remaining time first, with preemption"
    reserves = True
    source = Source(
        authors="L. Schrage",
        title="A proof of the optimality of the shortest remaining processing time discipline",
        venue="Operations Research 16",
        year=1968,
        link="doi:10.1287/opre.16.3.687",
        sureness="derived",
        derived="Many GPUs and gangs: the last in order give way until the job fits; optimal on "
        "one GPU as published; "
        "a place is kept for a gang that waits too long",
    )

    def rank(self, world: World, job_id: str) -> float:
        """Seconds to completion in the fastest option, start-up and restore included."""
        return world.fastest_finish_s(job_id)

    def rise_s(self, world: World, job_id: str) -> float:
        """When the job outruns what it is believed to be."""
        return world.belief_rises_s(job_id)
