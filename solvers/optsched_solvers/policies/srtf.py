"""Shortest remaining time first."""

from optsched.driver import World

from .parts.preemptive import Preemptive


class Srtf(Preemptive):
    """Shortest remaining time first, with preemption; what does not fit is skipped.

    On one GPU without overheads this is the optimal rule for total completion time (Schrage,
    Operations Research 16, 1968).
    """

    name = "srtf"
    title = "shortest remaining time first, with preemption"
    reserves = True

    def rank(self, world: World, job_id: str) -> float:
        """Return seconds to completion in the fastest option, start-up and restore included."""
        return world.fastest_finish_s(job_id)

    def rise_s(self, world: World, job_id: str) -> float:
        """Return when the job outruns what it is believed to be."""
        return world.belief_rises_s(job_id)
