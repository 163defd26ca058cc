"""How fast an elastic job may grow: to at most twice the most GPUs that it has had."""

from collections.abc import Iterable

from optsched.driver.world import World


class Growth:
    """The most GPUs that each job has had when this was last noted."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def note(self, world: World, jobs: Iterable[str]) -> None:
        """Look at what the jobs hold, and forget all others."""
        most = {}
        for job_id in jobs:
            placement = world.hold(job_id).placement if job_id in world.running else ()
            most[job_id] = max(self._most.get(job_id, 0), sum(slot.gpus for slot in placement))
        self._most = most

    def limit(self, job_id: str, fewest: int) -> int:
        """The most GPUs for a job that cannot run on less than `fewest`."""
        return max(2 * self._most.get(job_id, 0), fewest)
