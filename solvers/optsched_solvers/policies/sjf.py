"""Shortest job first."""

from optsched.driver import World

from .parts.list_scheduling import ListScheduling


class Sjf(ListScheduling):
    """Shortest run time first, without preemption; what does not fit is skipped."""

    name = "sjf"
    title = "shortest job first, without preemption"

    def rank(self, world: World, job_id: str) -> float:
        """Return seconds in the fastest option, start-up and restore included."""
        return world.fastest_finish_s(job_id)
