"""Shortest job first."""

from optsched.driver.world import World
from optsched.plugins.policy import Source

from .parts.list_scheduling import ListScheduling


class Sjf(ListScheduling):
    """Shortest run time first, without preemption; what does not fit is skipped."""

    name = "sjf"
    title = "shortest job first, without preemption"
    source = Source(
        authors="R. L. Graham",
        title="Bounds on multiprocessing timing anomalies",
        venue="SIAM J. Appl. Math. 17",
        year=1969,
        link="doi:10.1137/0117039",
        sureness="derived",
        derived="List scheduling in the order of run times, with start-up; what does not fit is "
        "skipped",
    )

    def rank(self, world: World, job_id: str) -> float:
        """Seconds in the fastest option, start-up and restore included."""
        return world.fastest_finish_s(job_id)
